"""What an ack means, and what becomes of the state that it names."""

from __future__ import annotations

import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
    SUBTASKS,
    TOTALS,
    ack,
    acknowledge_all,
    committable,
    completed,
    handle,
    job,
    journaled,
    of,
    only,
    positions,
    running,
    settings,
)
from tidegate.coordinator.events import (
    PERIODIC,
    AckOutcome,
    AckReceived,
    AckRefused,
    AppendCheckpoint,
    AttemptEnded,
    CheckpointFailure,
    DeclineReceived,
    DiscardStates,
    NotifyAborted,
    NotifyCompleted,
    SendTrigger,
    Tick,
)
from tidegate.coordinator.pending import NEXT, PendingCheckpoint, PendingPhase
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.types import Decline
from tidegate.ids import CheckpointId, SlotIndex, SubtaskId, VertexId

STRANGER = SubtaskId(VertexId("gone"), SlotIndex(0))


def pending() -> PendingCheckpoint:
    return PendingCheckpoint(CheckpointId(1), ATTEMPT, PERIODIC, 1000, SUBTASKS)


def test_C18_an_ack_is_recorded_and_the_last_one_completes() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    assert coordinator.handle(AckReceived(ack(1, SOURCE), 1001)) == ()
    assert only(coordinator.handle(AckReceived(ack(1, TOTALS), 1002)), AppendCheckpoint).checkpoint.id == 1


def test_C19_duplicate_ack_is_ignored_and_its_state_kept() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    first = ack(1, TOTALS, states=[handle(1)])
    coordinator.handle(AckReceived(first, 1001))
    out = coordinator.handle(AckReceived(first, 1002))
    assert out == (AckRefused(CheckpointId(1), TOTALS, AckOutcome.DUPLICATE),)
    done = only(coordinator.handle(AckReceived(ack(1, SOURCE), 1003)), AppendCheckpoint)
    assert done.checkpoint.states == (handle(1),)


@pytest.mark.parametrize("moment", ["appending", "decided"])
def test_C19_duplicate_ack_after_completion_never_discards(moment: str) -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    late = ack(1, TOTALS, states=[handle(1)])
    coordinator.handle(AckReceived(late, 1001))
    coordinator.handle(AckReceived(ack(1, SOURCE), 1001))
    if moment == "decided":
        coordinator.handle(journaled(1, 1002))
    out = coordinator.handle(AckReceived(late, 1003))
    assert only(out, AckRefused).outcome is AckOutcome.DUPLICATE
    assert of(out, DiscardStates) == []


def test_C20_state_of_an_unknown_subtask_is_discarded() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    out = coordinator.handle(AckReceived(ack(1, STRANGER, states=[handle(1, "gone")]), 1001))
    assert only(out, AckRefused).outcome is AckOutcome.UNKNOWN
    assert only(out, DiscardStates).handles == (handle(1, "gone"),)


def test_C21_state_for_a_given_up_checkpoint_is_discarded() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), SOURCE, "x"), 1001))
    out = coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)]), 1002))
    assert only(out, AckRefused).outcome is AckOutcome.DISCARDED
    assert only(out, DiscardStates).handles == (handle(1),)


def test_C21_transactions_of_a_late_ack_are_listed_by_the_next_checkpoint() -> None:
    """Its records are in the state of every later checkpoint, and no source will send them again."""
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), SOURCE, "x"), 1001))
    coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(1)]), 1002))
    coordinator.handle(Tick(2100))
    out = acknowledge_all(coordinator, 2, 2101)
    assert only(out, AppendCheckpoint).checkpoint.committables == (committable(1),)


def test_C21_a_discarded_pending_checkpoint_takes_no_ack() -> None:
    one = pending()
    one.move(PendingPhase.DISCARDED)
    assert one.acknowledge(ack(1, SOURCE), 1001) is AckOutcome.DISCARDED


def test_C22_a_given_up_checkpoint_that_is_still_under_way_is_an_error_with_its_story() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, SOURCE), 1001))
    coordinator._pending[CheckpointId(1)].move(PendingPhase.DISCARDED)
    with pytest.raises(ProtocolBroken, match=r"given up but is still under way.*ack of orders\[0\] at 1001"):
        coordinator.handle(AckReceived(ack(1, TOTALS), 1002))


def test_C23_state_of_a_late_ack_is_discarded() -> None:
    out = running().handle(AckReceived(ack(77, TOTALS, states=[handle(77)]), 1001))
    assert only(out, AckRefused).outcome is AckOutcome.LATE
    assert only(out, DiscardStates).handles == (handle(77),)


def test_C23_a_late_ack_never_discards_what_a_retained_checkpoint_needs() -> None:
    coordinator = running(work=job(retained=[completed(5, states=[handle(5)])]))
    out = coordinator.handle(AckReceived(ack(5, TOTALS, states=[handle(5)]), 1001))
    assert only(out, AckRefused).outcome is AckOutcome.LATE
    assert of(out, DiscardStates) == []


def test_C37_an_ack_of_an_older_attempt_is_refused_and_its_garbage_discarded() -> None:
    coordinator = running(work=job(retained=[completed(5, states=[handle(5)])]))
    coordinator.handle(Tick(1000))
    old = ack(1, TOTALS, attempt=ATTEMPT - 1, states=[handle(4), handle(5)])
    out = coordinator.handle(AckReceived(old, 1001))
    assert only(out, AckRefused).outcome is AckOutcome.STALE
    assert only(out, DiscardStates).handles == (handle(4),)
    assert of(coordinator.handle(AckReceived(ack(1, SOURCE), 1002)), AppendCheckpoint) == []


def test_C37_an_ack_of_a_newer_attempt_touches_nothing() -> None:
    out = running().handle(AckReceived(ack(1, TOTALS, attempt=ATTEMPT + 1, states=[handle(1)]), 1))
    assert out == (AckRefused(CheckpointId(1), TOTALS, AckOutcome.STALE),)


def test_C27_three_maps_and_completion_when_the_first_is_empty() -> None:
    one = pending()
    assert one.waiting == SUBTASKS
    one.acknowledge(ack(1, TOTALS, states=[handle(1)]), 1001)
    assert (one.waiting, set(one.acks)) == ({SOURCE}, {TOTALS})
    assert one.states == {"totals": {TOTALS: (handle(1),)}}
    one.acknowledge(ack(1, SOURCE), 1002)
    assert (one.waiting, one.phase) == (set(), PendingPhase.ACKNOWLEDGED)


def test_C27_completion_with_acks_missing_is_an_error() -> None:
    with pytest.raises(ProtocolBroken, match="2 acks are missing"):
        pending().complete((), 1000)


def test_C28_one_ack_carries_the_states_of_several_operators() -> None:
    one = pending()
    one.acknowledge(ack(1, TOTALS, states=[handle(1, "b"), handle(1, "a")]), 1001)
    one.acknowledge(ack(1, SOURCE), 1001)
    assert [part.operator for part in one.complete((), 1002).states] == ["a", "b"]


def test_C03_C36_F08_F18_positions_and_handles_of_all_subtasks_are_in_the_checkpoint() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    at = positions("orders", {"orders": {0: 17}})
    coordinator.handle(AckReceived(ack(1, SOURCE, at=[at]), 1001))
    done = only(coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)]), 1002)), AppendCheckpoint)
    assert done.checkpoint.positions == (at,)
    assert done.checkpoint.states == (handle(1),)
    assert (done.checkpoint.triggered_at_ms, done.checkpoint.completed_at_ms) == (1000, 1002)


def test_X05_stamps_are_of_the_wall_clock_and_nothing_else_is() -> None:
    """It is set back by an hour between trigger and completion: the next checkpoint comes when it is due."""
    coordinator, hour_ms = running(), 3_600_000
    wall_ms = 1_700_000_000_000
    triggered = only(coordinator.handle(Tick(1000), wall_ms), SendTrigger)
    assert triggered.timestamp_ms == wall_ms + 1000
    coordinator.handle(AckReceived(ack(1, SOURCE), 1001), wall_ms)
    done = only(coordinator.handle(AckReceived(ack(1, TOTALS), 1030), wall_ms - hour_ms), AppendCheckpoint).checkpoint
    assert done.completed_at_ms == wall_ms - hour_ms + 1030
    assert done.completed_at_ms - done.triggered_at_ms == 30
    coordinator.handle(journaled(1, 1031), wall_ms - hour_ms)
    assert coordinator.next_deadline_ms() == 2000
    assert only(coordinator.handle(Tick(2000), wall_ms - hour_ms), SendTrigger).checkpoint == 2


def test_F11_C03_nothing_is_complete_before_every_subtask_has_acknowledged() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    sink_only = coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(1)]), 1001))
    assert of(sink_only, AppendCheckpoint) == []


def test_C17_C24_completion_subsumes_older_checkpoints_and_discards_their_state() -> None:
    coordinator = running(settings(max_concurrent=2))
    coordinator.handle(Tick(1000))
    coordinator.handle(Tick(2000))
    coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)]), 2001))
    acknowledge_all(coordinator, 2, 2002)
    out = coordinator.handle(journaled(2, 2003))
    gone = only(out, NotifyAborted)
    assert (gone.checkpoint, gone.reason) == (CheckpointId(1), CheckpointFailure.SUBSUMED)
    assert only(out, DiscardStates).handles == (handle(1),)
    assert only(out, NotifyCompleted).checkpoint.id == 2


def test_C24_a_newer_checkpoint_is_not_subsumed() -> None:
    coordinator = running(settings(max_concurrent=2))
    coordinator.handle(Tick(1000))
    coordinator.handle(Tick(2000))
    acknowledge_all(coordinator, 1, 2002)
    out = coordinator.handle(journaled(1, 2003))
    assert of(out, NotifyAborted) == []
    assert coordinator.under_way == (2,)


def test_F27_state_of_undecided_checkpoints_is_discarded_when_the_attempt_ends() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)]), 1001))
    assert coordinator.handle(AttemptEnded(1002)) == (DiscardStates((handle(1),)),)


def test_F27_state_of_an_append_under_way_is_kept_when_the_attempt_ends() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)]), 1001))
    coordinator.handle(AckReceived(ack(1, SOURCE), 1001))
    assert coordinator.handle(AttemptEnded(1002)) == ()
    assert coordinator.handle(journaled(1, 1003)) == ()


STEPS = [(before, after) for before in PendingPhase for after in PendingPhase]


@pytest.mark.parametrize(("before", "after"), STEPS, ids=[f"{a.name}-{b.name}" for a, b in STEPS])
def test_every_step_of_a_pending_checkpoint_is_allowed_or_tells_its_story(
    before: PendingPhase, after: PendingPhase
) -> None:
    one = pending()
    one.phase = before
    one.story.tell("something happened")
    if after in NEXT[before]:
        one.move(after)
        assert one.phase is after
    else:
        with pytest.raises(ProtocolBroken, match=f"from {before.name} to {after.name}.*something happened"):
            one.move(after)
        assert one.phase is before
