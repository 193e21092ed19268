"""What messages mean for positions: no Kafka."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.sources.positions import Positions, derive_restored, describe_out_of_range

NAME = OperatorName("orders")
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_F08_snapshot_has_all_partitions_in_order() -> None:
    positions = Positions(NAME, {P1: 7, P0: 3}, {P0: 10, P1: 10})
    assert positions.snapshot() == SourcePositions(NAME, ((P0, 3), (P1, 7)), ((P0, 10), (P1, 10)))


def test_records_move_the_next_offset() -> None:
    positions = Positions(NAME, {P0: 3, P1: 0})
    positions.move({P0: 8})
    assert positions.next_offsets == {P0: 8, P1: 0}


def test_an_older_event_never_moves_a_position_back() -> None:
    positions = Positions(NAME, {P0: 8})
    positions.move({P0: 5})
    assert positions.next_offsets == {P0: 8}


def test_an_added_partition_begins_at_its_first_offset_and_is_in_the_next_snapshot() -> None:
    positions = Positions(NAME, {P0: 3})
    positions.add([P1])
    assert positions.snapshot().next_offsets == ((P0, 3), (P1, 0))
    positions.move({P1: 5})
    positions.add([P1])
    assert positions.snapshot().next_offsets == ((P0, 3), (P1, 5))


def test_a_bounded_read_takes_no_new_partition() -> None:
    with pytest.raises(ValueError, match="bounded"):
        Positions(NAME, {P0: 3}, {P0: 10}).add([P1])


def test_an_unbounded_read_never_finishes() -> None:
    positions = Positions(NAME, {P0: 0})
    positions.move({P0: 1_000_000})
    assert not positions.bounded
    assert not positions.finished


def test_a_bounded_read_is_finished_when_every_partition_is() -> None:
    positions = Positions(NAME, {P0: 0, P1: 0}, {P0: 5, P1: 0})
    assert positions.ended == {P1}
    assert not positions.finished
    positions.move({P0: 4})
    assert not positions.finished
    positions.move({P0: 5})
    assert positions.finished


def test_an_event_behind_the_end_stops_at_the_end() -> None:
    positions = Positions(NAME, {P0: 0}, {P0: 5})
    assert positions.crosses_end({P0: 6})
    assert [offset for offset in range(4, 8) if positions.within(P0, offset)] == [4]
    positions.move({P0: 9})
    assert positions.next_offsets == {P0: 5}
    assert positions.finished


def test_a_start_behind_the_end_stays_where_it_is() -> None:
    positions = Positions(NAME, {P0: 9}, {P0: 5})
    assert positions.finished
    positions.move({P0: 12})
    assert positions.next_offsets == {P0: 9}


def test_a_bounded_read_needs_every_end() -> None:
    with pytest.raises(ValueError, match="an end for each"):
        Positions(NAME, {P0: 0, P1: 0}, {P0: 5})


def test_F04_restored_positions_of_this_subtask_and_unknown_partitions() -> None:
    restored = SourcePositions(NAME, ((P0, 4), (TopicPartition("orders", 9), 1)), ((P0, 6),))
    assert derive_restored([P0, P1], restored) == ({P0: 4}, {P0: 6}, [P1])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (10, "orders[0]: offset 10 is gone, the log now starts at 30: 20 offsets were removed"),
        (99, "orders[0]: offset 99 is past the end of the log (30 to 50)"),
        (51, "orders[0]: offset 51 is past the end of the log (30 to 50)"),
        (50, "orders[0]: offset 50 was past the end of the log, which is 30 to 50 now: it was truncated and has "),
        (30, "orders[0]: offset 30 was past the end of the log, which is 30 to 50 now"),
    ],
)
def test_lost_input_is_told_with_its_range(wanted: int, message: str) -> None:
    assert describe_out_of_range(P0, wanted, 30, 50).startswith(message)


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from([P0, P1]), st.integers(0, 30))), st.integers(0, 20))
def test_positions_only_grow_and_never_pass_the_end(events: list[dict[TopicPartition, int]], end: int) -> None:
    positions = Positions(NAME, {P0: 0, P1: 0}, {P0: end, P1: end})
    before = dict(positions.next_offsets)
    for event in events:
        positions.move(event)
        assert all(before[part] <= offset <= end for part, offset in positions.next_offsets.items())
        before = dict(positions.next_offsets)
    assert positions.finished == all(offset == end for offset in before.values())


def test_records_up_to_an_end_do_not_cross_it_and_an_unbounded_read_has_none() -> None:
    bounded = Positions(NAME, {P0: 3, P1: 3}, {P0: 5, P1: 9})
    assert [bounded.crosses_end({P0: first, P1: 9}) for first in (5, 6)] == [False, True]
    assert not Positions(NAME, {P0: 3}).crosses_end({P0: 1000})


def test_a_read_has_caught_up_when_every_partition_has_passed_what_it_held_at_the_start() -> None:
    positions = Positions(NAME, {P0: 0, P1: 7}, initial_ends={P0: 5, P1: 7})
    positions.move({P0: 4, P1: 9})
    assert not positions.caught_up
    positions.move({P0: 6})  # the end may be a gap: of a marker, or of compaction
    assert positions.caught_up


def test_a_bounded_read_has_caught_up_when_it_is_finished() -> None:
    positions = Positions(NAME, {P0: 0}, {P0: 5})
    assert not positions.caught_up
    positions.move({P0: 5})
    assert positions.caught_up


def test_a_read_of_no_partition_has_caught_up() -> None:
    assert Positions(NAME, {}).caught_up
