"""What a source counts, what it says of its records next to their columns, and in what parts it takes them."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from tests.operators.driven import Collected
from tests.sources.scripted import NAME, P0, P1, Scripted, order
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.row_kinds import INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import SKIP, EventTime
from tidegate.operators.runtime import ROWS_MAX
from tidegate.operators.spec import DEAD, Requirement
from tidegate.sources.reader import ConsumerThread

AT = EventTime("at", 0)
OTHER = TopicPartition("returns", 0)


def reader_of(one: Scripted) -> ConsumerThread:
    reader = one.source._reader
    assert reader is not None
    return reader


def test_records_bytes_and_tombstones_are_counted_over_all_batches() -> None:
    with Scripted(None, on_null=SKIP) as one:
        counts = (one.source.records, one.source.bytes, one.source.left_out, one.source.rows_taken)
        assert counts == (0, 0, 0, 0)
        for number in range(2):
            one.client.put(P0, order(number, 1), None, b"{")
            one.gather()
            one.poll()
        assert (one.source.records, one.source.left_out) == (6, 2)
        assert one.source.bytes == 2 * (len(order(0, 1)) + 1)


def test_bytes_are_those_of_keys_values_and_headers_whatever_becomes_of_the_record() -> None:
    """A tombstone that is skipped and a bad record were read, too; no column is for keys or headers here."""
    with Scripted(None, on_null=SKIP) as one:
        for value in (order(1, 1), None, b"{"):
            one.client.put_whole(P0, value, b"k" * 10, [("ä" * 5, b"x" * 80)])
        one.gather()
        one.poll()
        assert one.source.records == 3
        assert one.source.bytes == 3 * (10 + 10 + 80) + len(order(1, 1)) + 1


@pytest.mark.parametrize("policy", [BadRecordPolicy.DEAD_LETTER, BadRecordPolicy.SKIP])
def test_a_bad_record_becomes_a_letter_with_its_bytes_where_the_file_says_so(policy: BadRecordPolicy) -> None:
    with Scripted(None, bad_records=policy) as one:
        one.client.put(P0, order(1, 1), b"bad")
        one.client.put(P1, b"worse")
        one.gather()
        out = Collected()
        assert one.source.poll(ROWS_MAX, out)
        assert len(one.bad) == 2
        if policy is BadRecordPolicy.SKIP:
            assert out.sides == {}
            return
        (letters,) = out.sides[DEAD]
        assert letters.select("topic", "partition", "offset", "value").rows() == [
            ("orders", 0, 1, b"bad"),
            ("orders", 1, 0, b"worse"),
        ]


def test_rows_say_which_topic_they_are_from_where_that_is_wanted() -> None:
    two: dict[str, Any] = {"topics": ("orders", "returns"), "carries": (Requirement.TOPIC,)}
    with Scripted(None, partitions=(P0, OTHER), **two) as one:
        frame = one.read((P0, order(1, 1)), (OTHER, b"{"), (OTHER, order(2, 1)), (P0, order(3, 1)))
        assert frame.select("id", "__tidegate_topic").rows() == [(1, "orders"), (2, "returns"), (3, "orders")]
    with Scripted(None, carries=(Requirement.TOPIC,)) as one:
        frame = one.read((P0, order(1, 1)), (P0, b"{"), (P1, order(2, 1)))
        assert frame["__tidegate_topic"].to_list() == ["orders", "orders"]
    with Scripted(None) as one:
        assert "__tidegate_topic" not in one.read((P0, order(1, 1))).columns


def test_columns_have_their_types_where_no_row_is_left() -> None:
    """Batches are put together further down."""
    with Scripted(None, carries=(Requirement.TOPIC,), on_null=SKIP) as one:
        one.client.put(P0, None)
        one.gather()
        batch = one.source.take(ROWS_MAX)
        assert batch is not None
        assert batch.frame.schema["__tidegate_topic"] == pl.String


def test_no_batch_has_more_bytes_than_it_may_but_one_record() -> None:
    with Scripted(None) as one:
        one.source.batch_bytes_max = 2 * len(order(1, 1))
        one.client.put(P0, *(order(number, 1) for number in range(5)))
        one.gather()
        assert [one.poll(), one.poll(), one.poll()] == [[[0, 1]], [[2, 3]], [[4]]]


def test_a_partition_that_has_come_to_its_end_is_paused_once() -> None:
    third = TopicPartition("orders", 2)
    ends = ((P0, 1), (P1, 1), (third, 3))
    restored = SourcePositions(NAME, tuple((part, 0) for part, _ in ends), ends)
    with Scripted(None, restored, partitions=(P0, P1, third), until="latest") as one:
        for part in (P0, P1, third, third):
            one.read((part, order(1, 1)))
        one.gather()
        assert one.client.paused == [P0, P1]
        assert not one.finished


def test_a_bounded_source_that_has_read_everything_does_not_fail_any_more() -> None:
    restored = SourcePositions(NAME, ((P0, 0), (P1, 0)), ((P0, 1), (P1, 0)))
    with Scripted(None, restored, until="latest") as one:
        one.read((P0, order(1, 1)))
        assert one.finished
        one.client.lose(P1, 0)
        wait_until(lambda: reader_of(one)._failure is not None, "the reader has failed")
        assert one.poll() == []


def test_an_added_partition_is_stored_at_once_and_read_next_to_the_others() -> None:
    with Scripted(AT, partitions=(P0,)) as one:
        one.read((P0, order(1, 100)))
        one.source.add_partitions([P1])
        assert one.source.positions().next_offsets == ((P0, 1), (P1, 0))
        assert one.source.held_back_by == P1
        wait_until(lambda: P1 in one.client.assigned, "the client reads it")
        frame = one.read((P1, order(2, 50)), (P0, order(3, 90)))
        assert sorted(frame.select("id", "__tidegate_partition", "__tidegate_offset", "__tidegate_behind").rows()) == [
            (2, 1, 0, 0),
            (3, 0, 1, 10),
        ]
        assert one.source.positions().watermarks == ((P0, 99), (P1, 49))


def test_what_is_reported_of_positions_is_a_copy_and_nothing_before_they_are_known() -> None:
    with Scripted(None, partitions=(P0,)) as one:
        one.read((P0, order(1, 100)))
        before = one.source.reached
        one.read((P0, order(2, 100)))
        assert (before, one.source.reached) == ({P0: 1}, {P0: 2})
        one.source._positions = None
        assert one.source.reached == {}


def test_a_subtask_without_partitions_reads_the_first_one_that_is_added() -> None:
    with Scripted(None, partitions=(), topics=("orders", "returns")) as one:
        assert one.poll() == []
        one.source.add_partitions([P1, OTHER])
        wait_until(lambda: len(one.client.assigned) == 2, "the client reads them")
        frame = one.read((P1, order(2, 50)), (OTHER, order(3, 50)))
        assert frame["id"].to_list() == [2, 3]
        assert one.source.positions().next_offsets == ((P1, 1), (OTHER, 1))


def test_an_update_of_a_source_of_changes_is_two_rows_in_its_place() -> None:
    def change(op: str, before: Any, after: Any) -> bytes:
        return json.dumps({"op": op, "before": before, "after": after}).encode()

    former, later = {"id": 1, "at": 2}, {"id": 1, "at": 3}
    with Scripted(None, format="debezium", carries=(Requirement.ROW_KIND,)) as one:
        frame = one.read(
            *((P0, change("c", None, {"id": number, "at": 0})) for number in (7, 8, 9)),
            (P0, change("c", None, former)),
            (P0, change("u", former, later)),
            (P0, change("c", None, {"id": 4, "at": 5})),
        )
        assert frame.select(ROW_KIND, "id", "at", "__tidegate_offset").rows() == [
            *((INSERT, number, 0, place) for place, number in enumerate((7, 8, 9))),
            (INSERT, 1, 2, 3),
            (UPDATE_BEFORE, 1, 2, 4),
            (UPDATE_AFTER, 1, 3, 4),
            (INSERT, 4, 5, 5),
        ]
        assert frame.schema[ROW_KIND] == pl.Int8
