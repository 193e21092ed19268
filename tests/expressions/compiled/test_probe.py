"""Expressions are tried before anything runs (X14)."""

from __future__ import annotations

import pytest

from tidegate.datatypes import BIGINT, BINARY, DOUBLE, FLOAT, STRING, TIMESTAMP, DataType
from tidegate.expressions.compiled.probe import find_problem
from tidegate.expressions.expression import Call, Cast, Expression, Literal
from tidegate.expressions.parse import parse_expression

COLUMNS = {
    "a": BIGINT,
    "x": DOUBLE,
    "s": STRING,
    "v": BINARY,
    "t": TIMESTAMP,
    "l": DataType("array", element=STRING),
    "r": DataType("struct", fields=(("f", BIGINT),)),
}

SALT = f"aes_decrypt(unbase64('{'kVn0' * 12}'), secret('k'))"
"""What only the key says, which is not there yet."""


@pytest.mark.parametrize(
    "text",
    [
        *COLUMNS,
        "a + 1",
        "cast(v as string)",
        "cast(1.2 as float)",
        "1.5 / 3",
        "a * 1.1 + 12.50",
        "map('a', a)[s]",
        "to_json(map(s, a))",
        "case when contains(nullif('a', 'a'), s) then get_json_object(s, '$.a') end",
        "case when startswith(nullif('a', 'a'), s) then get_json_object(s, '$.a') end",
        "to_json(map_from_entries(array(named_struct('k', s, 'v', a))))",
        "s rlike '^a+$'",
        "l[0] || 'x'",
        "r.f / 2",
        "array(a, 1)",
        "named_struct('k', s, 'n', 1)",
        "md5('a')",
        "1",
        "'x'",
        "true",
        "case when a = 0 then 1 div 0 else a end",
        "a = 0 or 1 / 0 > a",
        "coalesce(a, 1 div 0)",
        "if(a > 1, cast(concat('a', 'b') as int), 0)",
        f"sha2(concat(s, cast({SALT} as string)), 256)",
        f"cast({SALT} as string) || 'x' = s",
        f"map(try_{SALT}, a)[v]",
        f"array({SALT})",
        f"element_at(array(cast({SALT} as string), s), 1)",
        "cast(aes_encrypt('a', secret('k'), 'ECB') as string) = s",
    ],
)
def test_what_can_be_run_is_taken(text: str) -> None:
    assert find_problem(parse_expression(text, COLUMNS)) == ""


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("1 div 0", "DIVIDE_BY_ZERO in `cast(1 as bigint) div cast(0 as bigint)`"),
        ("a > 1 / 0", "DIVIDE_BY_ZERO"),
        ("s = cast(cast(concat('a', 'b') as bigint) as string)", "CAST_INVALID_INPUT"),
        ("upper(repeat('x', 9)) = 'x' and 9223372036854775807 + length('a') > a", ""),
        ("9223372036854775807 + length('a') > a and s = 'x'", "ARITHMETIC_OVERFLOW"),
        ("case when 1 div 0 > a then 1 end", "DIVIDE_BY_ZERO"),
        ("a in (1, 2 div 0)", "DIVIDE_BY_ZERO"),
        ("element_at(array(1, 2), 3) + a", "INVALID_ARRAY_INDEX"),
        (f"concat(cast({SALT} as string), cast(1 / 0 as string))", "DIVIDE_BY_ZERO"),
        (f"cast({SALT} as string) = s and a > 1 / 0", ""),
        (f"a > 1 / 0 and cast({SALT} as string) = s", "DIVIDE_BY_ZERO"),
    ],
)
def test_X14_a_constant_that_fails_every_record_is_found(text: str, part: str) -> None:
    found = find_problem(parse_expression(text, COLUMNS))
    assert found.startswith("fails for every record") == bool(part), found
    assert part.split(" in ", maxsplit=1)[0] in found


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (Cast(Literal("1.2", DataType("variant")), FLOAT), "cannot be computed: KeyError"),
        (Call("no_such", (), BIGINT), "cannot be computed: KeyError"),
        (Call("upper", (Literal("a", STRING),), BIGINT), "is computed as String instead of bigint"),
        (parse_expression("s rlike '([ä-ÿЀ-ӿ一-龥😀-🙏]{1,100}){1,900}'", COLUMNS), "size limit"),
    ],
)
def test_X14_what_the_engine_cannot_run_is_found(expression: Expression, said: str) -> None:
    assert said in find_problem(expression)
