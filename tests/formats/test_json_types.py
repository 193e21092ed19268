"""Values of every column type through JSON: written, read, and what is refused."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.typed_values import TYPES, values_of
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import DataType
from tidegate.expressions.text_values import timestamp_of_text
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.json.types import SCALARS
from tidegate.formats.kinds.json.writer import json_objects

TABLES = st.lists(TYPES, min_size=1, max_size=3).flatmap(
    lambda kinds: st.tuples(st.just(kinds), st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=3))
)


def written(kind: DataType, value: object) -> str:
    """The JSON text of a plain value."""
    frame = pl.DataFrame([make_column("v", kind, [value])])
    text = frame.select(json_objects([("v", kind)])).item().decode()
    assert text.startswith('{"v":')
    return str(text[5:-1])


def read(kind: DataType, text: str) -> tuple[Any, str]:
    """The plain value and the reason of the failure, one of them empty."""
    frame, failures = JsonDecoder([("v", kind)]).decode_values([b'{"v":%s}' % text.encode()])
    return ("", str(failures[0])) if failures else (plain_values(frame["v"])[0], "")


@pytest.mark.slow
@given(TABLES)
def test_what_is_written_is_read_again_to_the_last_digit(table: tuple[list[DataType], list[tuple[Any, ...]]]) -> None:
    kinds, rows = table
    columns = [(f"c{index}", kind) for index, kind in enumerate(kinds)]
    made = [
        make_column(name, kind, values) for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    frame = pl.DataFrame(made)
    texts: list[bytes] = frame.select(json_objects(columns)).to_series().to_list()
    for text in texts:
        json.loads(text)
    decoded = JsonDecoder(columns).decode_values(texts)
    assert not decoded.failures
    assert decoded.frame.schema == frame.schema
    assert [plain_values(column) for column in decoded.frame] == [plain_values(column) for column in frame]


@pytest.mark.parametrize("name", ["float", "array<float>", "struct<f: float>", "map<float, float>"])
def test_the_largest_float_is_read_again(name: str) -> None:
    for largest in (3.4028234663852886e38, -3.4028234663852886e38):
        value = {"float": largest, "map<float, float>": ((largest, largest),)}.get(name, (largest,))
        text = written(derive_type(name), value)
        assert "3.4028235e+38" in text
        assert read(derive_type(name), text) == (value, "")


@pytest.mark.parametrize("name", ["float", "double"])
def test_keys_that_are_no_finite_numbers_have_the_names_that_others_write(name: str) -> None:
    kind = derive_type(f"map<{name}, int>")
    assert written(kind, [(float("nan"), 1), (float("inf"), 2), (float("-inf"), 3), (0.5, 4)]) == (
        '{"NaN":1,"Infinity":2,"-Infinity":3,"0.5":4}'
    )
    for key in ("NaN", "Infinity"):
        assert read(kind, f'{{"{key}": 1}}')[1]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("decimal(19,2)", "12345678901234567.89", "12345678901234567.89"),
        ("decimal(19,2)", "1.234567890123456789e16", "12345678901234567.89"),
        ("decimal(19,2)", '"12345678901234567.89"', "12345678901234567.89"),
        ("decimal(5,2)", "5", "5.00"),
        ("decimal(5,2)", "1e2", "100.00"),
        ("decimal(5,2)", "5.000000", "5.00"),
        ("decimal(5,2)", "-0.0", "0.00"),
        ("decimal(5,2)", '"+0005.5"', "5.50"),
        ("decimal(38,0)", "9" * 38, "9" * 38),
        ("decimal(38,38)", "0." + "9" * 38, "0." + "9" * 38),
        ("decimal(38,38)", "1e-38", "1E-38"),
    ],
)
def test_a_decimal_is_exactly_what_the_record_says(name: str, text: str, value: str) -> None:
    found, reason = read(derive_type(name), text)
    assert reason == ""
    assert str(found) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("decimal(5,2)", "1.005", "OUT_OF_RANGE: 1.005 does not fit into decimal(5,2) - at `$.v`"),
        ("decimal(5,2)", "1000", "OUT_OF_RANGE: 1000 does not fit"),
        ("decimal(5,2)", '"1000.00"', "OUT_OF_RANGE: '1000.00' does not fit"),
        ("decimal(5,2)", "1e999999999", "OUT_OF_RANGE: 1E+999999999 does not fit"),
        ("decimal(5,2)", "1e-999999999", "OUT_OF_RANGE"),
        ("decimal(5,2)", "1e9999999999999999999", "OUT_OF_RANGE: the exponent of a number exceeds all types"),
        ("map<string, decimal(5,2)>", '{"k":1e-9999999999999999999}', "OUT_OF_RANGE: the exponent of a number"),
        ("decimal(5,2)", '"1e9999999999999999999"', "OUT_OF_RANGE: '1e9999999999999999999' does not fit"),
        ("decimal(5,2)", "1" * 10_000, "OUT_OF_RANGE"),
        ("decimal(5,2)", "true", "WRONG_TYPE: Expected `decimal(5,2) | null`, got `boolean` - at `$.v`"),
        ("decimal(5,2)", "[1]", "got `array`"),
        ("decimal(5,2)", '"1_0"', "WRONG_TYPE: Expected `decimal(5,2)`, got the text '1_0'"),
        ("decimal(5,2)", '" 1"', "WRONG_TYPE"),
        ("decimal(5,2)", '"\u0661"', "WRONG_TYPE"),
        ("decimal(5,2)", '"NaN"', "WRONG_TYPE"),
        ("decimal(5,2)", '""', "WRONG_TYPE"),
        ("array<decimal(3,1)>", "[1.5,1.55]", "1.55 does not fit into decimal(3,1) - at `$.v[1]`"),
        ("map<string, struct<d: decimal(3,1)>>", '{"k":{"d":1.55}}', "OUT_OF_RANGE"),
        ("timestamp_ntz", '"2026-01-01T00:00:00Z"', "WRONG_TYPE: Expected `timestamp` with no timezone component"),
        ("timestamp_ntz", '"2026-01-01"', "WRONG_TYPE"),
        ("map<string, int>", "[]", "got `array`"),
        ("map<string, int>", '{"a":1.0}', "WRONG_TYPE"),
        ("map<int, int>", '{"01":1}', "WRONG_TYPE"),
        ("map<tinyint, int>", '{"128":1}', "OUT_OF_RANGE"),
        ("map<boolean, int>", '{"yes":1}', "WRONG_TYPE: Expected `true` or `false`, got 'yes'"),
        ("map<double, int>", '{"NaN":1}', "OUT_OF_RANGE"),
        ("map<double, int>", '{"inf":1}', "OUT_OF_RANGE"),
        ("map<timestamp, int>", '{"9999-12-31T23:00:00-05:00":1}', "OUT_OF_RANGE"),
    ],
)
def test_what_a_type_does_not_hold_is_a_bad_record(name: str, text: str, reason: str) -> None:
    assert reason in read(derive_type(name), text)[1]


@pytest.mark.timeout(method="signal")  # the other method's thread waits for a pattern
def test_a_long_text_that_is_nearly_a_number_is_read_once() -> None:
    """A pattern that tries every way to share the digits out would take hours."""
    assert "got the text" in read(derive_type("decimal(18,2)"), '"' + "1" * 1_000_000 + 'x"')[1]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("map<string, int>", '{"b":1,"a":null,"":3}', (("b", 1), ("a", None), ("", 3))),
        ("map<string, int>", "{}", ()),
        ("map<string, int>", "null", None),
        ("map<string, int>", '{"a":1,"b":2,"\\u0061":3}', (("a", 3), ("b", 2))),
        ("map<boolean, int>", '{"true":1,"false":2}', ((True, 1), (False, 2))),
        ("map<bigint, int>", '{"-9223372036854775808":1}', ((-(2**63), 1),)),
        ("map<decimal(3,1), int>", '{"1":1,"1.0":2,"1e0":3}', ((Decimal("1.0"), 3),)),
        ("map<float, int>", '{"0.1":1,"0.10000000001":2}', ((0.10000000149011612, 2),)),
        ("map<float, int>", '{"3.4028235E38":1,"3.4028234663852886e38":2}', ((3.4028234663852886e38, 2),)),
        ("map<double, int>", '{"-0.0":1,"0":2}', ((0.0, 2),)),
        ("map<timestamp, int>", '{"1970-01-01T00:00:00":1,"1970-01-01T01:00:00+01:00":2}', ((0, 2),)),
        ("map<timestamp_ntz, int>", '{"1970-01-01T00:00:00.000001":1}', ((1, 1),)),
        ("map<binary, map<date, int>>", '{"AP8=":{"1970-01-02":1}}', ((b"\x00\xff", ((1, 1),)),)),
        ("timestamp_ntz", '"1970-01-01T00:00:01.5"', 1_500_000),
    ],
)
def test_keys_of_maps_are_texts_of_their_type_and_the_last_of_equal_ones_counts(
    name: str, text: str, value: object
) -> None:
    assert read(derive_type(name), text) == (value, "")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("decimal(5,2)", Decimal("12.5"), "12.50"),
        ("decimal(5,2)", None, "null"),
        ("decimal(38,38)", Decimal("-1E-38"), "-0.00000000000000000000000000000000000001"),
        ("array<decimal(5,2)>", (Decimal("1.00"), None), "[1.00,null]"),
        ("array<decimal(5,2)>", (), "[]"),
        ("array<decimal(5,2)>", None, "null"),
        ("struct<d: decimal(3,0), t: timestamp_ntz>", (Decimal(7), 0), '{"d":7,"t":"1970-01-01T00:00:00"}'),
        ("struct<d: decimal(3,0)>", None, "null"),
        ('struct<`q"}`: decimal(3,0)>', (None,), '{"q\\"}":null}'),
        ("timestamp_ntz", 1_000, '"1970-01-01T00:00:00.001"'),
        ("map<string, string>", (('a"}', '}"'), ("", None)), '{"a\\"}":"}\\"","":null}'),
        ("map<string, string>", (), "{}"),
        ("map<string, string>", None, "null"),
        ("map<timestamp, binary>", ((0, b"\xff"),), '{"1970-01-01T00:00:00Z":"/w=="}'),
        ("map<boolean, map<int, decimal(3,1)>>", ((True, ((1, Decimal("1.5")),)),), '{"true":{"1":1.5}}'),
        ("array<map<date, boolean>>", (((0, True),), None), '[{"1970-01-01":true},null]'),
    ],
)
def test_decimals_are_numbers_and_maps_are_objects(name: str, value: object, text: str) -> None:
    assert written(derive_type(name), value) == text


VALUES = ("1", "1.5", "true", '"x"', "[]", "{}", '[["x"]]', '{"x":[true]}', '{"x":"y"}', "1e400")


@pytest.mark.parametrize(
    "name",
    [
        *SCALARS,
        "timestamp",
        "timestamp_ntz",
        "decimal(5,2)",
        "array<double>",
        "map<string, binary>",
        "struct<x: double>",
    ],
)
def test_reasons_have_the_words_of_json(name: str) -> None:
    _, failures = JsonDecoder([("v", derive_type(name))]).decode_values([b'{"v":%b}' % one.encode() for one in VALUES])
    assert failures
    for failure in failures:
        what = failure.message.partition(" - at ")[0]
        assert not re.search(r"`[^`]*\b(str|int|bool|float|bytes|dict|list|datetime|decimal(?![(]))\b[^`]*`", what)


@pytest.mark.parametrize("fraction", ["9999999", "999999999", "9999994", "0000009", "1234565"])
@pytest.mark.parametrize("second", ["2026-12-31T23:59:59", "1969-12-31T23:59:59", "1970-01-01T00:00:00"])
@pytest.mark.parametrize("name", ["timestamp", "timestamp_ntz"])
def test_digits_of_a_second_beyond_the_sixth_are_cut_off_as_a_cast_does(name: str, second: str, fraction: str) -> None:
    kind, zone = derive_type(name), "Z" if name == "timestamp" else ""
    text = f"{second}.{fraction}{zone}"
    expected = timestamp_of_text(text)
    assert expected == timestamp_of_text(f"{second}.{fraction[:6]}{zone}")
    assert read(kind, f'"{text}"') == (expected, "")
    assert read(derive_type(f"array<{name}>"), f'["{text}"]') == ((expected,), "")
    assert read(derive_type(f"struct<at: {name}>"), f'{{"at":"{text}"}}') == ((expected,), "")
    assert read(derive_type(f"map<string, {name}>"), f'{{"k":"{text}"}}') == ((("k", expected),), "")
    assert read(derive_type(f"map<{name}, int>"), f'{{"{text}":1}}') == (((expected, 1),), "")


def test_the_last_microsecond_of_the_calendar_may_have_more_digits() -> None:
    assert read(derive_type("timestamp_ntz"), '"9999-12-31T23:59:59.9999999"')[1] == ""
