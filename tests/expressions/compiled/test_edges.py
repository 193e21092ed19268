"""Values at the edges of their types, which rows drawn at random do not meet: what Spark and Java say of them."""

from __future__ import annotations

import random
import re
from decimal import ROUND_HALF_UP, Context, Decimal

import polars as pl
import pytest

from tests.expressions.compiled.like_spark import Case
from tidegate.datatypes import INT, STRING
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import text_of
from tidegate.expressions.parse import ExpressionError, parse_expression
from tidegate.formats.columns import polars_type


def evaluate(text: str, columns: str, *rows: tuple[object, ...]) -> tuple[list[object], list[str]]:
    schema = Case((), columns, ()).schema
    values = zip(*rows, strict=True)
    frame = pl.DataFrame(
        [
            pl.Series(name, one, dtype=polars_type(kind))
            for (name, kind), one in zip(schema.items(), values, strict=True)
        ]
    )
    found, failures = compile_projection([("r", parse_expression(text, schema))]).apply(frame)
    return found["r"].to_list(), [f"{failure.row} {failure.kind}" for failure in failures]


def test_letters_in_a_pattern_are_read_in_either_case() -> None:
    rows = [("2026-01-31t01:02:03z",), ("2026-01-31T01:02:03Z",), ("2026-01-31x01:02:03Z",)]
    text = "cast(try_to_timestamp(s, \"yyyy-MM-dd'T'HH:mm:ssX\") as string)"
    assert evaluate(text, "s string", *rows) == (["2026-01-31 01:02:03", "2026-01-31 01:02:03", None], [])


def test_text_that_is_no_number_is_null_in_a_trying_operator() -> None:
    rows = [("7",), ("x",), (None,)]
    for text, wanted in (("try_add(s, 1)", 8), ("try_mod(5, s)", 5), ("try_multiply(s, 1.5)", 10.5)):
        assert evaluate(text, "s string", *rows) == ([wanted, None, None], [])
    assert evaluate("try_divide(14, s)", "s string", *rows) == ([2.0, None, None], [])
    assert evaluate("try_add(cast(s as int), 1)", "s string", *rows) == ([8, None], ["1 CAST_INVALID_INPUT"])


def test_nothing_after_a_null_that_is_written_is_evaluated() -> None:
    for text in ("cast(null as int) + cast(s as int)", "date_add(null, cast(s as int))", "null = cast(s as int)"):
        assert evaluate(text, "s string", ("x",), ("1",)) == ([None, None], [])
    assert evaluate("cast(s as int) + cast(null as int)", "s string", ("x",), ("1",)) == (
        [None],
        ["0 CAST_INVALID_INPUT"],
    )


@pytest.mark.parametrize("text", ["concat(a, b[k])", "array_union(a, b[k])", "concat(a, a, b[k])"])
def test_an_array_after_another_fails_its_record_all_the_same(text: str) -> None:
    rows = [([1], [[2]], 0), ([1], [[2]], 5), (None, [[2]], 5), ([1], [None], 0)]
    found, failures = evaluate(text, "a array<int>, b array<array<int>>, k int", *rows)
    assert (found[1:], failures) == ([None, None], ["1 INVALID_ARRAY_INDEX"])


@pytest.mark.parametrize("function", ["try_mod({}, b)", "try_divide({}, b)", "try_divide(cast({} as decimal), b)"])
def test_nothing_is_evaluated_to_be_divided_by_zero(function: str) -> None:
    text = f"{function.format('(1 div a)')} is null"
    assert evaluate(text, "a int, b int", (0, 0), (0, None), (0, 3)) == ([True, True], ["2 DIVIDE_BY_ZERO"])


@pytest.mark.parametrize(
    "text",
    [
        "map(a, 1, b, 2)['x']",
        "map_contains_key(map(a, 1, b, 2), 'x')",
        "element_at(map_from_entries(array(named_struct('k', a, 'v', 1), named_struct('k', b, 'v', 2))), a)",
    ],
)
def test_a_value_of_a_map_with_a_key_twice_fails_its_record_only(text: str) -> None:
    found, failures = evaluate(text, "a string, b string", ("x", "x"), ("x", "y"), ("x", None))
    assert (len(found), failures) == (1, ["0 DUPLICATED_MAP_KEY", "2 NULL_MAP_KEY"])


@pytest.mark.parametrize("text", ["try_mod(a, 1 div b)", "a % (1 div b)", "try_divide(cast(a as decimal), 1 div b)"])
def test_a_divisor_is_evaluated_before_what_is_divided(text: str) -> None:
    assert evaluate(text, "a int, b int", (None, 0), (1, None)) == ([None], ["0 DIVIDE_BY_ZERO"])


def test_what_does_not_make_its_result_null_does_not_keep_the_rest_from_failing() -> None:
    for text in ("format_string('%s %d', s, 1 div a)", "xxhash64(s, 1 div a)"):
        assert evaluate(text, "s string, a bigint", (None, 0), ("x", 0))[1] == ["0 DIVIDE_BY_ZERO", "1 DIVIDE_BY_ZERO"]


def test_a_null_of_a_decimal_is_a_constant_like_others() -> None:
    for text in ("cast(null as decimal(5,2)) >= a", "a < cast(null as decimal(5,2))", "a = cast(null as decimal(5,2))"):
        assert evaluate(text, "a int", (1,)) == ([None], [])
    for text in ("element_at(m, cast(null as decimal(5,2)))", "m[cast(null as decimal(3,1))]"):
        assert evaluate(text, "m map<decimal(5,2),int>", ([{"key": Decimal(1), "value": 2}],)) == ([None], [])


@pytest.mark.parametrize("function", ["array_distinct({a})", "array_union({a}, {a})", "array_intersect({a}, {a})"])
def test_zeros_inside_of_different_values_are_positive(function: str) -> None:
    for made in ("array(x)", "named_struct('q', x)", "named_struct('p', array(x), 'q', 1)"):
        text = f"to_json({function.format(a=f'transform(a, x -> {made})')})"
        (found,), (wanted,) = (evaluate(text, "a array<double>", ([zero],))[0] for zero in (-0.0, 0.0))
        assert found == wanted


@pytest.mark.parametrize(
    ("number", "digits", "rounded"),
    [
        (36123456789012.34, 2, 36123456789012.34),
        (-40000000000000.34, 2, -40000000000000.34),
        (8875897298302.564, 2, 8875897298302.56),
        (826714.8861871714, 9, 826714.886187171),
        (4.5123456789012341, 15, 4.512345678901234),
        (451234567890123456.0, -2, 451234567890123500.0),
        (2251799813685247.5, 0, 2251799813685248.0),
        (2251799813685248.5, 0, 2251799813685249.0),
        (1e300, 2, 1e300),
    ],
)
def test_a_double_of_many_digits_is_rounded_by_its_text(number: float, digits: int, rounded: float) -> None:
    assert evaluate(f"round(a, {digits})", "a double", (number,)) == ([rounded], [])


@pytest.mark.parametrize("digits", [0, 2, 9, 15, -3])
def test_doubles_of_any_size_are_rounded_by_their_texts(digits: int) -> None:
    draw = random.Random(digits)
    numbers = [draw.uniform(1, 10) * 10.0 ** (draw.randint(11, 18) - digits) for _ in range(500)]
    step, context = Decimal(1).scaleb(-digits), Context(prec=400, rounding=ROUND_HALF_UP)
    expected = [float(Decimal(repr(number)).quantize(step, context=context)) for number in numbers]
    assert evaluate(f"round(a, {digits})", "a double", *((number,) for number in numbers)) == (expected, [])


def test_a_remainder_of_small_integers_is_added_as_an_int() -> None:
    for kind, least in (("tinyint", -(2**7)), ("smallint", -(2**15))):
        rows = [(-5, least), (least, least), (least, -1), (-7, 3), (-7, -3), (7, least), (None, 1)]
        assert evaluate("pmod(a, b)", f"a {kind}, b {kind}", *rows) == ([-5, 0, 0, 2, -1, 7, None], [])


def test_the_least_numbers_have_two_digits_as_in_java() -> None:
    doubles = [(5e-324,), (1e-323,), (2e-323,), (1e23,), (-5e-324,)]
    texts = ["4.9E-324", "9.9E-324", "2.0E-323", "1.0E23", "-4.9E-324"]
    assert evaluate("cast(a as string)", "a double", *doubles) == (texts, [])
    objects = [f'{{"a":{text}}}' for text in texts]
    assert evaluate("to_json(named_struct('a', a))", "a double", *doubles) == (objects, [])
    floats = [(1e-45,), (3e-45,), (1e-44,), (1e10,), (None,)]
    texts = ["1.4E-45", "2.8E-45", "9.8E-45", "1.0E10"]
    assert evaluate("cast(a as string)", "a float", *floats) == ([*texts, None], [])
    objects = [f'{{"a":{text}}}' for text in texts]
    assert evaluate("to_json(named_struct('a', a))", "a float", *floats) == ([*objects, "{}"], [])


def test_nan_may_have_a_sign_and_a_double_no_delete_character_at_its_end() -> None:
    rows = [("NaN",), ("nAn",), ("+NaN",), (" -NaN",), ("+nan",), ("1\x7f",), ("\x1f1",)]
    for kind in ("double", "float"):
        found, failures = evaluate(f"cast(s as {kind})", "s string", *rows)
        assert (list(map(str, found)), failures) == (
            ["nan"] * 4 + ["1.0"],
            ["4 CAST_INVALID_INPUT", "5 CAST_INVALID_INPUT"],
        )
        assert evaluate(f"isnan(cast('-NaN' as {kind}))", "s string", ("",)) == ([True], [])
        with pytest.raises(ExpressionError, match="is not a"):
            parse_expression(f"cast('1\x7f' as {kind})", {})
    assert evaluate("cast(s as int)", "s string", ("1\x7f",)) == ([1], [])


def test_a_fraction_may_have_fewer_digits_than_its_pattern() -> None:
    rows = [("2026-01-31 00:00:00.7",), ("2026-01-31 00:00:00.789",), ("2026-01-31 00:00:00.",), (LAST + ".7891",)]
    found, failures = evaluate("unix_millis(to_timestamp(s, 'yyyy-MM-dd HH:mm:ss.SSS'))", "s string", *rows)
    assert (found, failures) == (
        [1769817600700, 1769817600789],
        ["2 CANNOT_PARSE_TIMESTAMP", "3 CANNOT_PARSE_TIMESTAMP"],
    )
    compact = [("202601310000007",), ("20260131000000789",), ("20260131000000",)]
    found, failures = evaluate("unix_millis(to_timestamp(s, 'yyyyMMddHHmmssSSS'))", "s string", *compact)
    assert (found, failures) == ([1769817600700, 1769817600789], ["2 CANNOT_PARSE_TIMESTAMP"])
    with pytest.raises(ExpressionError, match="`yyyy` after a fraction; write a character"):
        parse_expression("to_timestamp(s, 'MMddSSSyyyy')", {"s": STRING})


FIRST, LAST = "0001-01-01 00:00:00", "9999-12-31 23:59:59"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("cast(s as timestamp)", "CAST_INVALID_INPUT"),
        ("to_timestamp(s, 'yyyy-MM-dd HH:mm:ssXXX')", "CANNOT_PARSE_TIMESTAMP"),
        ("""from_json('{"a":"' || s || '"}', 'a timestamp').a""", "DATETIME_OVERFLOW"),
    ],
)
def test_an_offset_that_leads_out_of_the_calendar_fails_its_record(text: str, kind: str) -> None:
    rows = [(f"{FIRST}+00:01",), (f"{LAST}-00:01",), (f"{FIRST}-00:01",), (f"{LAST}+00:01",), (f"{LAST}+00:00",)]
    found, failures = evaluate(f"unix_seconds({text})", "s string", *rows)
    assert failures == [f"0 {kind}", f"1 {kind}"]
    assert found == [-62135596740, 253402300739, 253402300799]


def test_a_constant_with_such_an_offset_is_refused() -> None:
    for text in (f"timestamp '{FIRST}+00:01'", f"cast('{LAST}-00:01' as timestamp)"):
        with pytest.raises(ExpressionError, match="is not a timestamp"):
            parse_expression(text, {"s": STRING})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("array_join(slice(split(s, '[.]'), 1, 2), '.')", ["a.b", "a.b", "a", "", ".a", None]),  # substring_index, 2
        ("split_part(s, '.', -1)", ["c", "b", "a", "", "", None]),  # substring_index, -1
        ("array_position(split(s, '[.]'), 'a')", [1, 1, 1, 0, 2, None]),  # find_in_set
    ],
)
def test_what_is_named_in_place_of_a_function_has_its_results(text: str, wanted: list[object]) -> None:
    rows: list[tuple[object, ...]] = [("a.b.c",), ("a.b",), ("a",), ("",), (".a.",), (None,)]
    assert evaluate(text, "s string", *rows) == (wanted, [])


def test_a_long_text_of_a_column_is_looked_for_in_linear_time() -> None:
    """A regular expression made of it takes an hour."""
    whole, part = "ab" * 500_000, "ab" * 499_999
    rows: list[tuple[object, ...]] = [(whole, whole), (whole, part + "c"), (whole, "b" + part), ("é.", "."), ("", "")]
    rows += [(None, ""), ("", None), ("é", "")]
    found = [True, False, True, True, True, None, None, True]
    assert evaluate("contains(s, t)", "s string, t string", *rows) == (found, [])
    assert evaluate("instr(s, t)", "s string, t string", *rows) == ([1, 0, 2, 2, 1, None, None, 1], [])


_ROWS = [(1, 0, "x", [5], 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 + a / b", "division by zero in `a / b`"),
        ("(a+1)%b", "division by zero in `(a+1)%b`"),
        ("case a when 1 then a div b end", "division by zero in `a div b`"),
        ("a / b between 0 and 1", "division by zero in `a / b`"),
        ("pmod(a,\n  b) > 0", "division by zero in `pmod(a, b)`"),
        ("array_max(transform(l, x -> x div b))", "division by zero in `x div b`"),
        ("s::int", "the value cannot be converted to int in `s::int`"),
        ("s + 1", "the value cannot be converted to bigint in `s + 1`"),
        ("2147483647 + a", "the result is out of range in `2147483647 + a`"),
        ("cast(a + 999 as tinyint)", "the value is out of the range of tinyint in `cast(a + 999 as tinyint)`"),
        ("make_date(2026, 2, a + 29)", "the date or time does not exist in `make_date(2026, 2, a + 29)`"),
        ("l[n - 1]", "the array has no element with this index in `l[n - 1]`; write `get(l, n - 1)` for NULL instead"),
        ("l[n]", "the array has no element with this index in `l[n]`; write `get(l, n)` for NULL instead"),
        (
            "element_at(l, 2) + 1",
            (
                "the array has no element with this index in `element_at(l, 2)`; "
                "write `try_element_at(l, 2)` for NULL instead"
            ),
        ),
    ],
)
def test_the_message_of_a_failure_quotes_what_the_user_wrote(text: str, message: str) -> None:
    """And where it names a function for NULL instead, that gives NULL."""
    columns = "a int, b int, s string, l array<int>, n int"
    schema = Case((), columns, ()).schema
    frame = pl.DataFrame(_ROWS, {name: polars_type(kind) for name, kind in schema.items()}, orient="row")
    _, failures = compile_projection([("r", parse_expression(text, schema))]).apply(frame)
    assert [failure.message for failure in failures] == [message]
    for safe in re.findall("write `(.*)` for NULL", message):
        assert evaluate(safe, columns, *_ROWS) == ([None], [])


def test_the_text_of_an_expression_does_not_count_in_comparisons() -> None:
    one, other = (parse_expression(text, {"a": INT}) for text in ("a  +  1", "(a + 1)"))
    assert (one == other, hash(one) == hash(other), text_of(one), text_of(other)) == (True, True, "a  +  1", "a + 1")
    assert parse_expression("a - 1", {"a": INT}) != one
