"""MessagePack: written, read, read as the reference library reads it, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgpack
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.formats.batches import messages_of
from tests.formats.typed_values import TYPES, values_of
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, STRING, DataType, holds_kind, map_of, parts_of
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.contract import Columns, Decoded, FormatRefusal
from tidegate.formats.kinds.msgpack import FORMAT
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, UnknownFields

FAIL: Final = FormatOptions(unknown_fields=UnknownFields.FAIL)
KEEP: Final = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="rest")
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def has_moment_keys(kind: DataType) -> bool:
    return (kind.key is not None and kind.key.kind == "timestamp") or any(map(has_moment_keys, parts_of(kind)))


WRITABLE: Final = TYPES.filter(lambda kind: not has_moment_keys(kind))
TABLES: Final = st.lists(WRITABLE, min_size=1, max_size=3).flatmap(
    lambda kinds: st.tuples(st.just(kinds), st.lists(st.tuples(*map(values_of, kinds)), min_size=1, max_size=3))
)


def decode(columns: Columns, values: Iterable[bytes | None], options: FormatOptions = NO_OPTIONS) -> Decoded:
    decoded = FORMAT.decoder(columns, columns, options, KnownSchemas()).decode(messages_of(list(values)))
    assert isinstance(decoded, Decoded)
    return decoded


def encode(columns: Columns, frame: pl.DataFrame) -> list[bytes]:
    encoded = FORMAT.encoder(columns, NO_OPTIONS).encode(frame)
    assert not encoded.failures
    values: list[bytes] = encoded.columns["value"].to_list()
    return values


def read(name: str, value: Any) -> tuple[Any, str]:
    """The plain value of a field that the reference library has written, and the failure; one of them is empty."""
    frame, failures = decode((("v", derive_type(name)),), [msgpack.packb({"v": value}, datetime=True)])
    return ("", str(failures[0])) if failures else (plain_values(frame["v"])[0], "")


# -- both ways ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25 * DEPTH)
@given(TABLES)
def test_what_is_written_is_read_again_and_means_the_same_to_the_reference(
    table: tuple[list[DataType], list[tuple[Any, ...]]],
) -> None:
    kinds, rows = table
    columns = tuple((f"c{index}", kind) for index, kind in enumerate(kinds))
    series = [
        make_column(name, kind, values) for (name, kind), values in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    frame = pl.DataFrame(series)
    values = encode(columns, frame)
    decoded = decode(columns, values)
    assert not decoded.failures
    assert decoded.frame.schema == frame.schema
    assert [plain_values(column) for column in decoded.frame] == [plain_values(column) for column in frame]
    for value, row in zip(values, rows, strict=True):
        unpacked = msgpack.unpackb(value, timestamp=0, strict_map_key=False)
        assert list(unpacked) == [name for name, _ in columns]
        for (name, kind), plain in zip(columns, row, strict=True):
            assert_same(unpacked[name], plain, kind)


def assert_same(found: Any, plain: Any, kind: DataType) -> None:
    """That the reference has read what a plain value is written as."""
    if plain is None:
        assert found is None
        return
    match kind.kind:
        case "array":
            assert kind.element is not None
            for one, inner in zip(found, plain, strict=True):
                assert_same(one, inner, kind.element)
        case "struct":
            assert list(found) == [name for name, _ in kind.fields]
            for (name, below), inner in zip(kind.fields, plain, strict=True):
                assert_same(found[name], inner, below)
        case "map":
            assert kind.key is not None
            assert kind.element is not None
            for (key, one), (plain_key, inner) in zip(found.items(), plain, strict=True):
                assert_same(key, plain_key, kind.key)
                assert_same(one, inner, kind.element)
        case "timestamp":
            assert found.to_unix_nano() == plain * 1000
        case "decimal":
            assert found == f"{plain:f}"
        case "date" | "timestamp_ntz":
            assert isinstance(found, str)
        case _:
            assert (type(found), found) == (type(plain), plain)


def test_records_without_columns_are_empty_maps() -> None:
    assert encode((), pl.DataFrame(height=2)) == [b"\x80", b"\x80"]


def test_nan_and_infinities_stay_what_they_are() -> None:
    columns = (("f", derive_type("float")), ("d", derive_type("double")))
    frame = pl.DataFrame(
        {"f": [math.nan, math.inf, -math.inf], "d": [-math.inf, math.nan, 0.5]},
        schema={"f": pl.Float32, "d": pl.Float64},
    )
    assert decode(columns, encode(columns, frame)).frame.equals(frame, null_equal=True)


# -- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "plain"),
    [
        ("tinyint", -128, -128),
        ("bigint", 2**63 - 1, 2**63 - 1),
        ("double", 5, 5.0),
        ("float", 0.5, 0.5),
        ("decimal(10,2)", "5", Decimal("5.00")),
        ("decimal(10,2)", 5, Decimal("5.00")),
        ("decimal(10,2)", 5.1, Decimal("5.10")),
        ("string", "é", "é"),
        ("binary", b"\xff", b"\xff"),
        ("date", "1970-01-02", 1),
        ("timestamp", EPOCH + dt.timedelta(microseconds=7), 7),
        ("timestamp", msgpack.Timestamp(5, 1999), 5_000_001),
        ("timestamp", msgpack.Timestamp(-1, 999_999_999), -1),
        ("timestamp", msgpack.Timestamp(253402300799, 999_999_999), 253402300799999999),
        ("timestamp", "1970-01-01T01:00:00.0000019+01:00", 1),
        ("timestamp_ntz", "1970-01-01T00:00:01", 1_000_000),
        ("array<timestamp>", [msgpack.Timestamp(1, 0), None], (1_000_000, None)),
        ("struct<a: int, t: timestamp>", {"t": msgpack.Timestamp(1, 0)}, (None, 1_000_000)),
        ("map<int, timestamp>", {5: msgpack.Timestamp(1, 0), 6: None}, ((5, 1_000_000), (6, None))),
        ("map<boolean, int>", {True: 1, False: None}, ((True, 1), (False, None))),
        ("map<binary, int>", {b"k": 1}, ((b"k", 1),)),
        ("map<decimal(3,1), int>", {"1": 1, "1.0": 2}, ((Decimal("1.0"), 2),)),
    ],
)
def test_a_value_is_read_as_the_column(name: str, value: Any, plain: Any) -> None:
    assert read(name, value) == (plain, "")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("int", 5.0, "WRONG_TYPE: Expected `integer | null`, got `number` - at `$.v`"),
        ("int", "5", "WRONG_TYPE: Expected `integer | null`, got `string` - at `$.v`"),
        ("int", 2**31, "OUT_OF_RANGE: Expected `integer` <= 2147483647 - at `$.v`"),
        ("bigint", 2**63, "OUT_OF_RANGE: "),
        ("boolean", 1, "WRONG_TYPE: Expected `boolean | null`, got `integer` - at `$.v`"),
        ("string", b"x", "WRONG_TYPE: Expected `string | null`, got `binary` - at `$.v`"),
        ("binary", "eA==", "WRONG_TYPE: Expected `binary | null`, got `string` - at `$.v`"),
        ("float", 1e39, "OUT_OF_RANGE: Expected `number` <= 3.4"),
        ("float", "1", "WRONG_TYPE: Expected `number | null`, got `string` - at `$.v`"),
        ("decimal(3,1)", "5.55", "OUT_OF_RANGE: '5.55' does not fit into decimal(3,1) - at `$.v`"),
        ("decimal(3,1)", math.nan, "OUT_OF_RANGE: nan does not fit into decimal(3,1) - at `$.v`"),
        ("date", msgpack.Timestamp(1, 0), "WRONG_TYPE: Expected `date | null`, got `ext` - at `$.v`"),
        ("timestamp", 1, "WRONG_TYPE: Expected `timestamp | null`, got `integer` - at `$.v`"),
        ("timestamp", "noon", "WRONG_TYPE: Invalid RFC3339 encoded datetime - at `$.v`"),
        ("timestamp", msgpack.ExtType(5, b"1234"), "WRONG_TYPE: Expected `timestamp`, got the extension type 5 - at"),
        ("timestamp", msgpack.ExtType(127, b""), "WRONG_TYPE: Expected `timestamp`, got the extension type 127"),
        ("timestamp", msgpack.Timestamp(253402300800, 0), "OUT_OF_RANGE: Invalid timestamp: it is outside the years"),
        ("array<timestamp>", [msgpack.Timestamp(-(2**40), 0)], "the years 1 to 9999 - at `$.v[...]`"),
        ("struct<t: timestamp>", {"t": 5}, "WRONG_TYPE: Expected `timestamp | null`, got `integer` - at `$.v.t`"),
        ("struct<t: timestamp>", [5], "WRONG_TYPE: Expected `map | null`, got `array` - at `$.v`"),
        ("timestamp_ntz", EPOCH, "WRONG_TYPE: "),
        ("map<string, int>", {5: 1}, "WRONG_TYPE: Expected `string`, got `integer` - at `key` in `$.v`"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_bad_with_its_place(name: str, value: Any, reason: str) -> None:
    found, failure = read(name, value)
    assert found == ""
    assert reason in failure


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "NULL_VALUE: a tombstone has no MessagePack"),
        (b"", "EMPTY_VALUE"),
        (b"\xc1", "MALFORMED_MSGPACK: "),
        (b"\x81\xa1a", "MALFORMED_MSGPACK: Input data was truncated"),
        (b"\x80\x80", "MALFORMED_MSGPACK: MessagePack data is malformed: trailing characters"),
        (b'{"a":1}', "MALFORMED_MSGPACK: it is not a map; it looks like JSON: use `format: json`"),
        (b"\x00\x00\x00\x00\x07\x80", ("MALFORMED_MSGPACK: it is not a map; it looks like a record of a schema "
            "registry")),
        (b"\xde\xff\xff", "MALFORMED_MSGPACK: "),
        (b"\x81\xa1a\xdb\xff\xff\xff\xff", "MALFORMED_MSGPACK: "),
        (b"\x91\x05", "WRONG_TYPE: Expected `map`, got `array`"),
        (b"\xc0", "WRONG_TYPE: Expected `map`, got `null`"),
        (b"\x81\x01\x02", "WRONG_TYPE: Expected `string`, got `integer` - at `key` in `$`"),
        (b"\x81\xa1s\xa1\xff", "NOT_UTF8: "),
        (b"\x81\xa1b" + b"\x91" * 50_000 + b"\x80", "TOO_DEEP: "),
        (b"\x81\xa1A\x01", "NO_DECLARED_FIELD: it has none of the declared fields; its fields are `A`; `A` is not `a`"),
        (b"\x81\xa1\xff\x01", "NO_DECLARED_FIELD: it has none of the declared fields; its fields are `?`"),
    ],
)  # fmt: skip
def test_a_bad_record_has_its_kind_and_the_others_are_rows(value: bytes | None, reason: str) -> None:
    frame, failures = decode((("a", BIGINT), ("s", STRING)), [b"\x81\xa1a\x01", value, b"\x80"])
    assert frame["a"].to_list() == [1, None]
    assert [one.row for one in failures] == [1]
    assert reason in str(failures[0])


def test_of_repeated_fields_the_last_one_counts() -> None:
    assert decode((("a", BIGINT),), [b"\x82\xa1a\x01\xa1a\x02"]).frame["a"].to_list() == [2]


# -- unknown fields ----------------------------------------------------------------------------------------------------


def test_unknown_fields_are_skipped_or_fail_the_record() -> None:
    value = msgpack.packb({"a": 1, "b": 2})
    assert decode((("a", BIGINT),), [value]).frame["a"].to_list() == [1]
    (failure,) = decode((("a", BIGINT),), [value], FAIL).failures
    assert str(failure) == "UNKNOWN_FIELD: Object contains unknown field `b`"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("t\n", "t\n"),
        (None, None),
        (True, "true"),
        (2**64 - 1, str(2**64 - 1)),
        (1.5, "1.5"),
        (math.inf, '"inf"'),
        (b"\xff", '"/w=="'),
        (msgpack.Timestamp(0, 1999), '"1970-01-01T00:00:00.000001Z"'),
        (msgpack.Timestamp(0, 500_000_000), '"1970-01-01T00:00:00.500Z"'),
        (msgpack.ExtType(5, b"\xff"), '{"ext":5,"data":"/w=="}'),
        ([1, {"x": [b""]}, "é"], '[1,{"x":[""]},"é"]'),
        ({1: [], b"k": None}, '{"1":[],"aw==":null}'),
    ],
)
def test_unknown_fields_are_kept_as_texts(value: Any, text: str | None) -> None:
    columns = (("a", BIGINT), ("rest", map_of(STRING, STRING)))
    frame, failures = decode(columns, [msgpack.packb({"a": 1, "b": value, "rest": 5}, datetime=True)], KEEP)
    assert not failures
    assert dict(plain_values(frame["rest"])[0]) == {"b": text, "rest": "5"}


# -- refusals and plain values -----------------------------------------------------------------------------------------


def test_maps_with_timestamps_as_keys_are_refused() -> None:
    kind = derive_type("array<map<timestamp, int>>")
    for check in (FORMAT.read_columns, FORMAT.written_columns):
        with pytest.raises(FormatRefusal, match="timestamps cannot be keys of maps in MessagePack"):
            check({"v": kind})


def test_values_of_a_test_are_given_and_shown_as_json() -> None:
    plain = {"i": 5, "d": Decimal("12.50"), "long": Decimal("12345678901234567.89"), "t": "é", "l": [None, {"x": True}]}
    data = FORMAT.from_plain(plain)
    assert msgpack.unpackb(data) == {**plain, "d": 12.5, "long": "12345678901234567.89"}
    assert FORMAT.to_plain(data) == {**plain, "d": Decimal("12.5"), "long": "12345678901234567.89"}
    with pytest.raises(FormatRefusal, match="MessagePack cannot hold the value"):
        FORMAT.from_plain({"v": 2**64})


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=25 * DEPTH)
@given(st.data(), TABLES)
def test_damaged_records_are_read_as_the_reference_reads_them_or_bad(
    data: st.DataObject, table: tuple[list[DataType], list[tuple[Any, ...]]]
) -> None:
    kinds, rows = table
    columns = tuple((f"c{index}", kind) for index, kind in enumerate(kinds))
    frame = pl.DataFrame([make_column(name, kind, [rows[0][index]]) for index, (name, kind) in enumerate(columns)])
    value = bytearray(encode(columns, frame)[0])
    place = data.draw(st.integers(0, len(value) - 1))
    match data.draw(st.integers(0, 2)):
        case 0:
            value[place] = data.draw(st.integers(0, 255))
        case 1:
            del value[place:]
        case _:
            value[place:place] = data.draw(st.binary(min_size=1, max_size=3))
    decoded = decode(columns, [bytes(value), *encode(columns, frame)])
    assert decoded.frame.height + len(decoded.failures) == 2
    assert [one.row for one in decoded.failures] in ([], [0])
    if not decoded.failures:
        unpacked = msgpack.unpackb(bytes(value), timestamp=0, strict_map_key=False, unicode_errors="surrogateescape")
        for name, kind in columns:
            if not holds_kind(kind, ("decimal", "date", "timestamp", "timestamp_ntz", "float", "double", "map")):
                (plain,) = plain_values(decoded.frame[name].head(1))
                assert json_like(plain) == json_like(without_names(unpacked.get(name), kind))


def without_names(value: Any, kind: DataType) -> Any:
    """A value of the reference with tuples for structs."""
    if value is None or kind.kind not in ("struct", "array"):
        return value
    if kind.kind == "struct":
        return tuple(without_names(value.get(name), below) for name, below in kind.fields)
    assert kind.element is not None
    return tuple(without_names(one, kind.element) for one in value)


def json_like(value: Any) -> str:
    return json.dumps(value, default=repr)
