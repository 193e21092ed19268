"""What is kept of checkpoints and failures: by a real coordinator, and within bounds."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
    SUBTASKS,
    TOTALS,
    ack,
    committable,
    completed,
    handle,
    job,
    settings,
)
from tidegate.committable import Committable
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    AckReceived,
    AttemptEnded,
    CheckpointFailure,
    DeclineReceived,
    Event,
    Journaled,
    NotifyAborted,
    SavepointFailed,
    SavepointWritten,
    SubtaskRunning,
    Tick,
    TransactionsEnded,
    TriggerRequested,
)
from tidegate.coordinator.history import (
    COMMIT_UNSEEN,
    ENDED,
    TEXT_CHARACTERS_MAX,
    UNSETTLED,
    CheckpointHistory,
    CheckpointKind,
    CheckpointRecord,
    CheckpointResult,
    FailureHistory,
    FailureRecord,
    FollowedBy,
    derive_phases,
)
from tidegate.coordinator.types import Ack, Decline, StateKind
from tidegate.ids import CheckpointId, SubtaskId

WALL_MS = 1_700_000_000_000
OLD = handle(0)
ONE, TWO = CheckpointId(1), CheckpointId(2)


class Rig:
    """A coordinator all of whose subtasks run, and the history that looks on."""

    def __init__(self, history: CheckpointHistory | None = None, first: int = 1) -> None:
        self.history = history or CheckpointHistory()
        self.coordinator = Coordinator(settings(max_concurrent=3), job(first, retained=[completed(0, states=[OLD])]))
        for subtask in sorted(SUBTASKS):
            self.feed(SubtaskRunning(subtask, 0))

    def feed(self, event: Event) -> None:
        self.history.observe(event, self.coordinator.handle(event, WALL_MS))

    def acknowledge(self, checkpoint: CheckpointId, now_ms: int, *committables: Committable) -> None:
        self.feed(AckReceived(ack(checkpoint, SOURCE), now_ms))
        self.feed(AckReceived(slow_ack(checkpoint, *committables), now_ms + 5))

    def complete(self, checkpoint: CheckpointId, now_ms: int, *committables: Committable) -> None:
        """Triggered at `now_ms`, acknowledged 15 ms later, in the journal and committed 2 and 5 ms after that."""
        self.feed(TriggerRequested(now_ms))
        self.acknowledge(checkpoint, now_ms + 10, *committables)
        self.feed(Journaled(checkpoint, CheckpointId(1000), now_ms + 17))
        self.feed(TransactionsEnded(checkpoint, committables, now_ms + 22))

    @property
    def newest(self) -> CheckpointRecord:
        return self.history.checkpoints[0]


def slow_ack(checkpoint: CheckpointId, *committables: Committable) -> Ack:
    """Of `TOTALS`: a file of an older checkpoint, one of its own, and rows in flight."""
    own = handle(checkpoint)
    inflight = msgspec.structs.replace(handle(checkpoint, subtask=1), kind=StateKind.INPUT)
    return msgspec.structs.replace(
        ack(checkpoint, TOTALS, states=[OLD, own, inflight], committables=committables),
        start_delay_ms=1.0,
        alignment_ms=2.0,
        snapshot_ms=3.0,
        upload_ms=4.0,
        prepare_ms=5.0,
        written_bytes=own.size_bytes + inflight.size_bytes,
        inflight_rows=7,
    )


def test_a_completed_checkpoint_is_kept_with_its_times_and_the_phases_of_every_subtask() -> None:
    rig = Rig()
    rig.complete(ONE, 50, committable(1))
    found = rig.newest
    assert (found.id, found.attempt, found.kind, found.result) == (1, ATTEMPT, "checkpoint", "completed")
    assert (found.triggered_at_ms, found.duration_ms) == (WALL_MS + 50, 22)
    assert (found.acknowledged_ms, found.journal_ms, found.commit_ms) == (15, 2, 5)
    assert (found.size_bytes, found.records, found.reason, found.missing) == (30, 5, "", ())
    source, totals = found.subtasks
    assert (SubtaskId(source.vertex, source.slot), source.acknowledged_after_ms) == (SOURCE, 10)
    assert (SubtaskId(totals.vertex, totals.slot), totals.acknowledged_after_ms) == (TOTALS, 15)
    assert (totals.start_delay_ms, totals.alignment_ms, totals.snapshot_ms) == (1, 2, 3)
    assert (totals.upload_ms, totals.prepare_ms) == (4, 5)
    assert (totals.size_bytes, totals.written_bytes, totals.inflight_bytes, totals.inflight_rows) == (30, 20, 10, 7)


@pytest.mark.parametrize(("kind", "inflight_bytes"), [("operator", 0), ("list", 0), ("input", 10), ("output", 10)])
def test_bytes_in_flight_are_those_of_rows_and_of_no_state(kind: str, inflight_bytes: int) -> None:
    one = msgspec.structs.replace(OLD, kind=StateKind(kind))
    phases = derive_phases(ack(ONE, TOTALS, states=[one]), 0)
    assert (phases.size_bytes, phases.inflight_bytes) == (10, inflight_bytes)


def test_one_that_is_under_way_names_the_subtasks_that_are_missing() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(AckReceived(ack(1, SOURCE), 60))
    assert (rig.newest.result, rig.newest.duration_ms, rig.newest.acknowledged_ms) == ("under way", None, None)
    assert rig.newest.missing == (str(TOTALS),)
    assert (rig.newest.reason, rig.newest.records) == ("", 0)
    assert [one.vertex for one in rig.newest.subtasks] == [SOURCE.vertex]
    assert rig.history.summarise(()).under_way == 1


def test_an_ack_that_is_refused_changes_nothing() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(AckReceived(ack(1, SOURCE), 60))
    before = rig.newest
    rig.feed(AckReceived(ack(1, SOURCE), 61))
    rig.feed(AckReceived(ack(1, TOTALS, attempt=ATTEMPT - 1), 62))
    rig.feed(AckReceived(ack(9, TOTALS), 63))
    assert rig.history.checkpoints == (before,)


def test_a_declined_one_has_failed_with_the_reason_and_how_long_it_took() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(AckReceived(ack(1, SOURCE), 60))
    rig.feed(DeclineReceived(Decline(ATTEMPT, ONE, TOTALS, "its snapshot failed", "disk full"), 80))
    assert (rig.newest.result, rig.newest.duration_ms) == (CheckpointResult.FAILED, 30)
    assert "its snapshot failed: disk full" in rig.newest.reason
    assert rig.newest.missing == (str(TOTALS),)


def test_one_that_takes_too_long_has_failed_at_its_time_limit() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(Tick(60_050))
    found = rig.history.checkpoints[-1]
    assert (found.result, found.duration_ms) == (CheckpointResult.FAILED, 60_000)


def test_one_that_a_newer_one_has_overtaken_is_abandoned() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(TriggerRequested(60))
    rig.acknowledge(TWO, 70)
    rig.feed(Journaled(TWO, CheckpointId(1000), 80))
    newer, older = rig.history.checkpoints
    assert (newer.result, older.result) == (CheckpointResult.COMPLETED, CheckpointResult.ABANDONED)
    assert rig.history.summarise(()).abandoned == 1


def test_the_size_of_a_checkpoint_is_that_of_all_subtasks() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.feed(AckReceived(ack(1, SOURCE, states=[handle(1, "orders", size=7)]), 60))
    rig.feed(AckReceived(slow_ack(ONE), 70))
    assert rig.newest.size_bytes == 37


@pytest.mark.parametrize(
    ("steps", "result", "reason", "duration_ms"),
    [
        (0, CheckpointResult.ABANDONED, ENDED, 50),
        (1, CheckpointResult.ABANDONED, UNSETTLED, 50),
        (2, CheckpointResult.COMPLETED, COMMIT_UNSEEN, 30),
    ],
)
def test_the_end_of_the_attempt_ends_what_is_under_way(
    steps: int, result: CheckpointResult, reason: str, duration_ms: int
) -> None:
    """An entry that is in the journal decides, whoever ends the transactions."""
    rig = Rig()
    rig.feed(TriggerRequested(50))
    if steps >= 1:
        rig.acknowledge(ONE, 60, committable(1))
    if steps >= 2:
        rig.feed(Journaled(ONE, CheckpointId(1000), 80))
    rig.feed(AttemptEnded(100))
    assert (rig.newest.result, rig.newest.reason, rig.newest.duration_ms) == (result, reason, duration_ms)
    assert rig.history.summarise(()).under_way == 0


def test_what_answers_after_the_end_of_the_attempt_changes_nothing() -> None:
    rig = Rig()
    one = committable(1)
    rig.feed(TriggerRequested(50))
    rig.acknowledge(ONE, 60, one)
    rig.feed(Journaled(ONE, CheckpointId(1000), 80))
    rig.feed(AttemptEnded(100))
    before = rig.history.checkpoints
    rig.feed(TransactionsEnded(ONE, (one,), 110))
    assert rig.history.checkpoints == before


@pytest.mark.parametrize("works", [True, False])
def test_a_savepoint_ends_when_it_is_written(works: bool) -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50, savepoint=True))
    rig.acknowledge(ONE, 60)
    rig.acknowledge(TWO, 70)
    rig.feed(Journaled(TWO, CheckpointId(1000), 80))
    rig.feed(SavepointWritten(ONE, 90) if works else SavepointFailed(ONE, "full", 90))
    checkpoint, savepoint = rig.history.checkpoints
    assert (checkpoint.kind, savepoint.kind) == (CheckpointKind.CHECKPOINT, CheckpointKind.SAVEPOINT)
    assert savepoint.result is (CheckpointResult.COMPLETED if works else CheckpointResult.FAILED)
    assert (savepoint.duration_ms, savepoint.size_bytes, savepoint.journal_ms) == (40, 30, None)
    assert bool(savepoint.reason) is not works


@pytest.mark.parametrize(("detail", "behind"), [("", ""), ("full", " (full)")])
def test_a_reason_has_its_detail_if_there_is_one(detail: str, behind: str) -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50))
    rig.history.observe(Tick(90), (NotifyAborted(ATTEMPT, ONE, CheckpointFailure.DECLINED, detail),))
    assert rig.newest.reason == f"{CheckpointFailure.DECLINED}{behind}"


def test_the_final_one_is_called_so() -> None:
    rig = Rig()
    rig.feed(TriggerRequested(50, final=True))
    assert rig.newest.kind is CheckpointKind.FINAL


def test_the_newest_are_kept_through_all_attempts() -> None:
    history = CheckpointHistory(checkpoints_max=3)
    first = Rig(history)
    for number in range(1, 4):
        first.complete(CheckpointId(number), number * 100)
    first.feed(AttemptEnded(500))
    second = Rig(history, first=10)
    second.complete(CheckpointId(10), 600)
    assert [record.id for record in history.checkpoints] == [10, 3, 2]
    assert history.summarise(()).completed == 3


def test_the_oldest_lose_the_phases_of_their_subtasks_first_and_the_newest_never() -> None:
    history = CheckpointHistory(subtasks_max=4)
    rig = Rig(history)
    for number in range(1, 5):
        rig.complete(CheckpointId(number), number * 100)
    kept = [(record.id, len(record.subtasks), record.subtasks_left_out) for record in history.checkpoints]
    assert kept == [(4, 2, 0), (3, 2, 0), (2, 0, 2), (1, 0, 2)]
    small = CheckpointHistory(subtasks_max=1)
    rig = Rig(small)
    rig.complete(ONE, 100)
    assert len(small.checkpoints[0].subtasks) == 2
    rig.complete(TWO, 200)
    assert [len(record.subtasks) for record in small.checkpoints] == [2, 0]


def test_no_older_one_keeps_its_phases_where_a_newer_one_has_lost_them() -> None:
    history = CheckpointHistory(subtasks_max=3)
    rig = Rig(history)
    rig.feed(TriggerRequested(50))
    rig.feed(AckReceived(ack(1, SOURCE), 60))
    rig.feed(DeclineReceived(Decline(ATTEMPT, ONE, TOTALS, "no"), 80))
    rig.complete(TWO, 200)
    rig.complete(CheckpointId(3), 300)
    assert [len(record.subtasks) for record in history.checkpoints] == [2, 0, 0]


def failure(number: int, cause: str = "slot 1 is lost") -> FailureRecord:
    return FailureRecord(
        failed_at_ms=number,
        attempt=ATTEMPT,
        code="slot-lost",
        cause=cause,
        ran_ms=1000,
        followed_by=FollowedBy.RESTART,
        restart_after_ms=1000,
    )


def test_failures_are_bounded_in_number_and_length_newest_first() -> None:
    history = FailureHistory(failures_max=2)
    for number in range(3):
        history.add(failure(number, "x" * (TEXT_CHARACTERS_MAX + 1)))
    assert [one.failed_at_ms for one in history.failures] == [2, 1]
    assert {len(one.cause) for one in history.failures} == {TEXT_CHARACTERS_MAX}


def test_the_summary_counts_results_and_names_the_last_failure() -> None:
    rig = Rig()
    rig.complete(ONE, 100)
    rig.feed(TriggerRequested(200))
    rig.feed(DeclineReceived(Decline(ATTEMPT, TWO, TOTALS, "no"), 300))
    found = rig.history.summarise((failure(2), failure(1)))
    assert (found.completed, found.failed, found.abandoned, found.under_way) == (1, 1, 0, 0)
    assert (found.longest_ms, found.failures) == (17, 2)
    assert found.last_failure == failure(2)
