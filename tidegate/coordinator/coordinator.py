"""The checkpoint coordinator of one attempt: events in, instructions out.

It has no clock, thread, file or random number. Time arrives with the events. The caller passes each event to `handle`,
executes the returned instructions in order, and sends a Tick by `next_deadline_ms`. A checkpoint goes through

    trigger (C01) -> acks -> one journal append at a time, in id order -> commit -> completion notice

and a savepoint, which decides nothing (ADR 11), through

    trigger -> acks -> the end of the transactions of any newer checkpoint -> its files

Events and instructions are defined in `events.py`, trigger refusals in `triggers.py`, a single pending checkpoint in
`pending.py`, and the bookkeeping of prepared transactions in `ledger.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.coordinator.events import (
    FORCED,
    PERIODIC,
    AckOutcome,
    AckReceived,
    AckRefused,
    AppendCheckpoint,
    AttemptEnded,
    BrokersSeen,
    CheckpointFailure,
    CheckpointProperties,
    CommitTransactions,
    DeclineReceived,
    DiscardStates,
    Event,
    FailAttempt,
    FinishPipeline,
    Instruction,
    Journaled,
    JournalFailed,
    NotifyAborted,
    NotifyCompleted,
    OpenTransaction,
    SavepointFailed,
    SavepointWritten,
    SendTrigger,
    StopPipeline,
    SubtaskRunning,
    Tick,
    TransactionsEnded,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
    TriggerRequested,
    WriteSavepoint,
)
from tidegate.coordinator.ledger import StateLedger, TransactionLedger
from tidegate.coordinator.pending import DECIDED_MAX, DecidedCheckpoints, PendingCheckpoint, PendingPhase
from tidegate.coordinator.story import Story
from tidegate.coordinator.triggers import (
    ACTIVE,
    PHASES,
    AttemptPhase,
    Cause,
    CheckpointIds,
    CheckpointPolicy,
    TriggerFacts,
    TriggerTimer,
    decide_refusal,
    is_crowded,
)
from tidegate.coordinator.types import Ack, CompletedCheckpoint, Job, StateHandle
from tidegate.ids import CheckpointId, SubtaskId


class Coordinator:
    """Coordinates the checkpoints of one attempt, on one thread. Raises ProtocolBroken for impossible events.

    `remembered_max` bounds the number of decided checkpoints that are remembered.
    """

    def __init__(self, settings: CheckpointPolicy, job: Job, remembered_max: int = DECIDED_MAX) -> None:
        self._settings = settings
        self._job = job
        self._phase = AttemptPhase.STARTING
        self._running: set[SubtaskId] = set()
        self._story = Story()
        self._ledger = TransactionLedger(job.carried, self._story)
        self._states = StateLedger(job.retained, settings.retained)
        self._ids = CheckpointIds(job.first_checkpoint, job.reserved_to)
        self._timer = TriggerTimer(settings)
        self._pending: dict[CheckpointId, PendingCheckpoint] = {}
        self._appending: CompletedCheckpoint | None = None
        self._unended: dict[CheckpointId, tuple[PendingCheckpoint, CompletedCheckpoint]] = {}
        self._decided = DecidedCheckpoints(remembered_max)
        self._timeouts = CheckpointTimeouts(settings.timeout_ms)
        self._deadlines = TransactionDeadlines(settings.transaction_margin_ms)
        self._newest_ended = CheckpointId(0)
        self._final: CheckpointId | None = None
        self._failures_in_a_row = 0
        self._wall_offset_ms = 0
        self._out: list[Instruction] = []

    @property
    def phase(self) -> AttemptPhase:
        """The current phase of the attempt."""
        return self._phase

    @property
    def under_way(self) -> tuple[CheckpointId, ...]:
        """Checkpoints that have been triggered but not decided, ascending."""
        return tuple(sorted(self._pending))

    def handle(self, event: Event, wall_offset_ms: int = 0) -> tuple[Instruction, ...]:
        """Processes one event and returns the instructions to execute, in order.

        `wall_offset_ms` is the wall clock minus the monotonic clock, both read now; it is used only for timestamps.
        """
        self._out = []
        self._wall_offset_ms = wall_offset_ms
        if isinstance(event, AttemptEnded):
            self._on_ended()
            return tuple(self._out)
        self._expire(event.now_ms)
        self._dispatch(event)
        self._check_transactions(event.now_ms)
        self._start_append(event.now_ms)
        self._run_timer(event.now_ms)
        return tuple(self._out)

    def next_deadline_ms(self) -> int | None:
        """Returns the time by which a Tick is due, or None if only other events can change anything."""
        if self._phase not in ACTIVE:
            return None
        deadlines = [
            self._timeouts.expiry_ms(p) for p in self._pending.values() if p.can_expire and not self._timeouts.suspended
        ]
        risk = self._transaction_deadline_ms()
        if risk is not None:
            deadlines.append(risk[0])
        due_ms = self._timer.due_ms
        if due_ms is not None and self._phase is AttemptPhase.RUNNING and not self._crowded():
            deadlines.append(due_ms)
        return min(deadlines, default=None)

    def _dispatch(self, event: Event) -> None:
        match event:
            case SubtaskRunning():
                self._on_running(event)
            case TriggerRequested():
                self._trigger(event.properties, event.now_ms)
            case TriggerFailed():
                self._give_up_if_waiting(event.checkpoint, CheckpointFailure.TRIGGER_FAILED, event.detail)
            case AckReceived():
                self._on_ack(event.ack, event.now_ms)
            case DeclineReceived():
                self._on_decline(event)
            case Journaled():
                self._on_journaled(event)
            case JournalFailed():
                self._on_journal_failed(event)
            case TransactionsEnded():
                self._ledger.ended(event.ended)
                self._notify_completed(event.now_ms)
            case SavepointWritten() | SavepointFailed():
                self._on_savepoint_answered(event)
            case OpenTransaction():
                self._deadlines.opened(event)
            case BrokersSeen():
                self._timeouts.brokers_seen(event)
            case Tick() | AttemptEnded():
                pass  # expiry is checked for every event, and `handle` deals with the end of the attempt

    def _move(self, cause: Cause) -> None:
        after = PHASES.get((self._phase, cause))
        if after is None:
            raise self._story.broken(f"attempt {self._job.attempt} is {self._phase.name} when {cause}")
        self._story.tell(f"attempt {self._job.attempt}: {cause}")
        self._phase = after

    # Triggering

    def _on_running(self, event: SubtaskRunning) -> None:
        if event.subtask not in self._job.subtasks:
            raise self._story.broken(f"{event.subtask} is running, but it is not a subtask of this attempt")
        self._running.add(event.subtask)
        if self._phase is AttemptPhase.STARTING and self._running == self._job.subtasks:
            self._move(Cause.ALL_RUNNING)
            self._timer.start(event.now_ms)

    def _run_timer(self, now_ms: int) -> None:
        """Triggers a periodic checkpoint when due."""
        due_ms = self._timer.due_ms
        if due_ms is None or self._phase is not AttemptPhase.RUNNING or now_ms < due_ms or self._crowded():
            return
        self._timer.advance(now_ms)
        self._trigger(PERIODIC, now_ms)

    def _trigger(self, properties: CheckpointProperties, now_ms: int) -> None:
        refusal = self._refusal(properties, now_ms)
        if refusal is not None:
            self._out.append(TriggerRefused(refusal, properties))
            return
        checkpoint = self._ids.take()
        if properties.final:
            self._move(Cause.FINAL_TRIGGERED)
        self._pending[checkpoint] = PendingCheckpoint(
            checkpoint, self._job.attempt, properties, now_ms, self._job.subtasks
        )
        self._story.tell(f"trigger of {checkpoint} at {now_ms}")
        self._out.append(SendTrigger(self._job.attempt, checkpoint, now_ms + self._wall_offset_ms, properties))

    def _refusal(self, properties: CheckpointProperties, now_ms: int) -> TriggerRefusal | None:
        facts = TriggerFacts(
            phase=self._phase,
            under_way=self._load,
            unended=len(self._unended),
            last_completed_ms=self._timer.last_completed_ms,
            sources_running=self._job.sources <= self._running,
            all_running=self._job.subtasks <= self._running,
            next_id=self._ids.next,
            reserved_to=self._ids.reserved_to,
            savepoint_under_way=any(p.properties.savepoint for p in self._pending.values()),
        )
        return decide_refusal(self._settings, facts, properties, now_ms)

    def _crowded(self) -> bool:
        return is_crowded(self._settings, self._load, len(self._unended))

    @property
    def _load(self) -> int:
        return sum(p.loads for p in self._pending.values())

    # Acks and declines

    def _on_ack(self, ack: Ack, now_ms: int) -> None:
        outcome = self._acknowledge(ack, now_ms)
        if outcome is AckOutcome.SUCCESS:
            return
        self._story.tell(f"ack of {ack.subtask} for {ack.checkpoint}: {outcome.name}")
        self._out.append(AckRefused(ack.checkpoint, ack.subtask, outcome))
        newer = outcome is AckOutcome.STALE and ack.attempt > self._job.attempt
        if outcome is not AckOutcome.DUPLICATE and not newer:
            self._discard(ack.states)

    def _acknowledge(self, ack: Ack, now_ms: int) -> AckOutcome:
        if ack.attempt != self._job.attempt:
            return AckOutcome.STALE
        pending = self._pending.get(ack.checkpoint)
        if pending is not None:
            if pending.phase is PendingPhase.DISCARDED:  # C22
                raise pending.story.broken(f"checkpoint {pending.id} was given up but is still under way")
            outcome = pending.acknowledge(ack, now_ms)
            if outcome is AckOutcome.SUCCESS:
                self._ledger.prepared(ack)
                if pending.awaits_commit:
                    self._follow_savepoint(pending, now_ms)
            return outcome
        outcome = self._decided.outcome(ack.checkpoint)
        if outcome is AckOutcome.DISCARDED:
            self._ledger.prepared(ack)  # its records will not be sent again: the next checkpoint lists it
        return outcome

    def _on_decline(self, event: DeclineReceived) -> None:
        decline = event.decline
        if decline.attempt == self._job.attempt and decline.subtask in self._job.subtasks:
            detail = f"{decline.subtask}: {decline.reason}" + (f": {decline.detail}" if decline.detail else "")
            self._give_up_if_waiting(decline.checkpoint, CheckpointFailure.DECLINED, detail)

    # The journal and the commit

    def _start_append(self, now_ms: int) -> None:
        """Starts at most one append, for the lowest id. A savepoint is never appended."""
        acknowledged = [p for _, p in sorted(self._pending.items()) if p.phase is PendingPhase.ACKNOWLEDGED]
        for pending in acknowledged:
            if self._appending is not None or self._phase not in ACTIVE:
                return
            if pending.properties.savepoint:
                continue
            gone = self._states.gone(pending.id, pending.handles)
            if gone:
                self._give_up(pending, CheckpointFailure.STATE_GONE, ", ".join(gone[:10]))
                continue
            pending.move(PendingPhase.APPENDING)
            self._appending = pending.complete(self._ledger.due(pending.id), now_ms, self._wall_offset_ms)
            self._out.append(AppendCheckpoint(self._appending))

    def _appended(self, checkpoint: CheckpointId) -> tuple[PendingCheckpoint, CompletedCheckpoint]:
        completed, self._appending = self._appending, None
        if completed is None or completed.id != checkpoint:
            expected = "none" if completed is None else f"checkpoint {completed.id}"
            raise self._story.broken(f"the journal answers for checkpoint {checkpoint}, {expected} is being appended")
        return self._pending[checkpoint], completed

    def _on_journaled(self, event: Journaled) -> None:
        if self._phase is AttemptPhase.ENDED:
            return  # the next attempt's recovery ends the transactions
        pending, completed = self._appended(event.checkpoint)
        pending.move(PendingPhase.DECIDED)
        pending.journaled_at_ms = event.now_ms
        del self._pending[pending.id]
        self._decided.remember(pending.id, None)
        self._ids.reserved_to = event.reserved_to
        self._timer.last_completed_ms = event.now_ms
        self._failures_in_a_row = 0
        self._states.completed(completed)
        self._ledger.decided(completed.committables, pending.acks.values())
        for older in [p for p in self._pending.values() if p.id < pending.id and p.properties.subsumed]:
            self._give_up(older, CheckpointFailure.SUBSUMED, f"checkpoint {pending.id}")
        self._discard(self._states.take_doubtful())
        self._unended[pending.id] = (pending, completed)
        if not self._ledger.all_ended(completed.committables):
            self._out.append(CommitTransactions(pending.id))
        self._notify_completed(event.now_ms)

    def _notify_completed(self, now_ms: int) -> None:
        """Notifies the subtasks of every checkpoint whose transactions have ended, oldest first (C12, C25)."""
        for checkpoint in sorted(self._unended):
            pending, completed = self._unended[checkpoint]
            if not self._ledger.all_ended(completed.committables):
                return
            del self._unended[checkpoint]
            report = pending.report(completed, now_ms)
            released = self._ledger.take_released(checkpoint)
            needed = frozenset(handle.path for p in self._pending.values() for handle in p.handles)
            self._out.append(NotifyCompleted(self._job.attempt, completed, released, report, needed))
            self._newest_ended = checkpoint
            self._write_savepoints(now_ms)
            if completed.final and self._phase is AttemptPhase.FINISHING:
                self._move(Cause.FINAL_COMPLETED)
                self._final = checkpoint
                self._finish()

    def _finish(self) -> None:
        """Finishes the pipeline once the final checkpoint is committed and no savepoint is still being copied."""
        writing = any(p.phase is PendingPhase.WRITING for p in self._pending.values())
        if self._phase is AttemptPhase.FINISHED and self._final is not None and not writing:
            self._out.append(FinishPipeline(self._final))
            self._final = None

    def _on_journal_failed(self, event: JournalFailed) -> None:
        """Handles a failed append. The entry may exist anyway, so its state is kept until a later entry is durable."""
        if self._phase is AttemptPhase.ENDED:
            return
        pending, _ = self._appended(event.checkpoint)
        self._states.doubt(pending.handles)
        self._give_up(pending, CheckpointFailure.JOURNAL_FAILED, event.detail)
        if not event.retriable:
            self._stop(f"checkpoint {event.checkpoint} could not be written to the journal: {event.detail}")
        elif not event.settled:
            self._fail("journal-unsettled", event.detail)

    # Savepoints

    def _follow_savepoint(self, savepoint: PendingCheckpoint, now_ms: int) -> None:
        """Triggers a checkpoint to commit the savepoint's transactions, unless a later one is in progress."""
        newer = any(p.id > savepoint.id and not p.properties.savepoint for p in self._pending.values())
        if self._newest_ended < savepoint.id and not newer and self._phase is AttemptPhase.RUNNING:
            self._trigger(FORCED, now_ms)
        self._write_savepoints(now_ms)

    def _write_savepoints(self, now_ms: int) -> None:
        """Writes savepoints once a newer checkpoint has ended every transaction with output from before them."""
        for pending in list(self._pending.values()):
            if pending.awaits_commit and pending.id < self._newest_ended:
                pending.move(PendingPhase.WRITING)
                self._out.append(WriteSavepoint(pending.complete((), now_ms, self._wall_offset_ms)))

    def _on_savepoint_answered(self, event: SavepointWritten | SavepointFailed) -> None:
        if self._phase is AttemptPhase.ENDED:
            return
        pending = self._pending.get(event.checkpoint)
        if pending is None or pending.phase is not PendingPhase.WRITING:
            raise self._story.broken(f"savepoint {event.checkpoint} is answered, but it is not being written")
        if isinstance(event, SavepointFailed):
            self._give_up(pending, CheckpointFailure.WRITE_FAILED, event.detail)
        else:
            pending.move(PendingPhase.WRITTEN)
            del self._pending[pending.id]
            self._decided.remember(pending.id, None)
            self._discard(pending.handles)
        self._finish()

    # Giving up

    def _expire(self, now_ms: int) -> None:
        if self._timeouts.suspended:
            return
        for pending in [p for _, p in sorted(self._pending.items()) if now_ms >= self._timeouts.expiry_ms(p)]:
            detail = f"{self._settings.timeout_ms} ms have passed, {pending.missing}"
            self._give_up_if_waiting(pending.id, CheckpointFailure.EXPIRED, detail)

    def _give_up_if_waiting(self, checkpoint: CheckpointId, reason: CheckpointFailure, detail: str) -> None:
        """Gives up a checkpoint that can still expire.

        Once all acks are in, neither a decline nor a timeout applies.
        """
        pending = self._pending.get(checkpoint)
        if pending is not None and pending.can_expire:
            self._give_up(pending, reason, detail)

    def _give_up(self, pending: PendingCheckpoint, reason: CheckpointFailure, detail: str) -> None:
        pending.move(PendingPhase.DISCARDED)
        del self._pending[pending.id]
        self._decided.remember(pending.id, reason)
        self._story.tell(f"checkpoint {pending.id} given up: {reason.name} {detail}")
        if reason is not CheckpointFailure.ATTEMPT_ENDED:
            self._out.append(NotifyAborted(self._job.attempt, pending.id, reason, detail))
        self._discard(pending.handles)
        if not reason.counts or pending.properties.savepoint:
            return
        self._failures_in_a_row += 1
        if pending.properties.final:
            self._fail("final-checkpoint-failed", f"final checkpoint {pending.id}: {reason}: {detail}")
        elif self._failures_in_a_row > self._settings.tolerable_failures:
            self._fail(
                "checkpoint-failures",
                f"{self._failures_in_a_row} checkpoints in a row have failed (checkpoints.tolerable_failures is "
                f"{self._settings.tolerable_failures}); the last, {pending.id}: {reason}: {detail}",
            )

    def _discard(self, handles: Iterable[StateHandle]) -> None:
        """Discards those of the handles that no completed, pending or doubtful checkpoint needs (F27)."""
        pending = [handle for one in self._pending.values() for handle in one.handles]
        appending = () if self._appending is None else self._appending.states
        garbage = self._states.garbage(handles, (*pending, *appending))
        if garbage:
            self._out.append(DiscardStates(garbage))

    # Transactions and the end of the attempt

    def _transaction_deadline_ms(self) -> tuple[int, SubtaskId] | None:
        """Returns the earliest time at which a transaction of a slot comes too close to its timeout, and the subtask.

        None while an append is in progress: the decision was in time when it began.
        """
        if self._appending is not None:
            return None
        return self._deadlines.earliest()

    def _check_transactions(self, now_ms: int) -> None:
        """Fails the attempt if a transaction is too close to its timeout.

        A later decision could commit a checkpoint whose records the broker has dropped. A new attempt rewinds the
        sources to the last checkpoint, so nothing is lost.
        """
        risk = self._transaction_deadline_ms()
        if risk is not None and now_ms >= risk[0] and self._phase in ACTIVE:
            why = (
                "no broker answers; to wait longer for them, raise"
                if self._timeouts.suspended
                else "no checkpoint has completed in time; see the earlier checkpoints for the reason, or raise"
            )
            self._fail(
                "transaction-timeout",
                f"the oldest transaction of {risk[1]} approaches the broker's time limit and {why} "
                "`checkpoints.transaction_timeout`",
            )

    def _fail(self, cause: str, reason: str) -> None:
        if self._phase in ACTIVE:
            self._move(Cause.GAVE_UP)
            self._out.append(FailAttempt(cause, reason))

    def _stop(self, reason: str) -> None:
        if self._phase in ACTIVE:
            self._move(Cause.GAVE_UP)
        self._out.append(StopPipeline(reason))

    def _on_ended(self) -> None:
        """Gives up all undecided checkpoints. The next attempt's takeover settles an append in progress."""
        self._move(Cause.ATTEMPT_ENDED)
        for pending in [p for _, p in sorted(self._pending.items()) if p.phase is not PendingPhase.APPENDING]:
            self._give_up(pending, CheckpointFailure.ATTEMPT_ENDED, "")


class CheckpointTimeouts:
    """Tracks when pending checkpoints expire: not while no broker answers, and a full timeout after such an outage."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._outage_ended_ms = 0
        self.suspended = False
        """True while no broker answers."""

    def brokers_seen(self, event: BrokersSeen) -> None:
        """Records whether the brokers answer."""
        if event.answering and self.suspended:
            self._outage_ended_ms = event.now_ms
        self.suspended = not event.answering

    def expiry_ms(self, pending: PendingCheckpoint) -> int:
        """Returns when a checkpoint expires if it is still pending."""
        return max(pending.triggered_at_ms, self._outage_ended_ms) + self._timeout_ms


class TransactionDeadlines:
    """Tracks deadlines, `margin_ms` before the broker's timeout but at most a quarter of it, to suit short timeouts."""

    def __init__(self, margin_ms: int) -> None:
        self._margin_ms = margin_ms
        self._open_until_ms: dict[SubtaskId, int] = {}

    def opened(self, event: OpenTransaction) -> None:
        """Records the oldest transaction of a subtask, or that it has none."""
        if event.age_ms is None:
            self._open_until_ms.pop(event.subtask, None)
            return
        margin_ms = min(self._margin_ms, event.timeout_ms // 4)
        self._open_until_ms[event.subtask] = event.now_ms - event.age_ms + event.timeout_ms - margin_ms

    def earliest(self) -> tuple[int, SubtaskId] | None:
        """Returns the earliest deadline and the subtask that it belongs to."""
        return min(((until, subtask) for subtask, until in self._open_until_ms.items()), default=None)
