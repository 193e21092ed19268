"""Known protocol bugs, each planted by replacing a function of the product while schedules are played; the product
knows nothing of it. `canaries.py` lets the simulation find them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka as ck
import msgspec
import pytest

from tidegate.committable import Committable
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import AnyEntry, encode_entry
from tidegate.coordinator.events import AckOutcome, CheckpointFailure, WriteSavepoint
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import TransactionLedger
from tidegate.coordinator.pending import PendingCheckpoint, PendingPhase
from tidegate.coordinator.permit import issue_permit
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.coordinator.restore_target import Fallback, RestoreTarget
from tidegate.coordinator.types import Ack, CompletedCheckpoint, StateHandle, StateKind
from tidegate.daemon import preflight as looking
from tidegate.daemon import recovery
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.daemon.recovery_stages import OffsetsAssigned, RestorePointAppended
from tidegate.daemon.restore_point import RestorePointSelector
from tidegate.daemon.services import Services
from tidegate.daemon.start_offsets import fix_start_offsets
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, JournalSequence, TopicPartition, TransactionalId
from tidegate.journal.journal import Appended, Journal
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import CoordinatorState, EndAnswer, OpenBrokerTransaction, PreparedView
from tidegate.kafka.requests import end_request
from tidegate.native.table import FrozenRows
from tidegate.plan.graph import Plan
from tidegate.sinks.committer import Committer
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import (
    FENCE_RAISES,
    HangingTransactionTracker,
    HangingVerdict,
    ResolveReport,
    decide_verdict,
)
from tidegate.sinks.kafka import KafkaSink
from tidegate.sinks.outcome import CommitOutcome, decide_from_answer
from tidegate.sinks.preparation import Preparation
from tidegate.sinks.proof import Flushed, decide_committable, decide_first_sequences
from tidegate.slot.subtasks import Subtasks
from tidegate.slot.uploads import Uploads, derive_handle
from tidegate.sources.fetching import Fetcher
from tidegate.sources.reader import ConsumerThread
from tidegate.sources.tools import Consumer
from tidegate.state.base import Share
from tidegate.state.columns import ColumnState
from tidegate.state.increments import Extent, Increments, KeySet
from tidegate.state.memory import MemoryState
from tidegate.storage.base import StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.names import journal_name
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.handler import Abort, Action
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.loop import SlotLoop, Uploaded, UploadJob
from tidegate.task.vertex import VertexTask

Patch = pytest.MonkeyPatch


def commit_before_the_journal_entry(patch: Patch) -> None:
    real = InstructionExecutor._append

    async def append(self: InstructionExecutor, checkpoint: CompletedCheckpoint) -> None:
        with suppress(TidegateError):
            await self._services.kafka.commit(issue_permit(checkpoint.id, checkpoint.committables))
        await real(self, checkpoint)

    patch.setattr(InstructionExecutor, "_append", append)


def no_commit_at_recovery(patch: Patch) -> None:
    patch.setattr(Journal, "recovery_permit", lambda self, plan: None)


def carried_committables_dropped(patch: Patch) -> None:
    """An entry lists only the transactions of its own checkpoint."""
    real = TransactionLedger.due

    def due(self: TransactionLedger, checkpoint: CheckpointId) -> tuple[Committable, ...]:
        return tuple(one for one in real(self, checkpoint) if one.checkpoint == checkpoint)

    patch.setattr(TransactionLedger, "due", due)


def no_alignment(patch: Patch) -> None:
    def choose(*, exactly_once: bool, unaligned: bool, channels: int) -> Tracker:
        return Tracker(channels)

    patch.setattr("tidegate.slot.subtasks.choose_handler", choose)


def ack_before_the_upload_is_durable(patch: Patch) -> None:
    real = Uploads._do

    def do(self: Uploads, job: UploadJob | StateHandle) -> None:
        if isinstance(job, StateHandle) or job.checkpoint in self._abandoned:
            real(self, job)
            return
        files = [seal(body) for body in job.encode()]
        handles = tuple(derive_handle(job, number, data) for number, data in enumerate(files))
        self._results.put(Uploaded(job.subtask, job.checkpoint, handles, "", 0.0))
        self._wake()
        with suppress(StorageError):
            for handle, data in zip(handles, files, strict=True):
                self._storage.put(handle.path, data)

    patch.setattr(Uploads, "_do", do)


def producer_reused_after_a_timeout(patch: Patch) -> None:
    """A transaction that the broker has aborted meanwhile is taken for an empty one, and the sink goes on."""
    real = Preparation._prepare

    def prepare_anyway(self: Preparation, writer: Any, barrier: Any) -> None:
        try:
            real(self, writer, barrier)
        except SinkFailed:
            self._flushed.append(barrier.checkpoint)
            self._answer(barrier, ())

    patch.setattr(Preparation, "_prepare", prepare_anyway)


def commit_from_a_stale_attempt(patch: Patch) -> None:
    """A lost race for a journal entry is taken for won."""

    def create(self: Journal, entry: AnyEntry) -> bool:
        self._storage.put_if_absent(journal_name(entry.sequence), encode_entry(entry))
        return True

    patch.setattr(Journal, "_create", create)


def next_transaction_before_the_flush(patch: Patch) -> None:
    real = KafkaSink._begin_prepare

    def begin(self: KafkaSink, barrier: Any) -> None:
        real(self, barrier)
        self._flushing = False

    patch.setattr(KafkaSink, "_begin_prepare", begin)


def rows_in_flight_not_replayed(patch: Patch) -> None:
    patch.setattr(Subtasks, "restore_inflight", lambda self, vertex: [])


def cancelled_checkpoint_completes(patch: Patch) -> None:
    """Whoever has not answered when a checkpoint is given up counts as having nothing to say."""

    def complete(self: Coordinator, checkpoint: CheckpointId, reason: CheckpointFailure, detail: str) -> None:
        pending = self._pending.get(checkpoint)
        if pending is not None and pending.can_expire:
            for subtask in sorted(pending.waiting):
                pending.acknowledge(Ack(self._job.attempt, checkpoint, subtask), pending.triggered_at_ms)

    patch.setattr(Coordinator, "_give_up_if_waiting", complete)


def committables_of_a_failed_checkpoint_forgotten(patch: Patch) -> None:
    """By the sink and by the coordinator: each alone is made up for by the other."""
    give_up, prepared, aborted = Coordinator._give_up, TransactionLedger.prepared, KafkaSink.aborted

    def give_up_and_forget(
        self: Coordinator, pending: PendingCheckpoint, reason: CheckpointFailure, detail: str
    ) -> None:
        forgotten: set[CheckpointId] = self._ledger.__dict__.setdefault("forgotten", set())
        forgotten.add(pending.id)
        for key in [key for key, one in self._ledger._open.items() if one.checkpoint == pending.id]:
            del self._ledger._open[key]
        give_up(self, pending, reason, detail)

    def prepared_but_forgotten(self: TransactionLedger, ack: Ack) -> None:
        forgotten: set[CheckpointId] = self.__dict__.get("forgotten", set())
        kept = tuple(one for one in ack.committables if one.checkpoint not in forgotten)
        prepared(self, msgspec.structs.replace(ack, committables=kept))

    def forget(self: KafkaSink, checkpoint: CheckpointId) -> None:
        self._unconfirmed.pop(checkpoint, None)
        aborted(self, checkpoint)

    patch.setattr(Coordinator, "_give_up", give_up_and_forget)
    patch.setattr(TransactionLedger, "prepared", prepared_but_forgotten)
    patch.setattr(KafkaSink, "aborted", forget)


def zombie_recreates_a_cleaned_entry(patch: Patch) -> None:
    def settled(self: Journal, entry: AnyEntry) -> list[JournalSequence]:
        return [entry.sequence]

    patch.setattr(Journal, "_settled_sequences", settled)


def empty_interval_answered_before_the_older_proof(patch: Patch) -> None:
    real = KafkaSink._begin_prepare

    def begin(self: KafkaSink, barrier: Any) -> None:
        if self._writer is None or not self._writer.produced:
            self._preparation._answer(barrier, ())
        else:
            real(self, barrier)

    patch.setattr(KafkaSink, "_begin_prepare", begin)


def changes_of_a_failed_checkpoint_forgotten(patch: Patch) -> None:
    """The next increment begins where the one that was given up would have ended."""

    def abandoned(self: Increments[Any], checkpoint: CheckpointId) -> None:
        self._flights.pop(checkpoint, None)

    patch.setattr(Increments, "abandoned", abandoned)


def files_of_an_old_checkpoint_deleted_although_newer_ones_build_on_them(patch: Patch) -> None:
    patch.setattr("tidegate.journal.journal.decide_garbage", lambda handles, needed: tuple(handles))


def increments_restored_before_what_they_build_on(patch: Patch) -> None:
    for backend in (MemoryState, ColumnState):
        _restore_reversed(patch, backend)


def _restore_reversed(patch: Patch, backend: type[MemoryState[Any] | ColumnState[Any]]) -> None:
    real = backend.restore

    def restore(self: Any, files: Iterable[bytes], share: Share) -> None:
        real(self, reversed(list(files)), share)

    patch.setattr(backend, "restore", restore)


def lost_markers_not_written(patch: Patch) -> None:
    patch.setattr(HangingTransactionResolver, "resolve", lambda self, topics: ResolveReport(frozenset()))


def begin_looked_up_by_every_attempt(patch: Patch) -> None:
    """An attempt without a checkpoint asks again what `start: latest` means."""

    async def unfixed(plan: Plan, services: Services, decided: RestorePointAppended) -> OffsetsAssigned:
        restore = decided.restore
        if restore.checkpoint is None or not restore.checkpoint.starts:
            return await fix_start_offsets(plan, services, decided)
        slots = tuple(msgspec.structs.replace(slot, positions=()) for slot in restore.slots)
        return OffsetsAssigned(msgspec.structs.replace(restore, slots=slots), restore.checkpoint)

    patch.setattr(recovery, "fix_start_offsets", unfixed)


def rows_in_flight_restored_in_the_wrong_order(patch: Patch) -> None:
    """What had not left its senders first."""
    patch.setattr("tidegate.task.inflight.REPLAY_ORDER", (StateKind.OUTPUT, StateKind.INPUT))


def first_sequence_proof_skips_a_partition(patch: Patch) -> None:
    def decide(flushed: Flushed, sequences: Mapping[TopicPartition, int | None]) -> None:
        decide_first_sequences(flushed, {part: sequences[part] for part in sorted(sequences)[1:]})

    patch.setattr("tidegate.sinks.preparation.decide_first_sequences", decide)


def proof_accepts_fewer_records(patch: Patch) -> None:
    def decide(flushed: Flushed, view: PreparedView) -> Committable:
        counted = sum(progress.records for progress in view.progress.values())
        return decide_committable(msgspec.structs.replace(flushed, produced=min(flushed.produced, counted)), view)

    patch.setattr("tidegate.sinks.preparation.decide_committable", decide)


def carried_transactions_of_a_final_entry_forgotten(patch: Patch) -> None:
    real = Journal.append_checkpoint

    def append(self: Journal, checkpoint: CompletedCheckpoint) -> Appended:
        if checkpoint.final:
            own = tuple(one for one in checkpoint.committables if one.checkpoint == checkpoint.id)
            checkpoint = msgspec.structs.replace(checkpoint, committables=own)
        return real(self, checkpoint)

    patch.setattr(Journal, "append_checkpoint", append)


def aligner_leaks_a_channel(patch: Patch) -> None:
    real = Aligner.is_blocked
    patch.setattr(Aligner, "is_blocked", lambda self, channel: channel != 0 and real(self, channel))


def ack_of_an_older_attempt_accepted(patch: Patch) -> None:
    """It counts for what is under way."""
    real = Coordinator._acknowledge

    def acknowledge(self: Coordinator, ack: Ack, now_ms: int) -> AckOutcome:
        if ack.attempt != self._job.attempt and self._pending:
            ack = msgspec.structs.replace(ack, attempt=self._job.attempt, checkpoint=min(self._pending))
        return real(self, ack, now_ms)

    patch.setattr(Coordinator, "_acknowledge", acknowledge)


def transactions_ended_with_another_epoch(patch: Patch) -> None:
    def request(committable: Committable, commit: bool) -> object:
        return end_request(msgspec.structs.replace(committable, producer_epoch=committable.producer_epoch + 1), commit)

    patch.setattr("tidegate.kafka.transactions.end_request", request)


def decline_not_sent(patch: Patch) -> None:
    patch.setattr(SlotLoop, "_decline", lambda self, subtask, checkpoint, reason, detail: None)


def cancellation_not_sent(patch: Patch) -> None:
    def give_up(self: VertexTask, abort: Abort) -> None:
        self._recordings.forget(abort.checkpoint)
        self._host.decline(self.subtask, abort.checkpoint, abort.reason)

    patch.setattr(VertexTask, "_give_up", give_up)


def tracker_completes_early(patch: Patch) -> None:
    """A checkpoint at least once whose last barrier is not waited for."""
    real = Tracker._complete

    def complete(self: Tracker, checkpoint: CheckpointId) -> list[Action]:
        channels, self.channels = self.channels, max(1, self.channels - 1)
        try:
            return real(self, checkpoint)
        finally:
            self.channels = channels

    patch.setattr(Tracker, "_complete", complete)


def credit_never_granted(patch: Patch) -> None:
    patch.setattr(InputChannel, "take_credit", lambda self: 0)


def new_partition_read_from_its_end(patch: Patch) -> None:
    real = ConsumerThread._assign_added

    def assign(self: ConsumerThread, consumer: Consumer, fetcher: Fetcher) -> None:
        before = consumer.incremental_assign

        def at_their_ends(places: list[ck.TopicPartition]) -> None:
            for place in places:
                _, place.offset = consumer.get_watermark_offsets(place, timeout=5.0, cached=False)
            before(places)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(consumer, "incremental_assign", at_their_ends)
            real(self, consumer, fetcher)

    patch.setattr(ConsumerThread, "_assign_added", assign)


def snapshot_taken_when_it_is_uploaded(patch: Patch) -> None:
    """Instead of when the barrier passes."""
    patch.setattr(MemoryState, "_freeze_all", lambda self: lambda: self._encode(self._entries.freeze().items()))

    def freeze(self: MemoryState[Any], keys: KeySet) -> Callable[[], Iterable[bytes]]:
        return lambda: self._encode(zip(keys.joined(), self.get_many(keys.joined()), strict=True))

    patch.setattr(MemoryState, "_freeze", freeze)
    patch.setattr(ColumnState, "_freeze_all", lambda self: lambda: self._encode(FrozenRows(self._table), None))

    def freeze_rows(self: ColumnState[Any], keys: KeySet) -> Callable[[], Iterable[bytes]]:
        return lambda: self._encode(FrozenRows(self._table, keys.joined()), keys.joined())

    patch.setattr(ColumnState, "_freeze", freeze_rows)


def newer_transactions_committed_behind_a_lost_one(patch: Patch) -> None:
    """ADR 4."""
    real = Committer._end_all
    patch.setattr(Committer, "_end_all", lambda self, permit, hold=True: real(self, permit, False))


def refusal_taken_for_an_end(patch: Patch) -> None:
    """ADR 5: the answer alone is believed."""

    def decide(answer: EndAnswer) -> CommitOutcome | None:
        return (
            CommitOutcome.ENDED_NOW
            if answer in (EndAnswer.FENCED, EndAnswer.INVALID_STATE)
            else decide_from_answer(answer)
        )

    patch.setattr("tidegate.sinks.committer.decide_from_answer", decide)


def refusal_taken_for_a_loss(patch: Patch) -> None:
    """ADR 5, the other way round."""

    def decide(answer: EndAnswer) -> CommitOutcome | None:
        return CommitOutcome.LOST if answer is EndAnswer.FENCED else decide_from_answer(answer)

    patch.setattr("tidegate.sinks.committer.decide_from_answer", decide)


def savepoint_written_before_its_output_is_committed(patch: Patch) -> None:
    """ADR 11."""

    def write(self: Coordinator, now_ms: int) -> None:
        for pending in list(self._pending.values()):
            if pending.awaits_commit:
                pending.move(PendingPhase.WRITING)
                self._out.append(WriteSavepoint(pending.complete((), now_ms)))

    patch.setattr(Coordinator, "_write_savepoints", write)


def wish_carried_out_at_every_start(patch: Patch) -> None:
    """ADR 12."""
    real = RestorePointSelector.look

    async def look(self: RestorePointSelector, state: JournalState) -> RestoreTarget | Fallback | None:
        return await real(self, msgspec.structs.replace(state, origin=""))

    patch.setattr(RestorePointSelector, "look", look)


def barrier_overtakes_a_barrier(patch: Patch) -> None:
    """ADR 14: those in the way lose their places."""
    real = RemoteOutput._overtake

    def overtake(self: RemoteOutput, newest: CheckpointId) -> None:
        own = [one for one in self._queue if one.barrier is not None and one.barrier.checkpoint == newest]
        others = [one for one in self._queue if one not in own]
        self._queue = deque([*own, *others])
        real(self, newest)

    patch.setattr(RemoteOutput, "_overtake", overtake)


def open_transactions_ended_by_the_mender(patch: Patch) -> None:
    """ADR 15: what its coordinator has not decided. The list of all ids, the description of each and a second look some
    seconds later stand against that: each of them alone is nearly enough, so it takes all three.
    """

    def suspect_all(opened: Iterable[OpenBrokerTransaction], *_known: object) -> list[OpenBrokerTransaction]:
        return list(opened)

    def decide(*arguments: Any) -> HangingVerdict:
        verdict = decide_verdict(*arguments)
        return HangingVerdict.ABORT if verdict is HangingVerdict.LIVE else verdict

    patch.setattr("tidegate.sinks.hanging_resolver.find_suspects", suspect_all)
    patch.setattr("tidegate.sinks.hanging_resolver.decide_verdict", decide)
    patch.setattr(HangingTransactionTracker, "is_ripe", lambda *_: True)


def increments_on_an_undecided_checkpoint(patch: Patch) -> None:
    """ADR 16."""
    real = Increments.begin

    def begin(self: Increments[Any], checkpoint: CheckpointId, held: int) -> Extent[Any]:
        if self._flights and all(one.own is None or one.own.files for one in self._flights.values()):
            self.completed(max(self._flights))
        return real(self, checkpoint, held)

    patch.setattr(Increments, "begin", begin)


# -- bugs that were found by the simulation when they were there -------------------------------------------------------


def fence_raises_the_epoch_just_twice(patch: Patch) -> None:
    def decide(one: OpenBrokerTransaction, known: TransactionalId | None, told: Any, *rest: Any) -> HangingVerdict:
        verdict = decide_verdict(one, known, told, *rest)
        raised = 0 if told is None else told.producer.epoch - one.producer.epoch
        unsure = verdict is HangingVerdict.ABORT and told.state is CoordinatorState.EMPTY and raised > FENCE_RAISES
        return HangingVerdict.UNSURE if unsure else verdict

    patch.setattr("tidegate.sinks.hanging_resolver.decide_verdict", decide)


def topics_looked_at_before_the_journal_of_another_daemon(patch: Patch) -> None:
    """What that one has found since then is unknown."""
    real = looking.read_facts
    known: dict[int, RestoreFacts] = {}

    async def read_facts(plan: Plan, services: Services, state: JournalState) -> RestoreFacts:
        if id(services) not in known:
            known[id(services)] = await real(plan, services, state)
        return known[id(services)]

    patch.setattr(looking, "read_facts", read_facts)
    patch.setattr(recovery, "read_facts", read_facts)
