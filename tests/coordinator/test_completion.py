"""From the last ack to the notice: one append at a time, commit, carried transactions, released ids."""

from __future__ import annotations

import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
    TOTALS,
    ack,
    acknowledge_all,
    committable,
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
    AckReceived,
    AppendCheckpoint,
    CheckpointFailure,
    CommitTransactions,
    DeclineReceived,
    DiscardStates,
    FailAttempt,
    FinishPipeline,
    Instruction,
    JournalFailed,
    NotifyAborted,
    NotifyCompleted,
    SendTrigger,
    StopPipeline,
    Tick,
    TransactionsEnded,
    TriggerRequested,
)
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.triggers import PHASES, AttemptPhase, Cause
from tidegate.coordinator.types import Decline
from tidegate.ids import CheckpointId


def acknowledge(
    coordinator: Coordinator, checkpoint: int, now_ms: int, *committables: Committable
) -> tuple[Instruction, ...]:
    coordinator.handle(AckReceived(ack(checkpoint, SOURCE), now_ms))
    sink = ack(checkpoint, TOTALS, states=[handle(checkpoint)], committables=committables)
    return coordinator.handle(AckReceived(sink, now_ms))


def test_C25_order_of_a_completion_journal_then_commit_then_notice() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    one = committable(1)
    append = acknowledge(coordinator, 1, 1001, one)
    assert only(append, AppendCheckpoint).checkpoint.committables == (one,)
    assert of(append, CommitTransactions) == []
    decided = coordinator.handle(journaled(1, 1002))
    assert decided == (CommitTransactions(CheckpointId(1)),)
    done = only(coordinator.handle(TransactionsEnded(CheckpointId(1), (one,), 1003)), NotifyCompleted)
    assert done.attempt == ATTEMPT
    assert (done.report.acknowledged_at_ms, done.report.journaled_at_ms, done.report.ended_at_ms) == (1001, 1002, 1003)
    assert (done.report.records, done.report.size_bytes) == (5, 10)


def test_a_checkpoint_without_transactions_is_notified_at_once() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001)
    out = coordinator.handle(journaled(1, 1002))
    assert of(out, CommitTransactions) == []
    assert only(out, NotifyCompleted).checkpoint.id == 1


def test_committables_of_a_completed_checkpoint_are_carried_until_they_are_ended() -> None:
    coordinator = running()
    first, second, third = committable(1, 100), committable(2, 101, pool_slot=1), committable(3, 102, pool_slot=2)
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001, first)
    coordinator.handle(journaled(1, 1002))
    coordinator.handle(Tick(2000))
    append = only(acknowledge(coordinator, 2, 2001, second), AppendCheckpoint)
    assert append.checkpoint.committables == (first, second)
    coordinator.handle(journaled(2, 2002))
    coordinator.handle(TransactionsEnded(CheckpointId(1), (first,), 2003))
    coordinator.handle(Tick(3000))
    append = only(acknowledge(coordinator, 3, 3001, third), AppendCheckpoint)
    assert append.checkpoint.committables == (second, third)


def test_committables_repeated_by_an_ack_are_listed_once() -> None:
    coordinator = running()
    first, second = committable(1, 100), committable(2, 101)
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001, first)
    coordinator.handle(journaled(1, 1002))
    coordinator.handle(Tick(2000))
    append = only(acknowledge(coordinator, 2, 2001, first, second), AppendCheckpoint)
    assert append.checkpoint.committables == (first, second)


def test_an_ended_committable_that_an_ack_repeats_is_not_listed_again() -> None:
    coordinator = running()
    first = committable(1)
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001, first)
    coordinator.handle(journaled(1, 1002))
    coordinator.handle(TransactionsEnded(CheckpointId(1), (first,), 1003))
    coordinator.handle(Tick(2000))
    append = only(acknowledge(coordinator, 2, 2001, first), AppendCheckpoint)
    assert append.checkpoint.committables == ()


def test_committables_of_a_given_up_checkpoint_are_in_the_next_one() -> None:
    coordinator = running()
    lost_interval, second = committable(1, 100), committable(2, 101)
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, TOTALS, committables=[lost_interval]), 1001))
    coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), SOURCE, "x"), 1002))
    coordinator.handle(Tick(2000))
    append = only(acknowledge(coordinator, 2, 2001, lost_interval, second), AppendCheckpoint)
    assert append.checkpoint.committables == (lost_interval, second)


def test_committables_carried_from_the_restore_are_in_the_first_checkpoint() -> None:
    old = committable(0, 99)
    coordinator = running(work=job(carried=[old]))
    coordinator.handle(Tick(1000))
    assert only(acknowledge(coordinator, 1, 1001), AppendCheckpoint).checkpoint.committables == (old,)


def test_two_descriptions_of_one_transaction_are_an_error() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(1, records=5)]), 1001))
    with pytest.raises(ProtocolBroken, match="in two different ways"):
        coordinator.handle(AckReceived(ack(1, SOURCE, committables=[committable(1, records=6)]), 1002))


def test_a_committable_of_a_later_checkpoint_is_an_error() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    with pytest.raises(ProtocolBroken, match="of the later checkpoint 2"):
        coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(2)]), 1001))


def test_an_id_is_released_only_when_the_newest_entry_no_longer_lists_it() -> None:
    coordinator = running()
    first, second = committable(1, 100, pool_slot=0), committable(2, 101, pool_slot=1)
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001, first)
    coordinator.handle(journaled(1, 1002))
    out = coordinator.handle(TransactionsEnded(CheckpointId(1), (first,), 1003))
    assert only(out, NotifyCompleted).released == frozenset()
    coordinator.handle(Tick(2000))
    acknowledge(coordinator, 2, 2001, second)
    coordinator.handle(journaled(2, 2002))
    out = coordinator.handle(TransactionsEnded(CheckpointId(2), (second,), 2003))
    assert only(out, NotifyCompleted).released == {first.transactional_id}


def test_completions_are_told_in_order_even_if_the_commits_are_not() -> None:
    coordinator = running()
    first, second = committable(1, 100), committable(2, 101, pool_slot=1)
    for checkpoint, one in ((1, first), (2, second)):
        coordinator.handle(Tick(checkpoint * 1000))
        acknowledge(coordinator, checkpoint, checkpoint * 1000 + 1, one)
        coordinator.handle(journaled(checkpoint, checkpoint * 1000 + 2))
    assert of(coordinator.handle(TransactionsEnded(CheckpointId(2), (second,), 2003)), NotifyCompleted) == []
    out = coordinator.handle(TransactionsEnded(CheckpointId(1), (first,), 2004))
    assert [note.checkpoint.id for note in of(out, NotifyCompleted)] == [1, 2]


def test_one_append_at_a_time_the_lowest_id_first() -> None:
    coordinator = running(settings(max_concurrent=3))
    for now_ms in (1000, 2000, 3000):
        coordinator.handle(Tick(now_ms))
    assert only(acknowledge_all(coordinator, 1, 3001), AppendCheckpoint).checkpoint.id == 1
    assert of(acknowledge_all(coordinator, 3, 3002), AppendCheckpoint) == []
    assert of(acknowledge_all(coordinator, 2, 3003), AppendCheckpoint) == []
    assert only(coordinator.handle(journaled(1, 3004)), AppendCheckpoint).checkpoint.id == 2
    assert only(coordinator.handle(journaled(2, 3005)), AppendCheckpoint).checkpoint.id == 3


def test_C24_a_complete_but_older_checkpoint_is_not_appended_after_a_newer_one() -> None:
    coordinator = running(settings(max_concurrent=2))
    coordinator.handle(Tick(1000))
    coordinator.handle(Tick(2000))
    acknowledge_all(coordinator, 2, 2001)
    acknowledge_all(coordinator, 1, 2002)
    out = coordinator.handle(journaled(2, 2003))
    assert of(out, AppendCheckpoint) == []
    assert only(out, NotifyAborted).reason is CheckpointFailure.SUBSUMED


def test_a_failed_append_fails_the_checkpoint_and_keeps_its_state_until_the_next_is_decided() -> None:
    coordinator = running()
    one = committable(1)
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001, one)
    out = coordinator.handle(JournalFailed(CheckpointId(1), "disk full", 1002))
    assert only(out, NotifyAborted).reason is CheckpointFailure.JOURNAL_FAILED
    assert of(out, DiscardStates) == []
    coordinator.handle(Tick(2000))
    append = only(acknowledge(coordinator, 2, 2001), AppendCheckpoint)
    assert append.checkpoint.committables == (one,)
    assert only(coordinator.handle(journaled(2, 2002)), DiscardStates).handles == (handle(1),)


def test_an_unsettled_append_ends_the_attempt() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001)
    out = coordinator.handle(JournalFailed(CheckpointId(1), "who knows", 1002, settled=False))
    assert only(out, FailAttempt).cause == "journal-unsettled"
    assert of(out, DiscardStates) == []


def test_an_append_that_cannot_be_retried_stops_the_pipeline() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    acknowledge(coordinator, 1, 1001)
    out = coordinator.handle(JournalFailed(CheckpointId(1), "corrupt", 1002, retriable=False))
    assert "corrupt" in only(out, StopPipeline).reason
    assert coordinator.phase is AttemptPhase.FAILED


def test_an_answer_of_the_journal_that_nobody_asked_for_is_an_error_with_its_story() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    with pytest.raises(ProtocolBroken, match=r"none is being appended.*trigger of 1 at 1000"):
        coordinator.handle(journaled(1, 1001))


def test_the_final_checkpoint_is_forced_ends_triggers_and_finishes_the_pipeline() -> None:
    coordinator = running()
    one = committable(2)
    coordinator.handle(Tick(1000))
    trigger = only(coordinator.handle(TriggerRequested(1100, final=True)), SendTrigger)
    assert (trigger.checkpoint, trigger.properties.final) == (2, True)
    assert of(coordinator.handle(Tick(5000)), SendTrigger) == []
    append = only(acknowledge(coordinator, 2, 5001, one), AppendCheckpoint)
    assert append.checkpoint.final
    assert of(coordinator.handle(journaled(2, 5002)), FinishPipeline) == []
    out = coordinator.handle(TransactionsEnded(CheckpointId(2), (one,), 5003))
    assert out[-1] == FinishPipeline(CheckpointId(2))
    assert coordinator.phase is AttemptPhase.FINISHED
    assert coordinator.next_deadline_ms() is None


def test_a_final_checkpoint_that_fails_ends_the_attempt() -> None:
    coordinator = running()
    coordinator.handle(TriggerRequested(1000, final=True))
    out = coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), TOTALS, "x"), 1001))
    assert only(out, FailAttempt).cause == "final-checkpoint-failed"


def test_nothing_is_decided_after_the_attempt_was_given_up() -> None:
    coordinator = running(settings(max_concurrent=2, tolerable_failures=0))
    coordinator.handle(Tick(1000))
    coordinator.handle(Tick(2000))
    coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), TOTALS, "x"), 2001))
    assert coordinator.phase is AttemptPhase.FAILED
    assert of(acknowledge_all(coordinator, 2, 2002), AppendCheckpoint) == []


PAIRS = [(phase, cause) for phase in AttemptPhase for cause in Cause]


@pytest.mark.parametrize(("phase", "cause"), PAIRS, ids=[f"{p.name}-{c.name}" for p, c in PAIRS])
def test_every_phase_and_cause_is_in_the_table_or_tells_its_story(phase: AttemptPhase, cause: Cause) -> None:
    coordinator = Coordinator(settings(), job())
    coordinator._phase = phase
    if (phase, cause) in PHASES:
        coordinator._move(cause)
        assert coordinator.phase is PHASES[phase, cause]
    else:
        with pytest.raises(ProtocolBroken, match=f"attempt 3 is {phase.name} when {cause}"):
            coordinator._move(cause)
        assert coordinator.phase is phase
