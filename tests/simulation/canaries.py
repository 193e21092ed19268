"""Known protocol bugs, planted one at a time: the simulation must find each within a budget of seeds, or it proves
nothing. `make canaries` prints where each one is caught.

A bug is planted by replacing a function of the product while schedules are played; the product knows nothing of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

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
from tidegate.simulation.campaign import prepare, quiet
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import Fault
from tidegate.simulation.workload import Workload
from tidegate.simulation.world import Schedule, play
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

BUDGET: Final = 300
"""Seeds that may be played for one canary, from FIRST on."""
FIRST: Final = 1

Patch = pytest.MonkeyPatch


class Canary(msgspec.Struct, frozen=True):
    """A bug, and the kind of workload that can show it."""

    plant: Callable[[Patch], None]
    focus: Callable[[Workload], Workload] = lambda workload: workload
    more: tuple[Fault, ...] = ()
    """Faults in every schedule, beside its own."""

    @property
    def name(self) -> str:
        """Of the bug."""
        return self.plant.__name__


class Caught(msgspec.Struct, frozen=True):
    """The first schedule that a planted bug breaks."""

    seed: int
    problem: str
    seconds: float


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


def with_rows_in_flight(workload: Workload) -> Workload:
    """An exchange whose receivers are slow, and barriers that overtake."""
    return msgspec.structs.replace(
        workload,
        topology="both",
        parallelism=max(2, workload.parallelism),
        exactly_once=True,
        unaligned_after_ms=0,
        input_s=0.3,
        slot_pace=20.0,
    )


def with_rows_that_wait(workload: Workload) -> Workload:
    """An exchange of many senders whose receivers are slow all the time; barriers wait for each other."""
    return msgspec.structs.replace(
        workload,
        topology="both",
        parallelism=3,
        partitions=4,
        records=160,
        exactly_once=True,
        unaligned_after_ms=None,
        input_s=2.0,
        interval_ms=100,
        transaction_timeout_ms=10_000,
        slot_pace=20.0,
        broker_pace=1.0,
        storage_pace=1.0,
    )


def with_many_commits(workload: Workload) -> Workload:
    """Transaction after transaction, by ids that are used again soon."""
    return msgspec.structs.replace(
        workload, topology="both", exactly_once=True, interval_ms=50, broker_pace=1.0, storage_pace=1.0
    )


def with_many_keys(workload: Workload) -> Workload:
    """Few of them change between two checkpoints."""
    return msgspec.structs.replace(workload, topology="both", skus=40, interval_ms=50)


def with_slow_storage(workload: Workload) -> Workload:
    """State, and a long time in which a write has not had its effect."""
    return msgspec.structs.replace(workload, topology="both", storage_pace=15.0)


ZOMBIES: Final = (
    *(Fault(kind="slow", point="daemon.storage.put_if_absent", nth=nth, seconds=3.0) for nth in (4, 7, 10, 13)),
    *(Fault(kind="replace", at_s=at_s) for at_s in (0.8, 1.6, 2.4)),
)
"""Appends that take effect long after another daemon has begun."""

KILLS: Final = tuple(Fault(kind="kill", at_s=at_s, target="slot 0") for at_s in (1.2, 1.9, 2.6, 3.3))
"""Reasons to restore what has been stored."""

LOST_MARKERS: Final = tuple(
    Fault(kind="leader-away", at_s=at_s, target=f"{topic}/0", seconds=0.1)
    for at_s in (0.8, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6)
    for topic in ("paid", "sums")
)
"""Commits for partitions without a leader."""

TIME_OUTS: Final = tuple(Fault(kind="time-out", at_s=at_s) for at_s in (0.7, 1.1, 1.5, 1.9, 2.3, 2.7, 3.1))
"""Transactions that the broker aborts while they are written."""

FAILED_UPLOADS: Final = (
    *(Fault(kind="lose-before", point="slot.storage.put", nth=nth) for nth in (7, 13, 19, 25, 31, 37, 43)),
    *(Fault(kind="kill", at_s=at_s, target="slot 0") for at_s in (1.5, 2.5)),
)
"""Checkpoints that fail between others that do not, and reasons to restore them."""


def begin_looked_up_by_every_attempt(patch: Patch) -> None:
    """An attempt without a checkpoint asks anew what `start: latest` means."""

    async def unfixed(plan: Plan, services: Services, restore: RestorePlan, facts: RestoreFacts) -> RestorePlan:
        if restore.checkpoint is None or not restore.checkpoint.starts:
            return await fix_beginnings(plan, services, restore, facts)
        slots = tuple(msgspec.structs.replace(slot, positions=()) for slot in restore.slots)
        return msgspec.structs.replace(restore, slots=slots)

    patch.setattr(recovery, "fix_beginnings", unfixed)


def from_latest(workload: Workload) -> Workload:
    """Most input comes behind the first look."""
    return msgspec.structs.replace(workload, from_latest=True)


CANARIES: Final = (
    Canary(commit_before_the_journal_entry, with_slow_storage),
    Canary(no_commit_at_recovery),
    Canary(carried_committables_dropped),
    Canary(no_alignment, with_rows_that_wait, more=KILLS),
    Canary(ack_before_the_upload_is_durable, with_slow_storage, more=FAILED_UPLOADS),
    Canary(producer_reused_after_a_timeout, more=TIME_OUTS),
    Canary(commit_from_a_stale_attempt),
    Canary(next_transaction_before_the_flush),
    Canary(rows_in_flight_not_replayed, with_rows_in_flight),
    Canary(cancelled_checkpoint_completes),
    Canary(committables_of_a_failed_checkpoint_forgotten),
    Canary(zombie_recreates_a_cleaned_entry, more=ZOMBIES),
    Canary(empty_interval_answered_before_the_older_proof),
    Canary(changes_of_a_failed_checkpoint_forgotten, with_many_keys, more=FAILED_UPLOADS),
    Canary(files_of_an_old_checkpoint_deleted_although_newer_ones_build_on_them, with_many_keys),
    Canary(increments_restored_before_what_they_build_on, with_many_keys),
    Canary(lost_markers_not_written),
    Canary(begin_looked_up_by_every_attempt, from_latest),
    Canary(id_used_again_before_its_marker_is_there, with_many_commits, more=LOST_MARKERS),
)


def hunt(canary: Canary, first: int = FIRST, budget: int = BUDGET) -> Caught | None:
    """Play seeds with the bug until one is violated that is not without it; None when the budget is used up."""
    started = time.monotonic()
    with quiet() as workers:
        for seed in range(first, first + budget):
            schedule = _focused(draw_schedule(seed), canary)
            with pytest.MonkeyPatch.context() as patch:
                canary.plant(patch)
                problems = play(schedule, workers).problems
            if problems and not play(schedule, workers).problems:
                return Caught(seed, _telling(problems), time.monotonic() - started)
    return None


def _focused(schedule: Schedule, canary: Canary) -> Schedule:
    faults = schedule.faults + canary.more
    return msgspec.structs.replace(schedule, workload=canary.focus(schedule.workload), faults=faults)


def _telling(problems: Sequence[str]) -> str:
    """What is wrong with the output rather than that it was waited for in vain."""
    lines = [problem.strip().splitlines()[-1] for problem in problems]
    return next((line for line in lines if not line.startswith("not everything")), lines[0])


def main(arguments: Sequence[str] | None = None) -> Iterator[str]:
    """The table, line by line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--first", type=int, default=FIRST)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    chosen = [one for one in CANARIES if not options.names or one.name in options.names]
    caught = 0
    for canary in chosen:
        found = hunt(canary, options.first, options.budget)
        caught += found is not None
        what = (
            f"NOT CAUGHT in {options.budget} seeds"
            if found is None
            else f"caught at seed {found.seed} ({found.seconds:.1f} s): {found.problem[:150]}"
        )
        yield f"{canary.name:<48} {what}"
    yield f"{caught} of {len(chosen)} caught"


if __name__ == "__main__":
    prepare()
    last = ""
    for last in main():
        print(last, flush=True)
    told, _, of, _ = last.split()
    sys.exit(told != of)
