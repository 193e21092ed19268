"""What waits in front of a sink's client."""

from __future__ import annotations

import polars as pl

from tests.sinks.driving import rows
from tidegate.formats.records import output_records
from tidegate.ids import CheckpointId
from tidegate.sinks.backlog import WAITING_BYTES_MAX, Backlog, QueuedBarrier

BARRIER = QueuedBarrier(CheckpointId(1), 0.0)


def test_there_is_room_for_what_the_client_takes_until_a_quarter_of_it_is_left() -> None:
    backlog = Backlog(100)
    assert [backlog.room(free) for free in (None, 100, 25, 24, 0)] == [100, 100, 25, 0, 0]
    backlog.add(rows(range(40)))
    assert [backlog.room(free) for free in (None, 100, 65, 64)] == [60, 60, 25, 0]


def test_a_client_that_holds_one_record_is_given_one_at_a_time() -> None:
    backlog = Backlog(1)
    assert [backlog.room(1), backlog.room(0)] == [1, 0]


def test_rows_come_out_in_order_with_the_barrier_between_them() -> None:
    backlog = Backlog(100)
    first, second = rows(range(3)), rows(range(3, 5))
    backlog.add(first)
    backlog.add_barrier(BARRIER)
    backlog.add(rows(()))
    backlog.add(second)
    heads, barriers = [backlog.head], [backlog.has_barrier]
    assert backlog.advance(3)
    heads.append(backlog.head)
    backlog.pass_barrier()
    heads.append(backlog.head)
    barriers.append(backlog.has_barrier)
    assert backlog.advance(2)
    assert [*heads, backlog.head] == [first, BARRIER, second, None]
    assert barriers == [True, False]
    assert backlog.room(None) == 100


def test_behind_a_client_that_is_full_nothing_is_taken_until_the_batch_is_through() -> None:
    backlog = Backlog(100)
    backlog.add(rows(range(30)))
    assert not backlog.advance(10)
    assert (backlog.place, backlog.room(90)) == (10, 0)
    assert backlog.advance(30)
    assert (backlog.place, backlog.room(90)) == (0, 90)


def test_what_waits_is_bounded_by_its_size_too() -> None:
    backlog = Backlog(1_000_000)
    backlog.add(rows(range(2), size=WAITING_BYTES_MAX // 2))
    assert backlog.room(None) == 0


def test_what_waits_is_bounded_by_the_memory_of_columns_that_it_was_taken_from() -> None:
    whole = pl.Series([bytes(1000)] * (WAITING_BYTES_MAX // 1000 + 1))
    backlog = Backlog(1_000_000)
    backlog.add(output_records(pl.Series([b"v"]), whole[:1]))
    assert backlog.room(None) == 0
    assert backlog.advance(1)
    assert backlog.room(None) == 1_000_000


def test_the_size_of_what_is_through_is_free_again() -> None:
    backlog, half = Backlog(1_000_000), WAITING_BYTES_MAX // 2
    for _ in range(2):
        backlog.add(rows(range(1), size=half))
    assert backlog.room(None) == 0
    assert backlog.advance(1)
    assert backlog.room(None) > 0
    assert backlog.advance(1)
    backlog.add(rows(range(1), size=half))
    assert backlog.room(None) > 0
