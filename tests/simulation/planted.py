"""Known protocol bugs, each planted by replacing a function of the product while schedules are played; the product
knows nothing of it. `canaries.py` lets the simulation find them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import AnyEntry, encode_entry
from tidegate.coordinator.events import CheckpointFailure
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.ledger import TransactionLedger
from tidegate.coordinator.pending import PendingCheckpoint
from tidegate.coordinator.permit import issue_permit
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan
from tidegate.coordinator.types import Ack, Committable, CompletedCheckpoint, StateHandle
from tidegate.daemon import recovery
from tidegate.daemon.beginning import fix_beginnings
from tidegate.daemon.decisions import Decisions, Services
from tidegate.daemon.deployment import Deployment
from tidegate.daemon.uploads import Uploads, derive_handle
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, JournalSequence
from tidegate.plan.graph import Plan
from tidegate.sinks.errors import SinkFailed
from tidegate.sinks.hanging import MendReport
from tidegate.sinks.kafka import KafkaSink
from tidegate.sinks.mender import Mender
from tidegate.state.increments import Increments
from tidegate.state.memory import MemoryState
from tidegate.storage.base import StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.names import journal_name
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.loop import Uploaded, UploadJob

Patch = pytest.MonkeyPatch


def commit_before_the_journal_entry(patch: Patch) -> None:
    real = Decisions._append

    async def append(self: Decisions, checkpoint: CompletedCheckpoint) -> None:
        with suppress(TidegateError):
            await self._services.kafka.commit(issue_permit(checkpoint.id, checkpoint.committables))
        await real(self, checkpoint)

    patch.setattr(Decisions, "_append", append)


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

    patch.setattr("tidegate.daemon.deployment.choose_handler", choose)


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
    real = KafkaSink._prepare

    def prepare_anyway(self: KafkaSink, writer: Any, barrier: Any) -> None:
        try:
            real(self, writer, barrier)
        except SinkFailed:
            self._flushed.append(writer)
            self._answer(barrier, ())

    patch.setattr(KafkaSink, "_prepare", prepare_anyway)


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
    patch.setattr(Deployment, "_replay", lambda self, vertex: [])


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
            self._answer(barrier, ())
        else:
            real(self, barrier)

    patch.setattr(KafkaSink, "_begin_prepare", begin)


def changes_of_a_failed_checkpoint_forgotten(patch: Patch) -> None:
    """The next increment begins where the one that was given up would have ended."""

    def abandoned(self: Increments[Any], checkpoint: CheckpointId) -> None:
        self._flights.pop(checkpoint, None)

    patch.setattr(Increments, "abandoned", abandoned)


def files_of_an_old_checkpoint_deleted_although_newer_ones_build_on_them(patch: Patch) -> None:
    patch.setattr("tidegate.coordinator.journal.decide_garbage", lambda handles, needed: tuple(handles))


def increments_restored_before_what_they_build_on(patch: Patch) -> None:
    real = MemoryState.restore

    def restore(self: MemoryState[Any], files: Iterable[bytes], key_groups: range) -> None:
        real(self, reversed(list(files)), key_groups)

    patch.setattr(MemoryState, "restore", restore)


def lost_markers_not_written(patch: Patch) -> None:
    patch.setattr(Mender, "mend", lambda self, topics, seen: MendReport(frozenset()))


def id_used_again_before_its_marker_is_there(patch: Patch) -> None:
    patch.setattr("tidegate.sinks.kafka.find_unended", lambda committable, opened: [])


def begin_looked_up_by_every_attempt(patch: Patch) -> None:
    """An attempt without a checkpoint asks anew what `start: latest` means."""

    async def unfixed(plan: Plan, services: Services, restore: RestorePlan, facts: RestoreFacts) -> RestorePlan:
        if restore.checkpoint is None or not restore.checkpoint.starts:
            return await fix_beginnings(plan, services, restore, facts)
        slots = tuple(msgspec.structs.replace(slot, positions=()) for slot in restore.slots)
        return msgspec.structs.replace(restore, slots=slots)

    patch.setattr(recovery, "fix_beginnings", unfixed)
