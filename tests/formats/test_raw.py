"""The raw format."""

from __future__ import annotations

import datetime as dt

from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, BINARY, STRING, TIMESTAMP, DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.raw import FORMAT
from tidegate.formats.schemas import NO_OPTIONS, KnownSchemas

ALL = tuple(FORMAT.fixed_columns.items())


def decode(columns: tuple[tuple[str, DataType], ...], *values: bytes | None, at_ms: tuple[int | None, ...]) -> Decoded:
    decoded = FORMAT.decoder(ALL, columns, NO_OPTIONS, KnownSchemas()).decode(
        messages_of(values, [b"k"] * len(values), at_ms)
    )
    assert isinstance(decoded, Decoded)
    return decoded


def test_a_row_has_all_that_a_message_has_but_headers() -> None:
    decoded = decode(ALL, b"\xff", None, at_ms=(1_500, None))
    assert decoded.failures == []
    assert dict(decoded.frame.schema) == {name: polars_type(kind) for name, kind in ALL}
    moment = dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=dt.UTC)
    assert decoded.frame.rows() == [(b"k", b"\xff", moment, "in", 3, 10), (b"k", None, None, "in", 3, 11)]


def test_only_the_columns_that_are_read_are_made() -> None:
    assert decode((("offset", BIGINT),), b"a", b"b", at_ms=(10**18, 0)).frame.rows() == [(10,), (11,)]
    decoded = decode((), b"a", b"b", at_ms=(10**18, 0))
    assert (decoded.frame.height, decoded.frame.width, list(decoded.failures)) == (2, 0, [])


def test_a_timestamp_that_no_calendar_has_makes_its_record_bad_where_it_is_read() -> None:
    columns = (("timestamp", TIMESTAMP), ("value", BINARY))
    decoded = decode(columns, b"a", b"b", b"c", b"d", at_ms=(253_402_300_799_999, 253_402_300_800_000, 10**18, None))
    assert [(one.row, one.kind) for one in decoded.failures] == [
        (1, FailureKind.OUT_OF_RANGE),
        (2, FailureKind.OUT_OF_RANGE),
    ]
    assert decoded.frame["value"].to_list() == [b"a", b"d"]
    assert decoded.frame["timestamp"].dt.year().to_list() == [9999, None]


def test_a_schema_chooses_among_the_fixed_columns() -> None:
    assert list(FORMAT.read_columns({})) == [name for name, _ in ALL]
    assert FORMAT.read_columns({"offset": BIGINT, "key": BINARY}) == {"key": BINARY, "offset": BIGINT}


def test_a_sink_writes_the_value_and_keeps_the_key_that_was_read() -> None:
    assert FORMAT.written_columns({"a": BIGINT, "value": STRING}) == {"value": STRING}
    assert FORMAT.default_key({"key": BINARY, "value": BINARY}) == "key"
    assert FORMAT.default_key({"value": BINARY}) is None
