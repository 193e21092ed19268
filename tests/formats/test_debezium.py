"""Change events of Debezium to rows."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from tests.formats.batches import messages_of
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.kinds.debezium import FORMAT
from tidegate.formats.kinds.debezium.envelope import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
)
from tidegate.formats.row_kinds import BEFORE
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas

TABLE = {"id": BIGINT, "name": STRING}
SCHEMA = {"type": "struct", "fields": [{"field": "op", "type": "string"}], "name": "shop.customers.Envelope"}


def decode(
    values: Sequence[bytes | None], table: dict[str, DataType], *read: str, options: FormatOptions = NO_OPTIONS
) -> Decoded:
    declared = tuple(FORMAT.read_columns(table).items())
    output = tuple(one for one in declared if one[0] in read) if read else declared
    found = FORMAT.decoder(declared, output, options, KnownSchemas()).decode(messages_of(values))
    assert isinstance(found, Decoded)
    assert dict(found.frame.schema) == {name: polars_type(kind) for name, kind in output}
    return found


def text(event: Any, *, wrapped: bool = False) -> bytes:
    return json.dumps({"schema": SCHEMA, "payload": event} if wrapped else event).encode()


def insert(row: Any) -> bytes:
    return text({"op": "c", "before": None, "after": row})


def reason(value: bytes | None, table: dict[str, DataType] = TABLE, options: FormatOptions = NO_OPTIONS) -> str:
    """Why a record among good ones is bad."""
    good = insert({"id": 7, next(iter(table)): None})
    found = decode([good, value, good], table, options=options)
    assert found.frame["_op"].to_list() == ["c", "c"]
    (failure,) = found.failures
    assert failure.row == 1
    return str(failure)


def value_of(kind: str, value: Any, options: FormatOptions = NO_OPTIONS) -> Any:
    found = decode([insert({"v": value})], {"v": derive_type(kind)}, options=options)
    assert list(found.failures) == []
    return found.frame["v"][0]


def why(kind: str, value: Any, options: FormatOptions = NO_OPTIONS) -> str:
    return reason(insert({"v": value}), {"v": derive_type(kind)}, options)


@pytest.mark.parametrize("wrapped", [False, True])
def test_each_event_is_a_row_and_says_whether_it_deletes(wrapped: bool) -> None:
    old, new = {"id": 1, "name": "a", "more": 1}, {"id": 1, "name": "b"}
    events = [
        {"op": "r", "after": old, "source": {"snapshot": "true"}, "ts_ms": 1, "transaction": None},
        {"op": "c", "before": None, "after": old},
        {"op": "u", "before": old, "after": new},
        {"op": "u", "before": None, "after": new},
        {"op": "d", "before": {"id": 1}, "after": None},
        {"op": "d", "before": old},
    ]
    found = decode([text(event, wrapped=wrapped) for event in events], TABLE)
    assert list(found.failures) == []
    assert found.frame.rows() == [
        (1, "a", False, "r"),
        (1, "a", False, "c"),
        (1, "b", False, "u"),
        (1, "b", False, "u"),
        (1, None, True, "d"),
        (1, "a", True, "d"),
    ]


def test_the_columns_that_are_read_are_made_and_all_are_checked() -> None:
    values = [insert({"id": 1}), insert({"id": 2, "name": 5}), text({"op": "d", "before": {"id": 3}})]
    for read, rows in ((("_deleted",), [(False,), (True,)]), (("_op", "id"), [(1, "c"), (3, "d")])):
        found = decode(values, TABLE, *read)
        assert found.frame.rows() == rows
        assert [one.row for one in found.failures] == [1]


def test_a_table_that_has_columns_of_these_names_does_not_disturb() -> None:
    assert decode([insert({"id": 1, "_deleted": "x", "_op": 9})], TABLE).frame.rows() == [(1, None, False, "c")]


def test_the_added_columns_cannot_be_declared() -> None:
    with pytest.raises(FormatRefusal, match="already has a column `_op`"):
        FORMAT.read_columns({"id": BIGINT, "_op": STRING})
    with pytest.raises(FormatRefusal, match="read only"):
        FORMAT.written_columns(TABLE)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"op": "t"}, "UNSUPPORTED_CHANGE: the event `t` truncates the table and has no row - at `$.op`"),
        ({"op": "m"}, "UNSUPPORTED_CHANGE: the event `m` is a logical message and has no row - at `$.op`"),
        ({"op": "x", "after": {}}, "UNSUPPORTED_CHANGE: the event `x` is unknown and has no row - at `$.op`"),
        ({"id": 1, "name": "a"}, "INCOMPLETE_CHANGE: the record has no `op`, so it is not a change event - at `$`"),
        ({"op": None, "after": {}}, "INCOMPLETE_CHANGE: the record has no `op`, so it is not a change event - at `$`"),
        (
            {"payload": {"id": 1}},
            "INCOMPLETE_CHANGE: the record has no `op`, so it is not a change event - at `$.payload`",
        ),
        ({"payload": None}, "INCOMPLETE_CHANGE: `payload` is null - at `$.payload`"),
        ({"op": "c", "payload": {}}, "INCOMPLETE_CHANGE: the record has both `op` and `payload` - at `$`"),
        ({"op": "u", "before": {}}, "INCOMPLETE_CHANGE: the event `u` has no row in `after` - at `$.after`"),
        (
            {"payload": {"op": "d", "before": None}},
            "INCOMPLETE_CHANGE: the event `d` has no row in `before` - at `$.payload.before`",
        ),
        ({"op": "d", "before": {}, "after": {}}, "INCOMPLETE_CHANGE: a delete has a row in `after` - at `$.after`"),
        ({"op": 5}, "WRONG_TYPE: Expected `string | null`, got `integer` - at `$.op`"),
        ({"payload": {"op": 5}}, "WRONG_TYPE: Expected `string | null`, got `integer` - at `$.payload.op`"),
        ({"payload": [1]}, "WRONG_TYPE: Expected `object`, got `array` - at `$.payload`"),
        ([1], "WRONG_TYPE: Expected `object`, got `array`"),
        ({"op": "c", "after": [1]}, "WRONG_TYPE: Expected `object`, got `array` - at `$.after`"),
        ({"op": "c", "after": UNAVAILABLE}, "WRONG_TYPE: Expected `object`, got `string` - at `$.after`"),
        ({"op": "c", "after": {"id": "1"}}, "WRONG_TYPE: Expected `integer | null`, got `string` - at `$.after.id`"),
        (
            {"payload": {"op": "d", "before": {"name": 1}}},
            "WRONG_TYPE: Expected `string | null`, got `integer` - at `$.payload.before.name`",
        ),
        (
            {"op": "c", "after": {"id": 2**63}},
            "OUT_OF_RANGE: Expected `integer` <= 9223372036854775807 - at `$.after.id`",
        ),
    ],
)
def test_what_is_no_change_of_a_row_is_bad(event: Any, expected: str) -> None:
    assert reason(text(event)) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NULL_VALUE"),
        (b"", "EMPTY_VALUE"),
        (b"{", "MALFORMED_JSON"),
        (b'{"op":"c","after":{"id":1}} x', "MALFORMED_JSON"),
        (b'{"op":"c","after":{"id":1}', "MALFORMED_JSON"),
        (b'{"op":"c","after":{"id":1,"name":"\xff"}}', "NOT_UTF8"),
        (b'{"op":"c","before":{,"after":{"id":1}}', "MALFORMED_JSON"),
        (b'{"op":"c","after":' + b"[" * 100_000, "TOO_DEEP"),
    ],
)
def test_broken_values(value: bytes | None, kind: str) -> None:
    assert reason(value).startswith(f"{kind}: ")


def test_every_cut_of_a_record_is_bad() -> None:
    whole = text({"op": "u", "before": {"id": 1}, "after": {"id": 1, "name": "é"}}, wrapped=True)
    found = decode([whole[:end] for end in range(len(whole))], TABLE)
    assert [one.row for one in found.failures] == list(range(len(whole)))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", UNAVAILABLE),
        ("binary", UNAVAILABLE_BASE64),
        ("array<string>", ["a", UNAVAILABLE]),
        ("map<string, string>", {"k": UNAVAILABLE}),
        ("array<int>", UNAVAILABLE_NUMBERS),
        ("array<bigint>", UNAVAILABLE_NUMBERS),
        ("array<date>", UNAVAILABLE_NUMBERS),
        ("array<string>", [UNAVAILABLE_UUID]),
        ("array<binary>", [UNAVAILABLE_BASE64]),
    ],
)
def test_a_value_that_the_log_does_not_have_is_no_value(kind: str, value: Any) -> None:
    found = why(kind, value)
    assert found == (
        "INCOMPLETE_CHANGE: the database's log does not contain the value (with `REPLICA IDENTITY FULL` it does) - at "
        "`$.after.v`"
    )
    assert decode([insert({"id": 1, "other": value})], TABLE).frame["id"].to_list() == [1], "nobody declared it"


def test_a_value_that_contains_the_placeholder_is_one() -> None:
    assert value_of("string", f"see {UNAVAILABLE}") == f"see {UNAVAILABLE}"
    assert value_of("string", UNAVAILABLE_UUID) == UNAVAILABLE_UUID, "only arrays have this one"
    assert value_of("array<int>", [*UNAVAILABLE_NUMBERS, 1]).to_list() == [*UNAVAILABLE_NUMBERS, 1]
    assert value_of("array<string>", [UNAVAILABLE_UUID, "a"]).to_list() == [UNAVAILABLE_UUID, "a"]


BOTH = "WRONG_TYPE: Expected `decimal(12,2)`, got the text"
UNKNOWN = "but the record has no schema that tells a number from base64: see `written_as`"
TEXT, BASE64 = FormatOptions(decimals="text"), FormatOptions(decimals="base64")
MS, US = FormatOptions(timestamps="ms"), FormatOptions(timestamps="us")


def unscaled(number: int) -> str:
    """As Java's `BigInteger.toByteArray`, in base64."""
    size = 1
    while not -(1 << (8 * size - 1)) <= number < 1 << (8 * size - 1):
        size += 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        (12.5, NO_OPTIONS, "12.50"),
        (12, NO_OPTIONS, "12.00"),
        ("12.50", TEXT, "12.50"),
        ("-1234", TEXT, "-1234.00"),
        ("12", TEXT, "12.00"),
        ("1234", TEXT, "1234.00"),
        ("1234", BASE64, "-26588.24"),
        ("+123", TEXT, "123.00"),
        ("+123", BASE64, "-3036.89"),
        ("BNI=", BASE64, "12.34"),
        ("+y4=", BASE64, "-12.34"),
        ({"scale": 1, "value": "BNI="}, NO_OPTIONS, "123.40"),
        ({"scale": 0, "value": "AA=="}, TEXT, "0.00"),
    ],
)
def test_decimals_as_debezium_writes_them(value: Any, options: FormatOptions, expected: str) -> None:
    assert value_of("decimal(12,2)", value, options) == Decimal(expected)


@pytest.mark.parametrize(
    ("value", "options", "expected"),
    [
        *(
            (text, options, f"{BOTH} '{text}', {UNKNOWN}")
            for text in ("1234", "12", "12.5", "Infinity", "BNI=")
            for options in (NO_OPTIONS, FormatOptions(decimals="schema"))
        ),
        ("Infinity", TEXT, "WRONG_TYPE: Expected `decimal(12,2)`, got the text 'Infinity'"),
        ("BNI=", TEXT, "WRONG_TYPE: Expected `decimal(12,2)`, got the text 'BNI='"),
        ("12.50", BASE64, "WRONG_TYPE: Expected `decimal(12,2)`, got the text '12.50'"),
        ("AATS", BASE64, "WRONG_TYPE: Expected `decimal(12,2)`, got the text 'AATS'"),  # not the least bytes
        ("BNJ=", BASE64, "WRONG_TYPE: Expected `decimal(12,2)`, got the text 'BNJ='"),  # bits after the end
        ("", BASE64, "WRONG_TYPE: Expected `decimal(12,2)`, got the text ''"),
        ("NaN", TEXT, "WRONG_TYPE: Expected `decimal(12,2)`, got the text 'NaN'"),
        (True, NO_OPTIONS, "WRONG_TYPE: Expected `decimal(12,2) | null`, got `boolean`"),
        ({"scale": 1}, NO_OPTIONS, "WRONG_TYPE: Expected `decimal(12,2) | null`, got `object`"),
        ({"scale": 1, "value": "12"}, NO_OPTIONS, "WRONG_TYPE: Expected `decimal(12,2)`, got '12' of scale 1"),
        ({"scale": 3, "value": "BNI="}, NO_OPTIONS, "OUT_OF_RANGE: 1.234 does not fit into decimal(12,2)"),
        (1.005, NO_OPTIONS, "OUT_OF_RANGE: 1.005 does not fit into decimal(12,2)"),
        (unscaled(10**12), BASE64, "OUT_OF_RANGE: 10000000000.00 does not fit into decimal(12,2)"),
    ],
)
def test_what_is_no_decimal_or_could_be_two(value: Any, options: FormatOptions, expected: str) -> None:
    assert why("decimal(12,2)", value, options) == f"{expected} - at `$.after.v`"


UTC = dt.UTC
NS = FormatOptions(timestamps="ns")
NINES = dt.datetime(2026, 12, 31, 23, 59, 59, 999_999, UTC)
OUTSIDE = "OUT_OF_RANGE: Number out of range"
EARLY = "a timestamp in UTC is before the year 1 or after 9999"
NO_ZONE = "Expected `timestamp` with no timezone component"
V_IN_MS = FormatOptions(timestamps_of=(("v", "ms"),))
OTHER_IN_US = FormatOptions(timestamps_of=(("w", "us"),))
WHOLE = "Expected `timestamp`, got `integer`: set its unit with `written_as`"


@pytest.mark.parametrize(
    ("kind", "value", "options", "expected"),
    [
        ("date", 20_000, NO_OPTIONS, dt.date(2024, 10, 4)),
        ("date", -1, NO_OPTIONS, dt.date(1969, 12, 31)),
        ("date", "2024-10-04Z", NO_OPTIONS, dt.date(2024, 10, 4)),
        ("date", "2024-10-04", NO_OPTIONS, dt.date(2024, 10, 4)),
        ("timestamp", "2024-10-04T02:00:00.5+02:00", NO_OPTIONS, dt.datetime(2024, 10, 4, 0, 0, 0, 500_000, UTC)),
        ("timestamp", "2024-10-04T00:00:00Z", MS, dt.datetime(2024, 10, 4, tzinfo=UTC)),
        ("timestamp", 1_728_000_000_001, MS, dt.datetime(2024, 10, 4, 0, 0, 0, 1000, UTC)),
        ("timestamp", 1_728_000_000_000_001, US, dt.datetime(2024, 10, 4, 0, 0, 0, 1, UTC)),
        ("timestamp_ntz", -1, MS, "1969-12-31T23:59:59.999000"),
        ("timestamp_ntz", "2024-10-04T00:00:00", US, "2024-10-04T00:00:00"),
        ("timestamp_ntz", "2024-10-04T00:00:00.5Z", NO_OPTIONS, "2024-10-04T00:00:00.500000"),
        ("timestamp_ntz", "2024-10-04T00:00:00Z", US, "2024-10-04T00:00:00"),
        ("timestamp", "2026-12-31T23:59:59.9999999Z", NO_OPTIONS, NINES),
        ("timestamp", "2026-12-31T23:59:59.9999999Z", NS, NINES),
        ("timestamp", 1_798_761_599_999_999_999, NS, NINES),
        ("timestamp", "1969-12-31T23:59:59.9999999Z", NS, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("timestamp", -1, NS, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("timestamp_ntz", "2026-12-31T23:59:59.9999999", NO_OPTIONS, "2026-12-31T23:59:59.999999"),
        ("timestamp_ntz", "2026-12-31T23:59:59.999999999Z", NS, "2026-12-31T23:59:59.999999"),
        ("timestamp", 1_728_000_000_001, V_IN_MS, dt.datetime(2024, 10, 4, 0, 0, 0, 1000, UTC)),
    ],
)
def test_times_as_debezium_writes_them(kind: str, value: Any, options: FormatOptions, expected: Any) -> None:
    found = value_of(kind, value, options)
    assert (found.isoformat() if kind == "timestamp_ntz" else found) == expected


@pytest.mark.parametrize(
    ("kind", "value", "options", "expected"),
    [
        ("timestamp", 1, NO_OPTIONS, "WRONG_TYPE: " + WHOLE),
        ("timestamp", 10**15, MS, f"{OUTSIDE}: {10**15} is not a timestamp of the years 1 to 9999"),
        ("timestamp", 10**30, US, f"{OUTSIDE}: {10**30} is not a timestamp of the years 1 to 9999"),
        ("timestamp", 10**300, US, f"{OUTSIDE}: 1{'0' * 39}... is not a timestamp of the years 1 to 9999"),
        ("timestamp", True, MS, "WRONG_TYPE: Expected `timestamp`, got `boolean`"),
        ("timestamp", 1.5, MS, "WRONG_TYPE: Expected `timestamp`, got `number`"),
        ("timestamp_ntz", "2024-10-04T00:00:00+02:00", US, f"WRONG_TYPE: {NO_ZONE}"),
        ("timestamp_ntz", "2024-10-04T00:00:00-02:00", NO_OPTIONS, f"WRONG_TYPE: {NO_ZONE}"),
        ("timestamp_ntz", 1, NO_OPTIONS, "WRONG_TYPE: " + WHOLE),
        ("timestamp", 1, OTHER_IN_US, "WRONG_TYPE: " + WHOLE),
        ("timestamp", "0001-01-01T00:00:00+01:00", MS, f"OUT_OF_RANGE: {EARLY}"),
        ("date", 10**7, NO_OPTIONS, f"{OUTSIDE}: {10**7} days since 1970 are not a date from 1 to 9999"),
        ("date", 10**300, NO_OPTIONS, f"{OUTSIDE}: 1{'0' * 39}... days since 1970 are not a date from 1 to 9999"),
        ("date", "2024-10-04T00:00:00", NO_OPTIONS, "WRONG_TYPE: Invalid RFC3339 encoded date"),
        ("date", True, NO_OPTIONS, "WRONG_TYPE: Expected `date`, got `boolean`"),
    ],
)  # fmt: skip
def test_what_is_no_time(kind: str, value: Any, options: FormatOptions, expected: str) -> None:
    assert why(kind, value, options) == f"{expected} - at `$.after.v`"


def test_columns_count_in_units_of_their_own() -> None:
    table = {"ms": derive_type("timestamp"), "us": derive_type("array<timestamp_ntz>")}
    options = FormatOptions(timestamps_of=(("ms", "ms"), ("us", "us")))
    found = decode([insert({"ms": 1_728_000_000_001, "us": [1_728_000_000_000_001]})], table, options=options)
    assert list(found.failures) == []
    (row,) = found.frame.to_dicts()
    assert row["ms"] == dt.datetime(2024, 10, 4, 0, 0, 0, 1000, UTC)
    assert row["us"] == [dt.datetime(2024, 10, 4, 0, 0, 0, 1)]  # noqa: DTZ001 - without zone


@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_that_json_has_not_are_texts(kind: str) -> None:
    words = ["Infinity", "-Infinity", "NaN", None]
    found = decode([insert({"v": one}) for one in [1.5, *words, 2]], {"v": derive_type(kind)}, "v")
    assert list(found.failures) == []
    assert [str(one) for one in found.frame["v"]] == ["1.5", "inf", "-inf", "nan", "None", "2.0"]
    assert value_of("float", -3.4028235e38) == -3.4028234663852886e38
    nested = value_of(f"array<struct<x: {kind}>>", [{"x": "NaN"}, {"x": 1}]).to_list()
    assert str(nested) == "[{'x': nan}, {'x': 1.0}]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.5", "WRONG_TYPE: Expected `number | null`, got the text '1.5'"),
        ("inf", "WRONG_TYPE: Expected `number | null`, got the text 'inf'"),
        (True, "WRONG_TYPE: Expected `number | null`, got `boolean`"),
        ([], "WRONG_TYPE: Expected `number | null`, got `array`"),
    ],
)
def test_what_is_no_number(value: Any, expected: str) -> None:
    assert why("double", value) == f"{expected} - at `$.after.v`"


CONNECT = "org.apache.kafka.connect.data."


def with_schema(event: dict[str, Any], **columns: dict[str, Any]) -> bytes:
    """As `schemas.enable` has it; `columns` are the parts of the row's schema."""
    row = {"type": "struct", "fields": [{"field": name, **part} for name, part in columns.items()]}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": event}).encode()


MILLIS = {"type": "int64", "name": "io.debezium.time.Timestamp"}
MICROS = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
NANOS = {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}
OF_SCALE_2 = {"type": "bytes", "name": f"{CONNECT}Decimal", "parameters": {"scale": "2"}}
AT = dt.datetime(2024, 10, 4, 0, 0, 0, 1000)  # noqa: DTZ001 - without zone


@pytest.mark.parametrize("options", [NO_OPTIONS, FormatOptions(timestamps="ms", decimals="text")])
def test_a_schema_in_the_record_says_how_values_were_written(options: FormatOptions) -> None:
    """`written_as` is for records without."""
    table = {
        name: derive_type(kind)
        for name, kind in {
            "ms": "timestamp_ntz", "us": "timestamp_ntz", "ns": "timestamp_ntz", "connect": "timestamp_ntz",
            "many": "array<timestamp_ntz>", "paid": "decimal(12,3)", "word": "decimal(12,3)",
        }.items()
    }  # fmt: skip
    row = {"ms": 1_728_000_000_001, "us": 1_728_000_000_001_000, "ns": 1_728_000_000_001_000_999,
           "connect": 1_728_000_000_001, "many": [1_728_000_000_001_000], "paid": "1234", "word": "1234"}  # fmt: skip
    value = with_schema(
        {"op": "c", "before": None, "after": row}, ms=MILLIS, us=MICROS, ns=NANOS,
        connect={"type": "int64", "name": f"{CONNECT}Timestamp"}, many={"type": "array", "items": MICROS},
        paid=OF_SCALE_2, word={"type": "string"},
    )  # fmt: skip
    found = decode([value], table, *table, options=options)
    assert list(found.failures) == []
    assert found.frame.to_dicts() == [
        {
            "ms": AT,
            "us": AT,
            "ns": AT,
            "connect": AT,
            "many": [AT],
            "paid": Decimal("-26588.240"),
            "word": Decimal(1234),
        }
    ]


def test_records_of_several_schemas_stay_in_order() -> None:
    table = {"id": BIGINT, "at": derive_type("timestamp_ntz")}
    rows = [{"id": place, "at": 1_728_000_000_001 * (1 if place % 3 else 1000)} for place in range(200)]
    rows[7]["at"] = rows[50]["at"] = rows[198]["at"] = True
    values: list[bytes | None] = [
        with_schema({"op": "u", "before": row, "after": row}, at=MILLIS if place % 3 else MICROS)
        for place, row in enumerate(rows)
    ]
    values[9] = b"{"
    values[10] = text({"op": "u", "before": rows[10], "after": rows[10]}, wrapped=True)  # of no known unit
    declared = tuple(FORMAT.read_columns(table).items())
    decoder = FORMAT.decoder(declared, declared[:2], FormatOptions(row_kinds=True), KnownSchemas())
    found = decoder.decode(messages_of(values))
    assert isinstance(found, Decoded)
    assert [one.row for one in found.failures] == [7, 9, 10, 50, 198]
    good = [place for place in range(200) if place not in {7, 9, 10, 50, 198}]
    assert found.frame["id"].to_list() == found.frame[f"{BEFORE}id"].to_list() == good
    assert found.frame["at"].to_list() == found.frame[f"{BEFORE}at"].to_list() == [AT] * len(good)


def test_more_schemas_than_are_kept_are_read_all_the_same() -> None:
    values: list[bytes | None] = [
        with_schema({"op": "c", "after": {"v": 1_728_000_000_001}}, v={**MILLIS, "version": place % 70})
        for place in range(200)
    ]
    found = decode(values, {"v": derive_type("timestamp_ntz")}, "v")
    assert found.frame["v"].to_list() == [AT] * 200


@pytest.mark.parametrize("schema", ["x", 5, [], {"fields": 5}, {"fields": [{"field": "after", "fields": [{}]}]}, None])
def test_a_schema_that_is_none_says_nothing(schema: Any) -> None:
    value = json.dumps({"schema": schema, "payload": {"op": "c", "after": {"v": 1}}}).encode()
    assert reason(value, {"v": derive_type("timestamp"), "id": BIGINT}).endswith(f"{WHOLE} - at `$.payload.after.v`")


def test_values_inside_of_others_are_read_alike() -> None:
    for texts, options in ((["BNI=", None, "lg=="], BASE64), (["12.34", None, "-1.06"], TEXT)):
        found = [Decimal("12.34"), None, Decimal("-1.06")]
        assert value_of("array<decimal(4,2)>", texts, options).to_list() == found
    assert why("struct<d: decimal(12,2)>", {"d": "1"}) == f"{BOTH} '1', {UNKNOWN} - at `$.after.v.d`"
    assert value_of("struct<d: date, t: timestamp>", {"d": 1, "t": 1}, MS)["d"] == dt.date(1970, 1, 2)
    assert why("array<timestamp>", [1]).endswith("set its unit with `written_as` - at `$.after.v[0]`")


def test_generated_events_against_a_plain_loop() -> None:
    random_ = random.Random(7)
    table = {"id": BIGINT, "name": STRING, "paid": derive_type("decimal(18,3)"), "at": derive_type("timestamp")}
    values: list[bytes | None] = []
    rows: list[tuple[Any, ...]] = []
    bad: list[int] = []
    for place in range(3000):
        number = random_.choice([0, 1, -1]) * random_.randrange(10 ** random_.randrange(1, 19))
        micros = random_.randrange(-(10**15), 10**15)
        name = random_.choice([None, "", "é\n", "x" * 50, UNAVAILABLE + "?"])
        op = random_.choice("crudtm")
        row: dict[str, Any] = {"id": place, "name": name, "paid": unscaled(number), "at": micros, "extra": {"a": [1]}}
        wrong = random_.random() < 0.1
        if wrong:
            row[random_.choice(["id", "name", "paid", "at"])] = random_.choice([[], {}, True, [None]])
        event: dict[str, Any] = {"op": op, "ts_ms": 1, "source": {"db": "d"}}
        event |= {"before": row, "after": None} if op == "d" else {"before": {"id": "any"}, "after": row}
        values.append(text(event, wrapped=random_.random() < 0.5))
        if wrong or op in "tm":
            bad.append(place)
            continue
        at = dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(microseconds=micros)
        rows.append((place, row["name"], Decimal(number).scaleb(-3), at, op == "d", op))
    found = decode(values, table, options=FormatOptions(timestamps="us", decimals="base64"))
    assert [one.row for one in found.failures] == bad
    assert found.frame.rows() == rows
    assert len(rows) > 1500
    assert isinstance(found.frame, pl.DataFrame)
