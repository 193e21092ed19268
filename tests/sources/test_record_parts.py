"""Key, headers, timestamp and place of records as columns; rows of tombstones; records that are bad because of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import confluent_kafka as ck
import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.routed import Header
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, STRING, TIMESTAMP
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE
from tidegate.formats.schemas import known_schemas
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import PARTS, EventTime, MetadataColumn, SourceOperator
from tidegate.operators.spec import Planned, Requirement
from tidegate.sources.kafka import KafkaSource, SourceBatch
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.positions import Positions
from tidegate.sources.reader import MAX_RECORDS, Pending
from tidegate.sources.record_parts import PartsDecoder, header_column, open_decoder

NAME = OperatorName("orders")
P0 = TopicPartition("orders", 0)
SCHEMA = (("id", BIGINT), ("name", STRING))
LETTERS = {"headers": "h", "timestamp": "at", "partition": "p", "offset": "o", "topic": "t"}
COLUMNS = {
    "key": MetadataColumn("key", "k", STRING),
    **{part: MetadataColumn(part, LETTERS[part], kind) for part, kind in PARTS.items()},
}
DELETED = ("_deleted", BOOLEAN)


def operator_of(
    *parts: str, read: Sequence[str] | None = None, carries: tuple[Requirement, ...] = (), **changes: Any
) -> SourceOperator:
    """A JSON source with these metadata columns; `read` are the columns that leave, by default all."""
    operator = SourceOperator(NAME, ("orders",), "json", SCHEMA, (), "earliest", "never", BadRecordPolicy.SKIP, {})
    operator = msgspec.structs.replace(operator, metadata=tuple(COLUMNS[one] for one in parts), **changes)
    output = tuple(one for one in operator.columns if read is None or one[0] in read)
    return msgspec.structs.replace(operator, output=output, planned=Planned(carries=carries))


def message(
    offset: int,
    value: bytes | None = b'{"id":1,"name":"a"}',
    key: bytes | None = b"k",
    headers: Sequence[Header] = (),
    at_ms: int | None = 1_000,
) -> ck.Message:
    stamp = (ck.TIMESTAMP_NOT_AVAILABLE, -1) if at_ms is None else (ck.TIMESTAMP_CREATE_TIME, at_ms)
    return ck.Message(
        topic="orders",
        partition=0,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers),
        timestamp=stamp,
        error=None,
    )


def read(operator: SourceOperator, *messages: ck.Message) -> SourceBatch:
    """What a source makes of them."""
    source = KafkaSource(operator, (), SourcePositions(NAME, ()), "group", lambda: None)
    if source.watermarks is not None:
        source.watermarks.on_added([P0])
    positions = Positions(NAME, {P0: 0})
    batch = source._decode(Pending(KafkaMessages(messages), {}, 1), positions)
    assert isinstance(batch, SourceBatch)
    assert positions.next_offsets[P0] == len(messages)
    return batch


def kinds(batch: SourceBatch) -> list[tuple[int, FailureKind]]:
    return [(one.offset, one.failure.kind) for one in batch.failures]


def test_every_part_of_a_record_is_a_column() -> None:
    headers: list[Header] = [("a", b"1"), ("a", None), ("", b"")]
    batch = read(operator_of(*COLUMNS), message(0, key=None, headers=headers), message(1))
    at = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    shared = {"id": 1, "name": "a", "at": at, "p": 0, "t": "orders"}
    pairs = [{"key": name, "value": value} for name, value in headers]
    assert batch.frame.drop("__tidegate_partition", "__tidegate_offset").to_dicts() == [
        {**shared, "k": None, "h": pairs, "o": 0},
        {**shared, "k": "k", "h": [], "o": 1},
    ]


def test_a_key_is_read_in_its_own_format() -> None:
    operator = operator_of("key", key_format="json")
    operator = msgspec.structs.replace(operator, metadata=(MetadataColumn("key", "k", BIGINT),))
    operator = msgspec.structs.replace(operator, output=operator.columns)
    batch = read(operator, message(0, key=b"7"), message(1, key=b"seven"), message(2, key=None))
    assert batch.frame["k"].to_list() == [7, None]
    assert [one.offset for one in batch.failures] == [1]


def test_the_timestamp_of_a_record_is_a_moment_or_null() -> None:
    batch = read(operator_of("timestamp"), message(0, at_ms=None), message(1, at_ms=0))
    assert batch.frame["at"].to_list() == [None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]


def test_a_negative_timestamp_is_none() -> None:
    """Kafka's clients write -1 where a producer has given no time."""
    batch = read(
        operator_of("timestamp"),
        message(0, at_ms=-1),
        message(1, at_ms=1 << 60),
        message(2, at_ms=-(1 << 60)),
        message(3),
    )
    assert batch.frame["at"].to_list() == [None, None, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)]
    assert kinds(batch) == [(1, FailureKind.OUT_OF_RANGE)]


@pytest.mark.parametrize(("at_ms", "written"), [(-1, None), (-5, None), (None, None), (0, 0), (7, 7)])
def test_a_dead_letter_has_the_timestamp_only_where_there_is_one(at_ms: int | None, written: int | None) -> None:
    assert KafkaMessages([message(0, at_ms=at_ms)]).raw(0).timestamp_ms == written


@pytest.mark.parametrize("columns", [["id"], ["id", "k", "at"], ["k"], ["at"]])
def test_a_bad_key_or_timestamp_is_bad_whoever_reads_it(columns: list[str]) -> None:
    batch = read(
        operator_of("key", "timestamp", read=columns),
        message(0),
        message(1, key=b"\xff"),
        message(2, at_ms=1 << 60),
        message(3, value=b"x", key=b"\xff"),
        message(4, b'{"id":5}'),
    )
    assert kinds(batch) == [
        (1, FailureKind.NOT_UTF8), (2, FailureKind.OUT_OF_RANGE), (3, FailureKind.MALFORMED_JSON),
    ]  # fmt: skip
    assert batch.frame.columns == [
        *[name for name in ("id", "k", "at") if name in columns],
        "__tidegate_partition",
        "__tidegate_offset",
    ]
    assert batch.frame["__tidegate_offset"].to_list() == [0, 4]
    assert "id" not in columns or batch.frame["id"].to_list() == [1, 5]


def test_what_cannot_be_wrong_is_read_only_where_it_is_wanted() -> None:
    operator = operator_of("partition", "offset", "topic", "key", read=["id"], key_format="raw")
    assert operator.checked == ()
    source = KafkaSource(operator, (), SourcePositions(NAME, ()), "group", lambda: None)
    assert not isinstance(source._decoder, PartsDecoder)


def test_a_raw_source_reads_headers_next_to_its_columns() -> None:
    fixed = (("value", BINARY), ("timestamp", TIMESTAMP))
    operator = operator_of("headers", "key", schema=fixed, format="raw", key_format="raw")
    operator = msgspec.structs.replace(operator, metadata=(*operator.metadata[:1], MetadataColumn("key", "k", BINARY)))
    operator = msgspec.structs.replace(operator, output=operator.columns)
    batch = read(operator, message(0, None, b"\xff", [("a", b"\xff")]), message(1, b"\xfe", at_ms=1 << 60))
    assert kinds(batch) == [(1, FailureKind.OUT_OF_RANGE)]
    (row,) = batch.frame.to_dicts()
    assert (row["value"], row["k"], row["h"]) == (None, b"\xff", [{"key": "a", "value": b"\xff"}])


@given(
    st.lists(
        st.tuples(st.sampled_from([b'{"id":1,"name":"a"}', b"x", None]), st.sampled_from([b"k", b"\xff", None])),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["", "bad", "skip", "tombstone"]),
    st.booleans(),
)
def test_a_record_without_value_is_bad_left_out_or_a_row(
    records: list[tuple[bytes | None, bytes | None]], on_null: str, keyed: bool
) -> None:
    operator = operator_of(*(["key"] if keyed else []), on_null=on_null)
    batch = read(operator, *(message(offset, value, key) for offset, (value, key) in enumerate(records)))
    rows, bad = [], []
    for offset, (value, key) in enumerate(records):
        if value is None and on_null == "skip":
            continue
        if value == b"x" or (value is None and on_null in ("", "bad")):
            bad.append((offset, FailureKind.MALFORMED_JSON if value else FailureKind.NULL_VALUE))
        elif keyed and key == b"\xff":
            bad.append((offset, FailureKind.NOT_UTF8))
        else:
            row: dict[str, Any] = {"id": None, "name": None} if value is None else {"id": 1, "name": "a"}
            row |= {"k": None if key is None else key.decode()} if keyed else {}
            row |= {"_deleted": value is None} if on_null == "tombstone" else {}
            rows.append({**row, "__tidegate_partition": 0, "__tidegate_offset": offset})
    assert kinds(batch) == bad
    assert batch.frame.to_dicts() == rows
    assert batch.records == len(records)
    assert batch.left_out == len(records) - len(rows) - len(bad)


def test_event_time_may_be_the_timestamp_of_the_record_that_nobody_else_reads() -> None:
    operator = operator_of(
        "timestamp", read=["id"], event_time=EventTime("at"), carries=(Requirement.EVENT_TIME,), on_null="tombstone"
    )
    batch = read(operator, message(0, at_ms=7), message(1, None, at_ms=9), message(2, at_ms=None))
    assert batch.frame.select("id", "__tidegate_time").rows() == [(1, 7), (None, 9)]
    assert kinds(batch) == [(2, FailureKind.NO_EVENT_TIME)]
    assert batch.frame.columns == [
        "id",
        "__tidegate_partition",
        "__tidegate_offset",
        "__tidegate_time",
        "__tidegate_behind",
    ]


def test_headers_are_carried_next_to_the_columns_where_a_sink_passes_them_on() -> None:
    batch = read(
        operator_of(read=["id"], carries=(Requirement.HEADERS,)), message(0, headers=[("a", None)]), message(1, b"x")
    )
    assert batch.frame.columns == ["id", CARRIED_HEADERS, "__tidegate_partition", "__tidegate_offset"]
    assert batch.frame[CARRIED_HEADERS].to_list() == [[{"key": "a", "value": None}]]


@given(st.lists(st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=3), max_size=5))
def test_headers_of_a_batch_are_those_of_its_records(headers: list[list[Header]]) -> None:
    found = header_column("h", headers)
    assert found.to_list() == [[{"key": name, "value": value} for name, value in one] for one in headers]
    assert found.dtype == polars_type(HEADERS_TYPE)


def test_batches_of_any_size_have_as_many_lists_of_headers_as_records() -> None:
    """Records that have waited for a schema may be more than one round of the reader."""
    for count in (0, MAX_RECORDS, MAX_RECORDS + 1):
        assert header_column("h", [()] * count).to_list() == [[]] * count


def test_the_topic_of_each_record_is_its_own_where_a_source_has_several() -> None:
    topics = ("orders", "returns")
    operator = operator_of("topic", topics=topics)
    decoder = open_decoder(operator, known_schemas(operator.options))
    value = b'{"id":1,"name":"a"}'
    messages = [
        ck.Message(topic=topics[place], partition=0, offset=offset, value=value, error=None)
        for offset, place in enumerate([0, 1, 1, 0])
    ]
    found = decoder.decode(KafkaMessages(messages))
    assert isinstance(found, Decoded)
    assert found.frame["t"].to_list() == ["orders", "returns", "returns", "orders"]
    none = decoder.decode(KafkaMessages([]))
    assert isinstance(none, Decoded)
    assert none.frame.schema["t"] == pl.String


def test_columns_have_their_types_where_all_records_are_bad() -> None:
    """Batches are put together further down."""
    batch = read(operator_of("key", "headers", on_null="tombstone"), message(0, b"x"), message(1, key=b"\xff"))
    assert batch.frame.is_empty()
    assert batch.frame.schema["_deleted"] == pl.Boolean
    assert batch.frame.schema["h"] == polars_type(HEADERS_TYPE)
    values_alone = read(operator_of(on_null="tombstone"), message(0, b""), message(1, b"x"))
    assert values_alone.frame.schema["_deleted"] == pl.Boolean


def test_a_record_with_a_value_is_no_deleted_one() -> None:
    batch = read(operator_of(on_null="tombstone"), message(0), message(1))
    assert batch.frame["_deleted"].to_list() == [False, False]


def test_a_part_of_a_batch_is_these_records_alone() -> None:
    messages = KafkaMessages([message(offset) for offset in range(3)])
    assert messages.part(1, 2).offsets == [1]
    assert messages.part(0, 3).offsets == [0, 1, 2]
    assert messages.raw(1).timestamp_ms == 1_000


def test_rows_of_which_nothing_is_read_are_as_many_as_their_records() -> None:
    batch = read(operator_of("timestamp", read=[]), message(0), message(1, b"x"), message(2))
    assert batch.frame["__tidegate_offset"].to_list() == [0, 2]


class Unreadable(KafkaMessages):
    """The second message has a header whose name is not UTF-8."""

    @property
    def headers(self) -> list[Sequence[Header] | None]:
        return [None if offset == 1 else () for offset in self.offsets]


@pytest.mark.parametrize("columns", [["id"], ["id", "h"]])
def test_only_the_record_whose_headers_cannot_be_read_is_bad(
    monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    monkeypatch.setattr(KafkaMessages, "headers", Unreadable.headers)
    batch = read(operator_of("headers", read=columns), message(0), message(1), message(2))
    assert kinds(batch) == [(1, FailureKind.NOT_UTF8)]
    assert batch.frame["__tidegate_offset"].to_list() == [0, 2]
