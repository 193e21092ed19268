"""What a subtask gives up must reach the coordinator and the receivers."""

from __future__ import annotations

import pytest

from tidegate.ids import Attempt, CheckpointId, SlotIndex, SubtaskId, VertexId
from tidegate.simulation.faults import Fault
from tidegate.simulation.given_up import GivenUp

ONE = Attempt(1)
SUBTASK = SubtaskId(VertexId("totals"), SlotIndex(0))


def checkpoint(number: int) -> CheckpointId:
    return CheckpointId(number)


def test_a_checkpoint_that_expires_long_after_a_subtask_has_given_it_up_is_a_violation() -> None:
    given_up = GivenUp(aligned=True)
    given_up.given_up(ONE, checkpoint(4), 10.0)
    given_up.given_up(ONE, checkpoint(4), 11.9)
    assert given_up.check_expired(ONE, checkpoint(4), 12.0, ())
    assert given_up.check_expired(ONE, checkpoint(4), 10.9, ()) == []
    assert given_up.check_expired(ONE, checkpoint(5), 12.0, ()) == []
    assert given_up.check_expired(Attempt(2), checkpoint(4), 12.0, ()) == []


@pytest.mark.parametrize(
    "fault",
    [Fault(kind="freeze", at_s=1.0), Fault(kind="partition", at_s=1.0), Fault(kind="lose", point="slot.ack", nth=1)],
)
def test_a_decline_may_be_held_up_by_a_fault(fault: Fault) -> None:
    given_up = GivenUp(aligned=True)
    given_up.given_up(ONE, checkpoint(4), 10.0)
    assert given_up.check_expired(ONE, checkpoint(4), 12.0, [fault]) == []


def test_a_cancellation_that_has_not_come_on_every_edge_in_front_of_a_later_barrier_is_a_violation() -> None:
    given_up = GivenUp(aligned=True)
    given_up.declined(ONE, SUBTASK, checkpoint(4), 10.0, (0, 1))
    given_up.marker_arrived(ONE, checkpoint(4), 0)
    assert given_up.check_completed(Attempt(2), checkpoint(5)) == []
    assert "on edges [1]" in given_up.check_completed(ONE, checkpoint(5))[0]


def test_cancellations_on_every_edge_are_right() -> None:
    given_up = GivenUp(aligned=True)
    given_up.declined(ONE, SUBTASK, checkpoint(4), 10.0, (0, 1))
    for edge in (0, 1):
        given_up.marker_arrived(ONE, checkpoint(4), edge)
    assert given_up.check_completed(ONE, checkpoint(5)) == []


def test_barriers_that_overtake_may_come_before_a_cancellation() -> None:
    given_up = GivenUp(aligned=False)
    given_up.declined(ONE, SUBTASK, checkpoint(4), 10.0, (0,))
    assert given_up.check_completed(ONE, checkpoint(5)) == []


def test_a_subtask_sends_cancellations_before_anything_else() -> None:
    """Whatever a later checkpoint does: it may never come."""
    given_up = GivenUp(aligned=False)
    given_up.declined(ONE, SUBTASK, checkpoint(4), 10.0, (0, 1))
    given_up.marker_sent(ONE, SUBTASK, checkpoint(4), 1)
    assert given_up.check_sent(ONE, SubtaskId(VertexId("totals"), SlotIndex(1))) == []
    (problem,) = given_up.check_sent(ONE, SUBTASK)
    assert "given up checkpoint 4 and sent no cancellation on edges [0]" in problem
    assert given_up.check_sent(ONE, SUBTASK) == [], "it is reported once"


def test_cancellations_that_were_sent_are_asked_for_no_more() -> None:
    given_up = GivenUp(aligned=True)
    given_up.declined(ONE, SUBTASK, checkpoint(4), 10.0, (0,))
    given_up.marker_sent(ONE, SUBTASK, checkpoint(4), 0)
    assert given_up.check_sent(ONE, SUBTASK) == []
    given_up.marker_sent(ONE, SUBTASK, checkpoint(9), 0)
