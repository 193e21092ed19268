"""What values of events in Avro mean, and where those that no column holds are said to be."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tests.formats.debezium_avro.any_changes import CONNECT, TIME, unscaled
from tests.formats.debezium_avro.events import (
    AT,
    KINDS,
    MICROS,
    MILLIS,
    NANOS,
    NUMBER,
    OWN,
    UTC,
    ZONED,
    decode,
    envelope,
    event_of,
    named,
    reasons,
    value_of,
    why,
)
from tidegate.formats.kinds.avro.encoder import zigzag
from tidegate.formats.kinds.debezium.envelope import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
)
from tidegate.formats.schemas import (
    FormatOptions,
)

NOT_THERE = "INCOMPLETE_CHANGE: the database's log does not contain the value (with `REPLICA IDENTITY FULL` it does)"


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("string", "string", UNAVAILABLE),
        ("string", "string", UNAVAILABLE_BASE64),
        ("bytes", "binary", UNAVAILABLE.encode()),
        ("string", "decimal(10,2)", UNAVAILABLE),
        ({"type": "array", "items": "string"}, "array<string>", ["a", UNAVAILABLE]),
        ({"type": "array", "items": ["null", "bytes"]}, "array<binary>", [None, UNAVAILABLE.encode()]),
        ({"type": "map", "values": "string"}, "map<string, string>", {"k": UNAVAILABLE}),
        ({"type": "array", "items": "int"}, "array<int>", UNAVAILABLE_NUMBERS),
        ({"type": "array", "items": ["null", "long"]}, "array<bigint>", UNAVAILABLE_NUMBERS),
        ({"type": "array", "items": named("int", f"{TIME}Date")}, "array<date>", UNAVAILABLE_NUMBERS),
        ({"type": "array", "items": "string"}, "array<string>", [UNAVAILABLE_UUID]),
    ],
)
def test_a_value_that_the_log_does_not_have_is_no_value(written: Any, kind: str, value: Any) -> None:
    assert why(written, kind, value) == f"{NOT_THERE} - at `after.v`"
    schema = envelope({"id": "long", "v": written})
    found = decode([event_of("u", None, {"id": 1, "v": value}, schema)], {"id": "bigint"}, schema=schema)
    assert found.frame["id"].to_list() == [1], "nobody declared it"
    update = event_of("u", {"id": 1, "v": value}, {"id": 1, "v": None}, schema)
    assert reasons(decode([update], {"v": kind}, schema=schema)) == []
    assert reasons(decode([update], {"v": kind}, schema=schema, options=KINDS)) == [f"{NOT_THERE} - at `before.v`"]


def test_a_placeholder_in_several_blocks_of_an_array_is_none_either() -> None:
    schema = envelope({"v": {"type": "array", "items": "int"}})
    whole = event_of("u", None, {"v": UNAVAILABLE_NUMBERS}, schema)
    first, *rest = map(zigzag, UNAVAILABLE_NUMBERS)
    parted = zigzag(1) + first + zigzag(len(rest)) + b"".join(rest)
    split = whole.replace(zigzag(1 + len(rest)) + first + b"".join(rest), parted)
    assert len(split) == len(whole) + 1
    assert reasons(decode([split], {"v": "array<int>"}, schema=schema)) == [f"{NOT_THERE} - at `after.v`"]


def test_a_value_that_contains_the_placeholder_is_one() -> None:
    assert value_of("string", "string", f"see {UNAVAILABLE}") == f"see {UNAVAILABLE}"
    assert value_of("string", "string", UNAVAILABLE_UUID) == UNAVAILABLE_UUID, "only arrays have this one"
    numbers, texts = {"type": "array", "items": "int"}, {"type": "array", "items": "string"}
    assert value_of(numbers, "array<int>", [*UNAVAILABLE_NUMBERS, 1]) == [*UNAVAILABLE_NUMBERS, 1]
    assert value_of(texts, "array<string>", [UNAVAILABLE_UUID, "a"]) == [UNAVAILABLE_UUID, "a"]


HUNDREDS = {**NUMBER, "scale": -2, "connect.parameters": {"scale": "-2"}}
UNNAMED = {name: value for name, value in NUMBER.items() if name not in ("logicalType", "scale", "precision")}


@pytest.mark.parametrize(
    ("written", "kind", "value", "expected"),
    [
        (MICROS, "timestamp_ntz", 1_728_000_000_001_000, AT),
        (MICROS, "timestamp", 1_728_000_000_001_000, UTC),
        (MICROS, "bigint", 5, 5),
        (MILLIS, "timestamp_ntz", 1_728_000_000_001, AT),
        (NANOS, "timestamp_ntz", 1_728_000_000_001_000_999, AT),
        (NANOS, "timestamp_ntz", -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001 - without zone
        (named("long", f"{CONNECT}Timestamp", logicalType="timestamp-millis"), "timestamp_ntz", 1_728_000_000_001, AT),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp", 1_728_000_000_001_000, UTC),
        ({"type": "array", "items": MICROS}, "array<timestamp>", [1_728_000_000_001_000], [UTC]),
        (ZONED, "timestamp", "2024-10-04T02:00:00.0010009+02:00", UTC),
        (ZONED, "timestamp_ntz", "2024-10-04T00:00:00.001000999Z", AT),
        (ZONED, "timestamp", "2024-10-04T02:00:00.001+02:00", UTC),
        (ZONED, "string", "infinity", "infinity"),
        ("string", "timestamp", "2024-10-04T00:00:00.001Z", UTC),
        (named("int", f"{TIME}Date"), "date", -1, dt.date(1969, 12, 31)),
        (named("int", f"{TIME}Date"), "int", -1, -1),
        ("int", "date", 1, dt.date(1970, 1, 2)),
        ({"type": "int", "connect.type": "int16"}, "smallint", 7, 7),
        (named("int", f"{CONNECT}Time", logicalType="time-millis"), "int", 86_400_000, 86_400_000),
        (NUMBER, "decimal(38,2)", unscaled(-1234), Decimal("-12.34")),
        (NUMBER, "decimal(5,3)", unscaled(-1234), Decimal("-12.340")),
        (UNNAMED, "decimal(5,2)", unscaled(-1234), Decimal("-12.34")),
        (NUMBER, "decimal(38,38)", unscaled(0), Decimal(0)),
        (NUMBER, "decimal(5,1)", unscaled(-1230), Decimal("-12.3")),
        (NUMBER, "decimal(38,2)", (5).to_bytes(20, "big"), Decimal("0.05")),
        (HUNDREDS, "decimal(10,0)", unscaled(3), Decimal(300)),
        (OWN, "decimal(10,2)", {"scale": 1, "value": unscaled(125)}, Decimal("12.50")),
        (OWN, "decimal(10,2)", {"scale": -2, "value": unscaled(3)}, Decimal(300)),
        (OWN, "struct<scale: int, value: binary>", {"scale": 1, "value": b"}"}, {"scale": 1, "value": b"}"}),
        ("string", "decimal(10,2)", "1e2", Decimal(100)),
        ("double", "decimal(10,2)", 12.5, Decimal("12.50")),
        ("long", "decimal(20,0)", -(2**63), Decimal(-(2**63))),
        ("float", "decimal(10,2)", 0.1, None),
        ("bytes", "string", "ä".encode(), "ä"),
        ("string", "binary", "ä", "ä".encode()),
        (["int", "string"], "struct<member0: int, member1: string>", "x", {"member0": None, "member1": "x"}),
    ],
)
def test_what_values_mean_is_said_by_the_schema(written: Any, kind: str, value: Any, expected: Any) -> None:
    found = value_of_union(written, kind, value) if isinstance(written, list) else value_of(written, kind, value)
    assert found == (Decimal("0.10") if expected is None else expected)


def value_of_union(written: list[Any], kind: str, value: Any) -> Any:
    schema = envelope({"v": "int"})
    schema["fields"][0]["type"][1]["fields"][0]["type"] = ["null", *written]
    found = decode([event_of("c", None, {"v": value}, schema)], {"v": kind}, schema=schema)
    assert reasons(found) == []
    return found.frame["v"].to_list()[0]


OUT = "OUT_OF_RANGE: "
LATE = "OUT_OF_RANGE: a timestamp in UTC is before the year 1 or after 9999"
NO_MOMENT = f"{OUT}{2**62} is not a timestamp of the years 1 to 9999"
NO_TEXT = "WRONG_TYPE: Invalid RFC3339 encoded datetime, got the text 'infinity'"
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "m", "type": ["null", "int"], "default": None},
        {"name": "n", "type": NUMBER}]}  # fmt: skip
LIST, MAP = {"type": "array", "items": ["null", MICROS]}, {"type": "map", "values": MICROS}


@pytest.mark.parametrize(
    ("written", "kind", "value", "expected", "inside"),
    [
        (ZONED, "timestamp", "infinity", NO_TEXT, ""),
        (ZONED, "timestamp", "9999-12-31T23:59:59-01:00", LATE, ""),
        (MILLIS, "timestamp_ntz", 2**62, NO_MOMENT, ""),
        (MICROS, "timestamp", 2**62, NO_MOMENT, ""),
        (LIST, "array<timestamp>", [None, 2**62], NO_MOMENT, "[1]"),
        (MAP, "map<string, timestamp>", {"k": 2**62}, NO_MOMENT, "[...]"),
        (NUMBER, "decimal(5,1)", unscaled(1234), f"{OUT}12.34 does not fit into decimal(5,1)", ""),
        (NUMBER, "decimal(5,1)", unscaled(999_999), f"{OUT}9999.99 does not fit into decimal(5,1)", ""),
        (PAIR, "struct<n: decimal(5,1)>", {"n": unscaled(1)}, f"{OUT}0.01 does not fit into decimal(5,1)", ".n"),
        (NUMBER, "decimal(5,2)", unscaled(10**5), f"{OUT}1000.00 does not fit into decimal(5,2)", ""),
        (NUMBER, "decimal(5,2)", b"\x7f" * 5000, f"{OUT}a number of 5000 bytes does not fit into decimal(5,2)", ""),
        (
            OWN,
            "decimal(5,2)",
            {"scale": 65, "value": b"1"},
            "WRONG_TYPE: Expected `decimal(5,2)`, got a number of scale 65",
            "",
        ),
        ("string", "decimal(5,2)", "NaN", "WRONG_TYPE: Expected `decimal(5,2)`, got the text 'NaN'", ""),
        ("int", "tinyint", 128, f"{OUT}128 does not fit into tinyint, which is from -128 to 127", ""),
        ("bytes", "string", b"\xff", "NOT_UTF8: the bytes are not valid UTF-8", ""),
    ],
)
def test_what_a_column_does_not_hold_is_bad_with_its_place(
    written: Any, kind: str, value: Any, expected: str, inside: str
) -> None:
    assert why(written, kind, value) == f"{expected} - at `after.v{inside}`"


NOT_LONG = "`after.v`: the writer's type is long, which cannot become"


@pytest.mark.parametrize(
    ("written", "kind", "expected"),
    [
        ("long", "int", f"{NOT_LONG} int"),
        (
            "long",
            "timestamp",
            f"{NOT_LONG} timestamp: its unit is unknown; `written_as` can set it",
        ),
        (
            named("long", f"{TIME}MicroTime"),
            "timestamp",
            f"`after.v`: the writer's type is {TIME}MicroTime, which cannot become timestamp",
        ),
        (named("int", f"{TIME}Time"), "date", f"`after.v`: the writer's type is {TIME}Time, which cannot become date"),
        (NUMBER, "binary", "`after.v`: the writer's type is decimal(64,2), which cannot become binary"),
        ("boolean", "decimal(5,2)", "`after.v`: the writer's type is boolean, which cannot become decimal(5,2)"),
        ("string", "struct<a: int>", "`after.v`: the writer's type is string, which cannot become struct<a: int>"),
        (
            {"type": "array", "items": "string"},
            "array<int>",
            "`after.v[]`: the writer's type is string, which cannot become int",
        ),
        (OWN, "struct<scale: string>", "`after.v.scale`: the writer's type is int, which cannot become string"),
    ],
)  # fmt: skip
def test_a_type_that_is_none_of_the_column_is_named_with_its_place(written: Any, kind: str, expected: str) -> None:
    assert why(written, kind, None) == f"INCOMPATIBLE_SCHEMA: schema 7 cannot be read: at {expected}"


@pytest.mark.parametrize(
    ("written", "options"),
    [
        ("long", FormatOptions(timestamps="ms")),
        ("long", FormatOptions(timestamps_of=(("v", "ms"),))),
        (MILLIS, FormatOptions(timestamps="us")),
    ],
)
def test_what_nothing_says_is_said_by_the_source(written: Any, options: FormatOptions) -> None:
    assert value_of(written, "timestamp_ntz", 1_728_000_000_001, options) == AT
