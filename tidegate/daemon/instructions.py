"""Carries out the instructions of the coordinator: triggers, journal appends, commits, notifications, cleanup.

One thread accesses journal and state files, another one ends transactions (`kafka_edge.py`). Each result returns to the
coordinator as an event. Only a permit that the journal has just issued reaches the committer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from tidegate.clock import monotonic_ms
from tidegate.committable import Committable
from tidegate.coordinator.events import (
    AckRefused,
    AppendCheckpoint,
    CommitTransactions,
    DiscardStates,
    Event,
    FailAttempt,
    FinishPipeline,
    Instruction,
    Journaled,
    JournalFailed,
    NotifyAborted,
    NotifyCompleted,
    SendTrigger,
    StopPipeline,
    TransactionsEnded,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
    WriteSavepoint,
)
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.checkpoint_figures import checkpoint_line, derive_duration_s
from tidegate.daemon.checkpoint_requests import CheckpointRequests, SavepointService
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.progress_lines import CheckpointLines
from tidegate.daemon.services import Services
from tidegate.errors import AttemptFailed, PipelineStopped, Superseded, TidegateError
from tidegate.ids import CheckpointId, ClusterName, TransactionalId
from tidegate.journal.journal import AppendUnsettled
from tidegate.kafka.errors import TransactionLost, TransactionToSalvage
from tidegate.sinks.outcome import CommitOutcome
from tidegate.storage.base import StorageError
from tidegate.task.elements import Barrier
from tidegate.task.messages import Abandoned, Completed, DriverMessage, Trigger

logger = logging.getLogger(__name__)

T = TypeVar("T")

COMMIT_RETRY_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 10.0


class CoordinatorFailed(AttemptFailed):
    """The coordinator ends the attempt: too many failed checkpoints, or a subtask that contradicts itself."""

    code = "checkpoints-failing"


class CoordinatorStopped(PipelineStopped):
    """The coordinator ends the pipeline."""

    code = "coordinator-stopped"


class InstructionExecutor:
    """Carries out the instructions of one attempt's coordinator."""

    def __init__(
        self,
        pipeline: str,
        services: Services,
        send_all: Callable[[DriverMessage], Sequence[str]],
        feed: Callable[[Event], None],
        fail: Callable[[TidegateError], None],
        finish: Callable[[], None],
        completed: Callable[[CompletedCheckpoint], None],
        unaligned_after_ms: int | None = None,
    ) -> None:
        """`send_all` returns the slots that could not be reached. `completed` is called when a checkpoint is committed.

        `unaligned_after_ms` is used as in `Barrier`, for checkpoints that need not be aligned.
        """
        self._pipeline = pipeline
        self._services = services
        self._unaligned_after_ms = unaligned_after_ms
        self._send_all = send_all
        self._feed = feed
        self._fail = fail
        self._finish = finish
        self._on_completed = completed
        self.savepoints = SavepointService(services, feed)
        self.ordered = CheckpointRequests(services.clock, feed)
        self._permits: dict[CheckpointId, CommitPermit] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._deciding: set[asyncio.Task[None]] = set()
        """The tasks that write to the journal or end transactions."""
        self._committing = defaultdict[ClusterName, asyncio.Lock](asyncio.Lock)
        self._ended: dict[TransactionalId, Committable] = {}
        """The newest committable of each id that this attempt has ended.

        Checkpoints also list older ones whose end was not known.
        """
        self._lost = False
        self._lines = CheckpointLines()

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Carries out instructions in order. Slow ones continue in the background and report with an event."""
        for instruction in instructions:
            match instruction:
                case SendTrigger():
                    self._trigger(instruction)
                case AppendCheckpoint(checkpoint=checkpoint):
                    self._deciding.add(self._spawn(self._append(checkpoint)))
                case CommitTransactions(checkpoint=number):
                    self._deciding.add(self._spawn(self._commit(self._permits.pop(number))))
                case WriteSavepoint(checkpoint=checkpoint):
                    self._spawn(self.savepoints.write(checkpoint))
                case NotifyCompleted():
                    self._completed(instruction)
                case NotifyAborted():
                    self._aborted(instruction)
                case DiscardStates(handles=handles):
                    self._spawn(self._discard([handle.path for handle in handles]))
                case FailAttempt(reason=reason, cause=cause):
                    self._fail(CoordinatorFailed(reason, cause=cause))
                case StopPipeline(reason=reason):
                    self._fail(CoordinatorStopped(reason))
                case FinishPipeline():
                    self._finish()
                case TriggerRefused():
                    self._refused(instruction)
                case AckRefused():
                    logger.debug(
                        "ack of %s for checkpoint %s: %s",
                        instruction.subtask,
                        instruction.checkpoint,
                        instruction.outcome,
                    )

    def _trigger(self, order: SendTrigger) -> None:
        """Sends the trigger; gives the checkpoint up at once if a slot cannot be reached (C14, C41).

        Such a slot will send no barrier. The failure is reported from the event loop, so that the coordinator does not
        receive it while its instructions are being carried out.
        """
        if order.properties.savepoint:
            self.savepoints.begun(order.checkpoint)
        elif order.properties.ordered:
            self.ordered.begun(order.checkpoint)
        unreached = self._send_all(Trigger(self._pipeline, order.attempt, self._barrier(order)))
        if unreached:
            detail = f"no connection to {', '.join(unreached)}"
            asyncio.get_running_loop().call_soon(self._trigger_failed, order.checkpoint, detail)

    def _trigger_failed(self, checkpoint: CheckpointId, detail: str) -> None:
        self._feed(TriggerFailed(checkpoint, detail, monotonic_ms(self._services.clock)))

    def _refused(self, refused: TriggerRefused) -> None:
        """Handles a refused trigger.

        A stop and the end of a bounded read both request the final checkpoint; the first request covers the second.
        """
        why = refused.refusal.value
        if refused.properties.final and refused.refusal is TriggerRefusal.SHUT_DOWN:
            logger.debug("no other final checkpoint: %s", why)
        elif refused.properties.final:
            self._fail(CoordinatorFailed(f"no final checkpoint: {why}", cause="final-refused"))
        elif refused.properties.savepoint:
            self.savepoints.refused(refused.refusal)
        elif refused.properties.ordered:
            self.ordered.refused(refused.refusal)
        else:
            logger.debug("no checkpoint: %s", why)

    def _barrier(self, trigger: SendTrigger) -> Barrier:
        """Derives the barrier.

        Checkpoints that must not contain rows in flight are aligned whatever the pipeline file sets (B48).
        """
        unaligned_after_ms = None if trigger.properties.aligned else self._unaligned_after_ms
        kind = trigger.properties
        return Barrier(trigger.checkpoint, trigger.timestamp_ms, kind.final, unaligned_after_ms, kind.savepoint)

    async def settle(self) -> None:
        """Waits for appends and commits that are in progress, so that none is cut short, then cancels the rest."""
        if self._deciding:
            await asyncio.wait(self._deciding, timeout=CLOSE_TIMEOUT_S)
        for task in self._deciding:
            task.cancel()

    async def close(self) -> None:
        """Waits for everything in progress, including the copy of a savepoint, and answers pending requests."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        self.savepoints.close("the attempt has ended")
        self.ordered.close("the attempt has ended")
        for task in self._tasks:
            task.cancel()

    # -- journal ---------------------------------------------------------------------------------------------------

    async def _append(self, checkpoint: CompletedCheckpoint) -> None:
        journal = self._services.journal
        try:
            appended = await self._services.in_journal_thread(lambda: journal.append_checkpoint(checkpoint))
        except Superseded as error:
            self._fail(error)
            return
        except (StorageError, AppendUnsettled) as error:
            settled = not isinstance(error, AppendUnsettled)
            # At debug level, because `_aborted` reports it as well, unless the attempt is ending, when it no longer
            # matters.
            logger.debug("checkpoint %d could not be written to the journal: %s", checkpoint.id, error.message)
            self._feed(
                JournalFailed(
                    checkpoint.id,
                    error.message,
                    monotonic_ms(self._services.clock),
                    retriable=error.retriable,
                    settled=settled,
                )
            )
            return
        self._permits[checkpoint.id] = appended.permit
        self._feed(Journaled(checkpoint.id, appended.reserved_to, monotonic_ms(self._services.clock)))
        self._permits.pop(checkpoint.id, None)  # still here if there was nothing to commit

    async def _discard(self, paths: Sequence[str]) -> None:
        storage = self._services.storage
        try:
            await self._services.in_journal_thread(lambda: storage.delete_all(paths))
        except StorageError as error:
            logger.warning("state of a discarded checkpoint was not deleted: %s", error.message)

    async def _clean_up(self, needed: frozenset[str]) -> None:
        journal = self._services.journal
        try:
            await self._services.in_journal_thread(lambda: journal.clean_up(needed))
        except StorageError as error:
            logger.warning("old checkpoints were not cleaned up: %s", error.message)

    # -- transactions ----------------------------------------------------------------------------------------------

    async def _commit(self, permit: CommitPermit) -> None:
        """Commits until every transaction of the permit has a definite end. It waits for brokers that are down.

        Transactions that an earlier commit of this attempt has ended are skipped. Their ids may be in use again, and
        then only markers in the partitions would show how they ended. That takes many reads, and every checkpoint that
        completes meanwhile would make the next commit longer.
        """
        ended = await asyncio.gather(*(self._commit_in(name, part) for name, part in permit.parts))
        if all(ended):
            self._feed(TransactionsEnded(permit.checkpoint, permit.committables, monotonic_ms(self._services.clock)))

    async def _commit_in(self, cluster: ClusterName, permit: CommitPermit) -> bool:
        """Commits the transactions in one cluster, which wait for no other. Returns False if the attempt has failed."""
        started, edge = self._services.clock.monotonic(), self._services.kafka.clusters[cluster]
        while True:
            try:
                async with self._committing[cluster]:
                    if self._lost:  # newer output must not become visible before the salvage
                        return False
                    left = permit.without(self._ended)
                    outcomes = await edge.commit(left) if left.committables else []
            except TidegateError as error:
                if error.retriable:
                    self._log_waiting(
                        edge, f"checkpoint {permit.checkpoint}: transactions are not committed yet: {error.message}"
                    )
                    await asyncio.sleep(COMMIT_RETRY_S)
                    continue
                if isinstance(error, TransactionLost):
                    self._lost = True
                    self._services.metrics.transactions_ended(TransactionResult.LOST, 1)
                    error = TransactionToSalvage(error.message, **error.fields)
                self._fail(error)
                return False
            committed = [one for one, outcome in zip(left.committables, outcomes, strict=True) if outcome.committed]
            self._ended.update({one.transactional_id: one for one in committed})
            self._services.metrics.transactions_committed(committed, self._services.clock.monotonic() - started)
            if CommitOutcome.STILL_OPEN not in outcomes:
                return True
            self._log_waiting(edge, f"checkpoint {permit.checkpoint}: some commits are not confirmed yet, retrying")
            await asyncio.sleep(COMMIT_RETRY_S)

    def _log_waiting(self, edge: KafkaEdge, text: str) -> None:
        """Logs at debug level while no broker of the cluster responds, because the daemon reports that separately."""
        logger.log(logging.DEBUG if edge.unavailable else logging.WARNING, "%s", text)

    # -- notices ---------------------------------------------------------------------------------------------------

    def _completed(self, notice: NotifyCompleted) -> None:
        checkpoint, report = notice.checkpoint, notice.report
        self._send_all(Completed(notice.attempt, checkpoint.id, notice.released))
        phases = {
            "start_delay": report.start_delay_ms / 1000,
            "alignment": report.alignment_ms / 1000,
            "snapshot": report.snapshot_ms / 1000,
            "upload": report.upload_ms / 1000,
            "prepare": report.prepare_ms / 1000,
            "journal": (report.journaled_at_ms - report.acknowledged_at_ms) / 1000,
            "commit": (report.ended_at_ms - report.journaled_at_ms) / 1000,
        }
        self._services.metrics.checkpoint_completed(checkpoint, phases)
        ordered = self.ordered.completed(report)
        self._log_completed(checkpoint, phases, ordered=ordered)
        self._on_completed(checkpoint)
        self._spawn(self._clean_up(notice.needed))

    def _log_completed(self, checkpoint: CompletedCheckpoint, phases: dict[str, float], *, ordered: bool) -> None:
        duration_s, now_s = derive_duration_s(checkpoint, phases), self._services.clock.monotonic()
        self._services.progress.completed(checkpoint, duration_s, now_s)
        note = self._lines.decide(checkpoint, duration_s, now_s, ordered=ordered)
        level = logging.DEBUG if note is None else logging.INFO
        text = f"{checkpoint_line(checkpoint, phases)}{f' ({note})' if note else ''}"
        logger.log(level, "%s", text, extra={"checkpoint": checkpoint.id})

    def _aborted(self, notice: NotifyAborted) -> None:
        self._send_all(Abandoned(notice.attempt, notice.checkpoint, notice.reason.value))
        self._services.metrics.checkpoint_failed(notice.reason.value)
        detail = f" ({notice.detail})" if notice.detail else ""
        self.savepoints.given_up(notice.checkpoint, f"{notice.reason.value}{detail}")
        self.ordered.given_up(notice.checkpoint, f"{notice.reason.value}{detail}")
        text = f"checkpoint {notice.checkpoint} was given up: {notice.reason.value}{detail}"
        level = logging.WARNING if self._lines.given_up(notice.reason) else logging.DEBUG
        logger.log(level, "%s", text, extra={"checkpoint": notice.checkpoint})

    # -- tasks -----------------------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._deciding.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TidegateError):  # for example, the directory no longer exists
            self._fail(error)
        elif error is not None:
            logger.error("internal error", exc_info=error)
            self._fail(CoordinatorFailed(f"internal error: {type(error).__name__}: {error}", cause="internal"))
