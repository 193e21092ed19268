"""Key groups and partitions: cut evenly, once each, the same for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ids import SlotIndex, TopicPartition
from tidegate.plan.assignment import assign_partitions, key_group_range

PARALLELISM = st.integers(1, 200).flatmap(lambda p: st.tuples(st.just(p), st.integers(p, 400)))


@given(PARALLELISM)
def test_ranges_cut_all_key_groups_in_order_and_evenly(sizes: tuple[int, int]) -> None:
    parallelism, max_parallelism = sizes
    ranges = [key_group_range(SlotIndex(slot), parallelism, max_parallelism) for slot in range(parallelism)]
    assert [group for part in ranges for group in part] == list(range(max_parallelism))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        (1, [range(128)]),
        (2, [range(64), range(64, 128)]),
        (3, [range(43), range(43, 86), range(86, 128)]),
    ],
)
def test_ranges_are_fixed_for_ever(parallelism: int, expected: list[range]) -> None:
    assert [key_group_range(SlotIndex(slot), parallelism, 128) for slot in range(parallelism)] == expected


@given(st.sets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 20))), st.integers(1, 8))
def test_partitions_are_dealt_out_once_and_evenly_whatever_their_order(
    partitions: set[TopicPartition], parallelism: int
) -> None:
    assigned = assign_partitions(partitions, parallelism)
    assert sorted(part for slot in assigned for part in slot) == sorted(partitions)
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1
    assert assign_partitions(sorted(partitions, reverse=True), parallelism) == assigned


def test_slots_without_partitions_are_there() -> None:
    assert assign_partitions([TopicPartition("a", 0)], 3) == ((TopicPartition("a", 0),), (), ())


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128)])
def test_impossible_parallelism_is_refused(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(ValueError, match="is not within 1"):
        key_group_range(SlotIndex(0), parallelism, max_parallelism)


def test_what_is_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="slot 2"):
        key_group_range(SlotIndex(2), 2, 128)
    with pytest.raises(ValueError, match="below 1"):
        assign_partitions([], 0)
