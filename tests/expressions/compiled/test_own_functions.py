"""Functions that Spark does not have, and what is said of failures that a row-by-row function reports."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import polars as pl
import pytest

from tidegate.datatypes import INT, STRING, DataType, map_of
from tidegate.expressions.compiled import compile_predicate, compile_projection
from tidegate.expressions.compiled.lambdas import _FINISH
from tidegate.expressions.compiled.probe import find_problem
from tidegate.expressions.expression import can_fail
from tidegate.expressions.parse import ExpressionError, parse_expression
from tidegate.formats.columns import polars_type
from tidegate.operators.fingerprint import digest_expression

COLUMNS = {"s": STRING, "n": INT, "a": DataType("array", element=INT)}
INTS = pl.List(pl.Int32)


def evaluate(text: str, frame: pl.DataFrame) -> tuple[list[object], list[str]]:
    found, failures = compile_projection([("r", parse_expression(text, COLUMNS))]).apply(frame)
    return found["r"].to_list(), [f"{failure.row} {failure}" for failure in failures]


def test_ids_by_name_are_those_of_rfc_9562() -> None:
    frame = pl.DataFrame({"s": ["www.example.com", None, "é", ""]})
    values, _ = evaluate("uuid5('dns', s)", frame)
    assert values[:2] == ["2ed6657d-e927-568b-95e1-2665a8aea6a2", None]  # appendix A.4
    own = "6ba7b814-9dad-11d1-80b4-00c04fd430c8"
    values, _ = evaluate(f"uuid5('{own}', s)", frame)
    assert values[2:] == [str(uuid.uuid5(uuid.UUID(own), name)) for name in ("é", "")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("uuid5('street', s)", "is not a namespace"),
        ("uuid()", "another value at each call"),
        ("rand()", "another value at each call"),
        ("aes_encrypt(s, '0123456789abcdef')", "is visible in the file"),
        ("aes_encrypt(s, secret('k'), 'CTR')", "`CTR` is not a mode of AES; use one of GCM, CBC, ECB"),
        ("aes_encrypt(s, secret('k'), 'ECB', 'NONE')", "`NONE` is not a padding of ECB; use one of DEFAULT, PKCS"),
        ("aes_encrypt(s, secret('k'), 'ECB', 'PKCS', 'x')", "does not take an initialization vector"),
        ("aes_encrypt(s, secret('k'), 'CBC', 'PKCS', '', 'x')", "does not take additional authenticated data"),
        ("aes_decrypt(s, secret('k'), 'CBC', 'PKCS', 'x')", "does not take additional authenticated data"),
        ("aes_encrypt(s, secret(s))", "needs a string literal"),
        ("aes_encrypt(s, secret('k', 'octal'))", "form of the key is unknown"),
        ("to_utc_timestamp(s, 'Moon/Sea')", "is not a time zone"),
        ("get_json_object(s, '$.a[*]')", "has a wildcard"),
        ("get_json_object(s, 'a')", "does not begin"),
        ("from_json(s, 'a int, A int')", "the same name"),
        ("from_json(s, 'a money')", "`money` is not a type"),
        ("from_json(s, 'a binary')", "does not support binary"),
        ("from_json(s, 'int')", "reads a struct, an array or a map"),
        ("format_string('%y', s)", "`%y`"),
        ("format_string('%d', s)", "does not take string"),
        ("format_string('%s %s', s)", "needs 2 values"),
        ("to_timestamp(s, 'E d MMM yyyy')", "name of a day"),
        ("to_timestamp(s, 'Mdyyyy')", "`M` next to `d`"),
        ("to_timestamp(s, 'yyyy-MM-dd hh:mm')", "`h` without `a`"),
        ("encode(s, 'utf-7')", "is not a character set"),
        ("parse_url(s, 'PORT')", "is not a part of a URL"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, COLUMNS)
    assert said in str(caught.value)


def test_a_row_that_fails_in_a_function_by_rows_fails_alone() -> None:
    frame = pl.DataFrame(
        {"s": ["a%20b", "%", None], "n": [1, 0, 2], "a": [[1], [0, 2], []]}, schema_overrides={"n": pl.Int32}
    )
    assert evaluate("concat(url_decode(s), '!')", frame) == (
        ["a b!", None],
        ["1 CANNOT_DECODE_URL: the text is not valid percent-encoding in `url_decode(s)`"],
    )
    values, failures = evaluate("coalesce(try_url_decode(s), url_decode('x'))", frame)
    assert (values, failures) == (["a b", "x", "x"], [])
    values, failures = evaluate("case when n > 0 then url_decode(s) else 'none' end", frame)
    assert (values, failures) == (["a b", "none", None], [])
    values, failures = evaluate("transform(a, x -> 6 div x)", frame)
    assert (values, failures) == ([[6], []], ["1 DIVIDE_BY_ZERO: division by zero in `6 div x`"])


def test_a_predicate_takes_lambda_functions_and_functions_by_rows() -> None:
    frame = pl.DataFrame({"s": ['{"k":1}', "{}", "x"], "a": [[1, 5], [2], None]})
    found, failures = compile_predicate(
        parse_expression("exists(a, x -> x > 1) and get_json_object(s, '$.k') is null", COLUMNS)
    ).apply(frame)
    assert (found["s"].to_list(), failures) == (["{}"], [])


def test_a_sequence_that_is_too_long_fails_by_the_number_of_its_elements() -> None:
    _, failures = evaluate("sequence(1, n * 100000)", pl.DataFrame({"n": [1]}, schema={"n": pl.Int32}))
    assert "the array has more than 10,000 elements in `sequence(" in failures[0]


def test_constants_of_nested_types_are_spread_over_the_rows() -> None:
    frame = pl.DataFrame({"n": [1, 2]}, schema={"n": pl.Int32})
    assert evaluate("from_json('[1, 2]', 'array<int>')", frame) == ([[1, 2], [1, 2]], [])
    assert evaluate("from_json('{', 'a int')", frame) == ([{"a": None}, {"a": None}], [])
    assert evaluate("transform(array(1, 2), x -> x * n)", frame) == ([[1, 2], [2, 4]], [])
    assert evaluate("array_append(sequence(1, 2), n)", frame) == ([[1, 2, 1], [1, 2, 2]], [])
    assert find_problem(parse_expression("url_decode('%')", {})).startswith("fails for every record: CANNOT_DECODE_URL")
    assert find_problem(parse_expression("filter(a, x -> x > 1)", COLUMNS)) == ""


def test_json_that_is_nested_too_deeply_fails_its_record() -> None:
    frame = pl.DataFrame({"s": ["[" * 200 + "]" * 200, "[" * 201 + "]" * 201, '"' + "[" * 300 + '"', "[" * 100_000]})
    values, failures = evaluate("get_json_object(s, '$')", frame)
    assert [len(str(value)) for value in values] == [400, 300]
    assert [failure[:10] for failure in failures] == ["1 TOO_DEEP", "3 TOO_DEEP"]


def test_arrays_whose_elements_repeat_the_record_are_limited() -> None:
    frame = pl.DataFrame(
        {"s": ["x" * 100, "x"], "a": [[1] * 1_000, [1] * 1_001]}, schema_overrides={"a": pl.List(pl.Int32)}
    )
    values, failures = evaluate("size(transform(a, y -> concat(s, 'y')))", frame)
    said = "1 RESULT_TOO_LARGE: the array has more than 1,000 elements in `transform("
    assert (values, [said in failure for failure in failures]) == ([1_000], [True])
    values, failures = evaluate("size(filter(a, y -> length(s) > y))", frame)
    assert (values, failures) == ([1_000, 0], [])


def test_what_a_lambda_function_makes_of_a_row_is_limited() -> None:
    frame = pl.DataFrame({"a": [[1] * 2_000, [1] * 1_000]}, schema_overrides={"a": pl.List(pl.Int32)})
    values, failures = evaluate("size(transform(a, x -> repeat('x', 10000)))", frame)
    assert (values, [failure[:18] for failure in failures]) == ([1_000], ["0 RESULT_TOO_LARGE"])


def test_an_array_of_more_elements_than_aggregate_goes_through_fails_its_record() -> None:
    arrays = [[1] * 10_001, [1], [2]]
    values, failures = evaluate("aggregate(a, 0, (acc, x) -> acc + x)", pl.DataFrame({"a": arrays}, {"a": INTS}))
    assert values == [1, 2]
    assert ["the array has more than 10,000 elements in `aggregate(" in one for one in failures] == [True]


OF_MANY = {
    "aggregate": ("aggregate(a, 0D, (acc, x) -> acc + x)", True),
    "transform": ("transform(a, x -> s)", True),
    "transform_keys": ("transform_keys(m, (k, v) -> s)", True),
    "transform_values": ("transform_values(m, (k, v) -> s)", True),
    "filter": ("filter(a, x -> x > 1)", False),
    "map_filter": ("map_filter(m, (k, v) -> v > 1)", False),
    "exists": ("exists(a, x -> x > 1)", False),
    "forall": ("forall(a, x -> x > 0)", False),
}


@pytest.mark.parametrize("function", _FINISH)
def test_what_fails_of_many_elements_is_known_to_fail(function: str) -> None:
    """Else a record would be good or bad by what is read of it further down."""
    text, fails = OF_MANY[function]
    kind = map_of(INT, INT)
    expression = parse_expression(text, {**COLUMNS, "m": kind})
    many = range(10_001)
    frame = pl.DataFrame({"s": ["s"], "a": [[1] * len(many)]}, {"s": pl.String, "a": INTS})
    frame = frame.with_columns(pl.Series("m", [[{"key": one, "value": 1} for one in many]], polars_type(kind)))
    _, failures = compile_projection([("r", expression)]).apply(frame)
    assert [can_fail(expression), bool(failures)] == [fails, fails]


def folded(array: list[int | None] | None, start: int) -> int | None:
    """What `AGGREGATE` is of a row; raises where the record fails."""
    total: int | None = None if array is None else start
    for value in array or []:
        total = None if total is None or value is None else abs(total * 3) % 1000 + 12 // value
    return None if total is None else 100 // (total - 5)


AGGREGATE = "aggregate(a, cast(n as bigint), (acc, x) -> abs(acc * 3) % 1000 + 12 div x, acc -> 100 div (acc - 5))"


@pytest.mark.parametrize("seed", range(20))
def test_aggregate_goes_through_each_array_in_order(seed: int) -> None:
    """Arrays of several lengths, in any order of the rows, of which some fail on the way and some at the end."""
    random = Random(seed)
    rows: list[tuple[list[int | None] | None, int]] = [
        (random.choices([1, 2, 3, 4, 6, 12, *([None, 0] if random.random() < 0.3 else [])], k=random.randrange(9)), 5)
        for _ in range(random.randrange(40))
    ]
    rows = [(None, 7) if random.random() < 0.1 else row for row in rows]
    wanted: list[int | None] = []
    failing: list[int] = []
    for row, (array, start) in enumerate(rows):
        try:
            wanted.append(folded(array, start))
        except ZeroDivisionError:
            failing.append(row)
    frame = pl.DataFrame({"a": [a for a, _ in rows], "n": [n for _, n in rows]}, {"a": INTS, "n": pl.Int32})
    values, failures = evaluate(AGGREGATE, frame)
    assert values == wanted
    assert [int(one.split()[0]) for one in failures] == failing


@pytest.mark.parametrize(
    ("start", "body", "value"),
    [
        ("0", "null", None),
        ("0", "7", 7),
        ("true", "acc and x > 1", False),
        ("cast(0 as decimal(38,1))", "cast(acc + x as decimal(38,1))", Decimal("3.0")),
        ("timestamp '2026-01-01 00:00:00'", "acc + interval 1 hour", datetime(2026, 1, 1, 2, tzinfo=UTC)),
        ("named_struct('sum', 0, 'count', 0)", "named_struct('sum', acc.sum + x, 'count', acc.count + 1)", (3, 2)),
    ],
)
def test_aggregate_has_the_type_that_it_begins_with(start: str, body: str, value: object) -> None:
    frame = pl.DataFrame({"a": [[], [1, 2], None]}, {"a": INTS})
    [first, found, nothing], failures = evaluate(f"aggregate(a, {start}, (acc, x) -> {body})", frame)
    assert (tuple(found.values()) if isinstance(found, dict) else found) == value
    assert (first is not None, nothing, failures) == (True, None, [])


def test_the_meaning_of_a_lambda_function_does_not_depend_on_the_names_of_its_parameters() -> None:
    def digest(text: str) -> str:
        return digest_expression(parse_expression(text, COLUMNS), {name: f"of {name}" for name in COLUMNS})

    assert digest("transform(a, x -> x + n)") == digest("transform(a, y -> y + n)")
    assert digest("transform(a, (x, i) -> x)") != digest("transform(a, (x, i) -> i)")
    nested = "transform(a, x -> transform(a, y -> {}))"
    assert digest(nested.format("x")) != digest(nested.format("y"))
    assert digest(nested.format("x")) == digest("transform(a, n -> transform(a, x -> n))")


@pytest.mark.parametrize("number", ["1e-999999999", "-1e-999999999", "0e999999999", "1e-9999999999999999999"])
def test_a_float_of_json_with_a_huge_exponent_takes_no_time(number: str) -> None:
    """An exact fraction of it would have a billion digits."""
    found, failures = evaluate(f"from_json('{{\"a\":{number}}}', 'a float')", pl.DataFrame({"n": [1]}))
    assert failures == []
    assert found == [{"a": 0.0}]
