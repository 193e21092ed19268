"""New partitions of a running source, and topics that are not the same any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.coordinator.discovery import (
    Addition,
    TopicGone,
    TopicReplaced,
    decide_additions,
    decide_missing,
    decide_same_topics,
    derive_assigned,
)
from tidegate.ids import OperatorName, SlotIndex, TopicPartition
from tidegate.plan.assignment import assign_added, assign_partitions

ORDERS = OperatorName("orders")
OTHERS = OperatorName("others")


def parts(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def test_new_partitions_go_to_the_slots_with_the_fewest() -> None:
    assigned = {ORDERS: (parts("orders", 0, 2), parts("orders", 1))}
    assert decide_additions(assigned, {ORDERS: {"orders": 6}}) == (
        Addition(SlotIndex(0), ORDERS, parts("orders", 4)),
        Addition(SlotIndex(1), ORDERS, parts("orders", 3, 5)),
    )


def test_nothing_new_is_no_addition() -> None:
    assigned = {ORDERS: (parts("orders", 0), parts("orders", 1))}
    assert decide_additions(assigned, {ORDERS: {"orders": 2}}) == ()


def test_a_topic_that_is_not_told_of_adds_nothing() -> None:
    assert decide_additions({ORDERS: (parts("orders", 0), ())}, {ORDERS: {}}) == ()


def test_a_topic_that_stays_away_for_three_looks_is_gone() -> None:
    once = decide_missing(["orders", "paid"], ["paid"], {})
    twice = decide_missing(["orders", "paid"], ["paid"], once)
    assert (once, twice) == ({"orders": 1}, {"orders": 2})
    with pytest.raises(
        TopicGone, match=r"topic orders no longer exists.* empty `checkpoints.*another topic"
    ) as stopped:
        decide_missing(["orders", "paid"], ["paid"], twice)
    assert "create it" not in stopped.value.message  # a start refuses a new topic of this name


def test_a_topic_that_is_back_begins_to_be_missed_anew() -> None:
    assert decide_missing(["orders"], ["orders"], {"orders": 2}) == {}


def test_a_slot_without_partitions_gets_the_first_new_one() -> None:
    assigned = {ORDERS: (parts("orders", 0), (), ())}
    assert decide_additions(assigned, {ORDERS: {"orders": 2}}) == (Addition(SlotIndex(1), ORDERS, parts("orders", 1)),)


def test_sources_without_an_assignment_are_left_alone() -> None:
    """Those of bounded reads."""
    assert decide_additions({}, {OTHERS: {"others": 9}}) == ()


def test_the_same_topic_of_two_sources_is_found_by_both() -> None:
    assigned = {ORDERS: (parts("orders", 0),), OTHERS: (parts("orders", 0),)}
    found = decide_additions(assigned, {ORDERS: {"orders": 2}, OTHERS: {"orders": 2}})
    assert [(one.source, one.partitions) for one in found] == [
        (ORDERS, parts("orders", 1)),
        (OTHERS, parts("orders", 1)),
    ]


@given(st.integers(1, 7), st.lists(st.integers(0, 12), min_size=1, max_size=5))
def test_each_partition_is_found_once_whatever_the_steps(parallelism: int, counts: list[int]) -> None:
    """A topic that grows in steps, and looks in between: every partition has one slot, and no slot two too many."""
    counts.sort()
    assigned = {ORDERS: assign_partitions(parts("orders", *range(counts[0])), parallelism)}
    for count in counts:
        additions = decide_additions(assigned, {ORDERS: {"orders": count}})
        assert additions == decide_additions(assigned, {ORDERS: {"orders": count}})
        assigned = derive_assigned(assigned, additions)  # type: ignore[assignment]  # a Mapping is all that is asked of it
        assert decide_additions(assigned, {ORDERS: {"orders": count}}) == ()
        dealt = [part for slot in assigned[ORDERS] for part in slot]
        assert sorted(dealt) == list(parts("orders", *range(count)))
        sizes = [len(slot) for slot in assigned[ORDERS]]
        assert max(sizes) - min(sizes) <= 1


def test_what_a_slot_has_is_never_given_to_another() -> None:
    assert assign_added((parts("a", 0, 1, 2), ()), parts("a", 0, 1, 2)) == ((), ())


def test_a_topic_of_another_id_stops_the_pipeline_and_tells_both_ids() -> None:
    with pytest.raises(TopicReplaced, match=r"orders was deleted and created again .* \(id one, now two\)") as stopped:
        decide_same_topics({"out": "x", "orders": "one"}, {"orders": "two", "out": "x"})
    assert (stopped.value.exit_code, stopped.value.retriable) == (4, False)


def test_a_replaced_topic_has_a_remedy_for_a_source_and_one_for_a_sink() -> None:
    with pytest.raises(TopicReplaced) as stopped:
        decide_same_topics({"orders": "one"}, {"orders": "two"})
    remedies = (
        ". If a source reads it and others, leave it out of the source, and start once with --drop SOURCE.TOPIC, which "
        "gives up the positions in this topic alone. If a source reads nothing else, give the source a new name, leave "
        "the topic out of it, and start once with --drop and the former name: steps keep their state, and the new "
        "source begins at its `start`; or start with an empty `checkpoints.directory` and --begin-anew. If only a sink "
        "writes to it, give the sink another topic, which keeps state and positions"
    )
    assert stopped.value.message.endswith(remedies)


def test_a_topic_that_is_away_for_the_moment_is_not_judged() -> None:
    decide_same_topics({"orders": "one"}, {})
