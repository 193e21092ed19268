"""A savepoint in the coordinator: forced, decides nothing, waits for the commit of the output before it."""

from __future__ import annotations

import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
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
    running,
    settings,
)
from tidegate.committable import Committable
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    FINAL,
    FORCED,
    ORDERED,
    PERIODIC,
    SAVEPOINT,
    AckReceived,
    AppendCheckpoint,
    AttemptEnded,
    CheckpointFailure,
    CommitTransactions,
    DeclineReceived,
    DiscardStates,
    FailAttempt,
    FinishPipeline,
    Instruction,
    NotifyAborted,
    NotifyCompleted,
    SavepointFailed,
    SavepointWritten,
    SendTrigger,
    Tick,
    TransactionsEnded,
    TriggerRefusal,
    TriggerRefused,
    TriggerRequested,
    WriteSavepoint,
)
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.types import Decline, StateHandle
from tidegate.ids import CheckpointId

ONE, TWO = CheckpointId(1), CheckpointId(2)


def ask(coordinator: Coordinator, now_ms: int = 1) -> tuple[Instruction, ...]:
    return coordinator.handle(TriggerRequested(now_ms, savepoint=True))


def acks(
    coordinator: Coordinator,
    checkpoint: int,
    *committables: Committable,
    now_ms: int = 10,
    states: tuple[StateHandle, ...] | None = None,
) -> tuple[Instruction, ...]:
    """All acks; the sink's state is its own unless given."""
    coordinator.handle(AckReceived(ack(checkpoint, SOURCE), now_ms))
    given = (handle(checkpoint),) if states is None else states
    return coordinator.handle(AckReceived(ack(checkpoint, TOTALS, states=given, committables=committables), now_ms))


def writing() -> tuple[Coordinator, WriteSavepoint]:
    """Savepoint 1 has its acks, checkpoint 2 after it is committed."""
    coordinator = running()
    ask(coordinator)
    acks(coordinator, 1, committable(1))
    acks(coordinator, 2, committable(1), committable(2, producer_id=101, pool_slot=1))
    coordinator.handle(journaled(2, 20))
    both = (committable(1), committable(2, producer_id=101, pool_slot=1))
    out = coordinator.handle(TransactionsEnded(TWO, both, 30))
    return coordinator, only(out, WriteSavepoint)


def test_C16_properties_of_the_five_kinds() -> None:
    kinds = (PERIODIC, ORDERED, FORCED, FINAL, SAVEPOINT)
    assert [kind.periodic for kind in kinds] == [True, False, False, False, False]
    assert [kind.forced for kind in kinds] == [False, False, True, True, True]
    assert [kind.savepoint for kind in kinds] == [False, False, False, False, True]
    assert [kind.subsumed for kind in kinds] == [True, True, True, True, False]
    assert [kind.aligned for kind in kinds] == [False, False, False, True, True]


def test_C15_a_savepoint_is_forced_past_the_limit_and_the_pause() -> None:
    coordinator = running(settings(min_pause_ms=60_000))
    coordinator.handle(Tick(1000))
    acknowledge_all(coordinator, 1, 1010)
    coordinator.handle(journaled(1, 1020))
    trigger = only(ask(coordinator, 1021), SendTrigger)
    assert (trigger.checkpoint, trigger.properties) == (2, SAVEPOINT)
    busy = running()
    busy.handle(Tick(1000))
    assert only(ask(busy, 1001), SendTrigger).properties == SAVEPOINT


def test_C15_a_savepoint_is_one_off_and_periodic_checkpoints_are_not_forced() -> None:
    coordinator = running()
    assert only(coordinator.handle(Tick(1000)), SendTrigger).properties == PERIODIC
    assert only(ask(coordinator, 1001), SendTrigger).properties == SAVEPOINT
    acknowledge_all(coordinator, 1, 1010)
    coordinator.handle(journaled(1, 1020))
    assert only(acks(coordinator, 2, now_ms=1030), SendTrigger).properties == FORCED


def test_a_second_savepoint_is_refused_while_one_is_under_way() -> None:
    coordinator = running()
    ask(coordinator)
    refused = only(ask(coordinator, 2), TriggerRefused)
    assert refused == TriggerRefused(TriggerRefusal.SAVEPOINT_UNDER_WAY, SAVEPOINT)


def test_C10_a_savepoint_leaves_the_reserved_ids_that_checkpoints_may_need() -> None:
    given = settings(tolerable_failures=1)
    assert only(ask(running(given, job(reserved_to=5))), SendTrigger).checkpoint == 1
    assert only(ask(running(given, job(reserved_to=4))), TriggerRefused).refusal is TriggerRefusal.NO_ID


def test_a_checkpoint_is_begun_behind_an_acknowledged_savepoint_although_the_limit_is_1() -> None:
    coordinator = running()
    ask(coordinator)
    out = acks(coordinator, 1, committable(1))
    assert of(out, AppendCheckpoint) == []
    behind = only(out, SendTrigger)
    assert (behind.checkpoint, behind.properties) == (2, FORCED)


def test_a_checkpoint_that_is_under_way_behind_it_is_enough() -> None:
    coordinator = running(settings(max_concurrent=2))
    ask(coordinator)
    coordinator.handle(Tick(1000))
    assert of(acks(coordinator, 1, now_ms=1001), SendTrigger) == []


def test_C26_the_output_before_a_savepoint_is_committed_by_the_checkpoint_behind_it() -> None:
    coordinator = running()
    ask(coordinator)
    acks(coordinator, 1, committable(1))
    out = acks(coordinator, 2, committable(1))
    assert only(out, AppendCheckpoint).checkpoint.committables == (committable(1),)
    decided = coordinator.handle(journaled(2, 20))
    assert of(decided, WriteSavepoint) == []
    assert only(decided, CommitTransactions).checkpoint == 2
    ended = coordinator.handle(TransactionsEnded(TWO, (committable(1),), 30), wall_offset_ms=7_000)
    assert [type(one) for one in ended] == [NotifyCompleted, WriteSavepoint]
    written = only(ended, WriteSavepoint).checkpoint
    assert (written.id, written.states, written.committables) == (1, (handle(1),), ())
    assert written.completed_at_ms == 7_030


def test_C26_a_savepoint_cancels_no_older_checkpoint_and_no_newer_one_cancels_it() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    ask(coordinator, 1001)
    assert of(acks(coordinator, 2, now_ms=1002), NotifyAborted) == []
    assert coordinator.under_way == (1, 2, 3)
    acks(coordinator, 3, now_ms=1003)
    out = coordinator.handle(journaled(3, 1004))
    assert [(a.checkpoint, a.reason) for a in of(out, NotifyAborted)] == [(1, CheckpointFailure.SUBSUMED)]
    assert only(out, WriteSavepoint).checkpoint.id == 2


def test_a_savepoint_whose_acks_come_after_a_newer_commit_is_written_at_once() -> None:
    coordinator = running(settings(max_concurrent=2))
    ask(coordinator)
    coordinator.handle(Tick(1000))
    acknowledge_all(coordinator, 2, 1010)
    coordinator.handle(journaled(2, 1020))
    out = acks(coordinator, 1, now_ms=1030)
    assert only(out, WriteSavepoint).checkpoint.id == 1
    assert of(out, SendTrigger) == []


def test_C29_a_savepoint_counts_only_when_its_files_are_written_and_then_its_state_is_dropped() -> None:
    coordinator, order = writing()
    assert 1 in coordinator.under_way
    out = coordinator.handle(SavepointWritten(ONE, 40))
    assert only(out, DiscardStates).handles == order.checkpoint.states
    assert 1 not in coordinator.under_way


def test_C26_state_that_a_savepoint_shares_with_a_retained_checkpoint_stays() -> None:
    base = handle(1)
    coordinator = running(work=job(first=2, retained=[completed(1, states=[base])]))
    ask(coordinator)
    acks(coordinator, 2, states=(base, handle(2)))
    acks(coordinator, 3, states=(base, handle(3)))
    coordinator.handle(journaled(3, 20))
    out = coordinator.handle(SavepointWritten(TWO, 40))
    assert only(out, DiscardStates).handles == (handle(2),)


def test_a_savepoint_that_cannot_be_written_fails_alone() -> None:
    coordinator, order = writing()
    out = coordinator.handle(SavepointFailed(ONE, "no space", 40))
    aborted = only(out, NotifyAborted)
    assert (aborted.reason, aborted.detail) == (CheckpointFailure.WRITE_FAILED, "no space")
    assert only(out, DiscardStates).handles == order.checkpoint.states
    assert of(out, FailAttempt) == []


def test_failed_savepoints_do_not_count_as_failed_checkpoints() -> None:
    coordinator = running(settings(tolerable_failures=0))
    for number in (1, 2, 3):
        ask(coordinator, number)
        out = coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(number), TOTALS, "no"), number))
        assert only(out, NotifyAborted).reason is CheckpointFailure.DECLINED
        assert of(out, FailAttempt) == []


@pytest.mark.parametrize(("acknowledged", "told"), [(False, "no ack from 2 subtasks"), (True, "no checkpoint after")])
def test_C13_a_savepoint_expires_before_its_acks_and_while_it_waits_for_a_commit(acknowledged: bool, told: str) -> None:
    coordinator = running(settings(interval_ms=50_000, timeout_ms=5_000))
    ask(coordinator, 1)
    if acknowledged:
        acks(coordinator, 1)
        coordinator.handle(DeclineReceived(Decline(ATTEMPT, TWO, TOTALS, "no"), 20))
    assert coordinator.next_deadline_ms() == 5_001
    aborted = [one for one in of(coordinator.handle(Tick(5_001)), NotifyAborted) if one.checkpoint == 1]
    assert [(one.reason, told in one.detail) for one in aborted] == [(CheckpointFailure.EXPIRED, True)]


def test_the_pipeline_finishes_behind_a_savepoint_that_is_being_written() -> None:
    coordinator = running()
    ask(coordinator)
    acks(coordinator, 1)
    coordinator.handle(TriggerRequested(20, final=True))
    acks(coordinator, 2, now_ms=30)
    assert of(coordinator.handle(journaled(2, 40)), WriteSavepoint)
    acks(coordinator, 3, now_ms=50)
    assert of(coordinator.handle(journaled(3, 60)), FinishPipeline) == []
    assert only(coordinator.handle(SavepointWritten(ONE, 70)), FinishPipeline).checkpoint == 3


def test_the_final_checkpoint_commits_for_a_savepoint_too() -> None:
    coordinator = running()
    ask(coordinator)
    coordinator.handle(TriggerRequested(5, final=True))
    assert of(acks(coordinator, 1), SendTrigger) == []
    acks(coordinator, 2, now_ms=30)
    out = coordinator.handle(journaled(2, 40))
    assert only(out, WriteSavepoint).checkpoint.id == 1
    assert of(out, FinishPipeline) == []
    assert only(coordinator.handle(SavepointFailed(ONE, "full", 50)), FinishPipeline).checkpoint == 2


def test_the_end_of_the_attempt_gives_a_savepoint_up_and_late_answers_change_nothing() -> None:
    coordinator, _ = writing()
    coordinator.handle(AttemptEnded(50))
    assert not coordinator.under_way
    assert coordinator.handle(SavepointWritten(ONE, 60)) == ()


def test_an_answer_for_a_savepoint_that_is_not_being_written_is_a_defect() -> None:
    coordinator = running()
    ask(coordinator)
    with pytest.raises(ProtocolBroken, match="not being written"):
        coordinator.handle(SavepointWritten(ONE, 60))


def test_C19_a_repeated_ack_of_a_written_savepoint_is_a_duplicate() -> None:
    coordinator, _ = writing()
    coordinator.handle(SavepointWritten(ONE, 40))
    out = coordinator.handle(AckReceived(ack(1, TOTALS, states=[handle(1)], committables=[committable(1)]), 50))
    assert of(out, DiscardStates) == []


def test_a_checkpoint_that_lists_files_which_nobody_retains_is_given_up() -> None:
    """They may be deleted at any time; completing it would retain a checkpoint without its state."""
    coordinator = running(work=job(first=5, retained=[completed(4, states=[handle(4)])]))
    coordinator.handle(Tick(1000))
    out = acks(coordinator, 5, now_ms=1010, states=(handle(3), handle(4), handle(5)))
    assert of(out, AppendCheckpoint) == []
    aborted = only(out, NotifyAborted)
    assert (aborted.reason, aborted.detail) == (CheckpointFailure.STATE_GONE, handle(3).path)
    assert only(out, DiscardStates).handles == (handle(3), handle(5))


def test_C31_files_that_a_retained_checkpoint_lists_may_be_listed_again() -> None:
    coordinator = running(work=job(first=5, retained=[completed(4, states=[handle(3), handle(4)])]))
    coordinator.handle(Tick(1000))
    out = acks(coordinator, 5, now_ms=1010, states=(handle(3), handle(5)))
    assert only(out, AppendCheckpoint).checkpoint.states == (handle(3), handle(5))


def test_a_notice_names_the_files_that_pending_checkpoints_need() -> None:
    coordinator = running(settings(max_concurrent=2), job(first=5, retained=[completed(4, states=[handle(4)])]))
    coordinator.handle(Tick(1000))
    coordinator.handle(Tick(2000))
    coordinator.handle(AckReceived(ack(6, TOTALS, states=[handle(4), handle(6)]), 2010))
    acknowledge_all(coordinator, 5, 2020)
    notice = only(coordinator.handle(journaled(5, 2030)), NotifyCompleted)
    assert notice.needed == {handle(4).path, handle(6).path}
