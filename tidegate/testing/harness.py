"""A pipeline in one thread: the deployments of all its slots, their channels, and one checkpoint at a time.

The parts between slots and Kafka are replaced (`parts.py`). Decoders, operators, states, barriers, snapshots and
restores are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Final

import msgspec
import polars as pl

from tidegate.coordinator.gating import Gating
from tidegate.coordinator.types import Ack, SourcePositions
from tidegate.errors import AttemptFailed
from tidegate.formats.failures import FailureKind
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.waiting import add_gauges
from tidegate.plan.assignment import assign_partitions
from tidegate.plan.graph import Plan
from tidegate.slot.deployment import Deployment
from tidegate.sources.positions import STAYS_SECONDS
from tidegate.storage.shared import Proof
from tidegate.task.bad_records import DeadLetterCount
from tidegate.task.elements import Barrier
from tidegate.task.messages import (
    Acknowledged,
    Completed,
    Declined,
    Deploy,
    HoldSources,
    InputCaughtUp,
    SlotMessage,
    SlotSettings,
    Trigger,
)
from tidegate.task.report import OperatorCounts
from tidegate.task.wire import Frame, decode_element
from tidegate.testing.feed import Log
from tidegate.testing.parts import BenchParts, Collector, MemoryStorage, Numbered, VirtualClock, WrittenRecord
from tidegate.user_code.files import NO_FILES, CodeFiles

QUIET_MS: Final = 1000 * int(STAYS_SECONDS)
"""A source then checks whether a partition is still at its end."""
DEADLINES_MAX: Final = 1000
"""Enough for anything that reads the clock every second; time then advances to its end in one step."""
TURNS_MAX: Final = 1_000_000
"""More turns mean a bug: an operator that reports movement forever."""


class HarnessSnapshot(msgspec.Struct, frozen=True):
    """A completed checkpoint: the acknowledgements by slot, and what the sinks wrote before it."""

    acks: tuple[tuple[Ack, ...], ...]
    quiet: tuple[dict[OperatorName, frozenset[TopicPartition]], ...]
    """Idle partitions by slot and source. They are not part of a checkpoint: a real restart detects them again within a
    second.
    """
    written: dict[OperatorName, list[WrittenRecord]]
    storage: MemoryStorage


class Harness:
    """One attempt of the plan. `on_skipped` receives a line for each bad record that is skipped."""

    checkpoint = CheckpointId(1)
    """The id of its checkpoint."""

    def __init__(
        self,
        plan: Plan,
        log: Log,
        clock: VirtualClock,
        on_skipped: Callable[[str], None],
        snapshot: HarnessSnapshot | None = None,
        code: CodeFiles = NO_FILES,
    ) -> None:
        self.plan = plan
        self.clock = clock
        self._storage = MemoryStorage() if snapshot is None else snapshot.storage
        self._acks: list[list[Ack]] = [[] for _ in range(plan.parallelism)]
        self._attempt = Attempt(1 if snapshot is None else 2)
        self._written: dict[OperatorName, list[WrittenRecord]] = {} if snapshot is None else dict(snapshot.written)
        self._gating = Gating(plan)
        proof = Proof(self._storage, self._attempt, "", clock)
        proof.write_daemons()
        numbers = count()
        self._parts = [
            BenchParts(log, clock, self._storage, numbers, on_skipped, code) for _ in range(plan.parallelism)
        ]
        partitions = _assign(plan, log)
        self._slots = [
            Deployment(self._deploy(slot, partitions, snapshot), clock, self._receiver(slot), _nothing, parts)
            for slot, parts in enumerate(self._parts)
        ]
        for deployment in self._slots:
            deployment.loop.letters = DeadLetterCount(None)  # a minute of a case may hold any number of dead letters
            deployment.open()
        self._hold_sources()
        if snapshot is not None:
            for parts, quiet in zip(self._parts, snapshot.quiet, strict=True):
                for source in parts.sources:
                    source.on_quiet(quiet[source.operator.name])

    def _deploy(
        self,
        slot: int,
        partitions: Mapping[OperatorName, Sequence[tuple[TopicPartition, ...]]],
        snapshot: HarnessSnapshot | None,
    ) -> Deploy:
        assigned = {source: parts[slot] for source, parts in partitions.items()}
        acks = () if snapshot is None else snapshot.acks
        positions = [one for ack in acks[slot] for one in ack.positions] if acks else self._beginnings(assigned)
        return Deploy(
            attempt=self._attempt,
            slot=SlotIndex(slot),
            token="",
            plan=self.plan,
            peers=(),
            settings=_settings(self.plan),
            partitions=assigned,
            positions=tuple(positions),
            states=tuple(state for of in acks for ack in of for state in ack.states),
        )

    def _beginnings(self, assigned: Mapping[OperatorName, tuple[TopicPartition, ...]]) -> list[SourcePositions]:
        """Returns positions for the whole log. A bounded source has the ends that the log will reach."""
        whole = self._parts[0].log
        found = []
        for source in self.plan.operators(SourceOperator):
            parts, log = assigned[source.name], whole.of(source.cluster)
            ends = () if source.until == "never" else tuple((part, log.ends[part]) for part in parts)
            found.append(SourcePositions(source.name, tuple((part, 0) for part in parts), ends))
        return found

    def _receiver(self, slot: int) -> Callable[[SlotMessage], None]:
        def receive(message: SlotMessage) -> None:
            match message:
                case Acknowledged():
                    self._acks[slot].append(message.ack)
                case InputCaughtUp():
                    if self._gating.on_caught_up(message.vertex, message.port, SlotIndex(slot)):
                        self._hold_sources()
                case Declined():
                    reason = message.decline
                    raise AttemptFailed(
                        f"the snapshot of {reason.subtask} failed: {reason.reason} {reason.detail}".rstrip()
                    )

        return receive

    def _hold_sources(self) -> None:
        """Tells the slots which sources a gate holds. Leads are left out: no input of a case is too large for them."""
        for slot, deployment in enumerate(self._slots):
            deployment.loop.on_hold(HoldSources(self._attempt, frozenset(self._gating.holds(SlotIndex(slot)))))

    # -- driven by cases -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Runs until nothing moves. Raises what a slot raises."""
        for _ in range(TURNS_MAX):
            if not self.turn():
                return
        raise AttemptFailed(f"the pipeline was still processing after {TURNS_MAX} turns")

    def turn(self) -> bool:
        """Runs one step of every source, slot and connection. Returns whether anything moved."""
        moved = False
        for parts, deployment in zip(self._parts, self._slots, strict=True):
            for source in parts.sources:
                moved |= source.pump()
            moved |= deployment.loop.turn()
            for uploaded in deployment.uploads.take_results():
                deployment.loop.on_uploaded(uploaded)
                moved = True
        return self._exchange() or moved

    def watermark(self, source: OperatorName, watermark_ms: int) -> None:
        """Raises the watermark of all partitions of a source to this time."""
        for parts in self._parts:
            for each in parts.sources:
                if each.operator.name == source:
                    each.raise_watermark(watermark_ms)

    def advance(self, until_ms: int) -> None:
        """Advances the clock from deadline to deadline, up to a maximum number, and then to the end."""
        quiet_ms = self.clock.time_ms + QUIET_MS
        for _ in range(DEADLINES_MAX):
            deadlines = [each.loop.next_deadline_ms for each in self._slots]
            due_ms = min([quiet_ms, *(each for each in deadlines if each is not None)])
            if due_ms >= until_ms:
                break
            self.clock.time_ms = max(due_ms, self.clock.time_ms + 1)
            quiet_ms = until_ms if due_ms == quiet_ms else quiet_ms
            self.settle()
        self.clock.time_ms = until_ms
        self.settle()

    def snapshot(self) -> HarnessSnapshot:
        """Completes a checkpoint of what is in the pipeline now. Raises AttemptFailed if it does not complete."""
        after_ms = 0 if self.plan.exactly_once else None
        barrier = Barrier(self.checkpoint, self.clock.now_ms(), unaligned_after_ms=after_ms)
        for deployment in self._slots:
            deployment.loop.on_trigger(Trigger(self.plan.pipeline, self._attempt, barrier))
        quiet = tuple({each.operator.name: each.caught_up for each in parts.sources} for parts in self._parts)
        subtasks = len(self.plan.vertices)
        while self._waiting_for(subtasks):
            if not self.turn() and self._waiting_for(subtasks):  # a turn that moves nothing may still acknowledge
                raise AttemptFailed("the snapshot of the case did not complete")
        written = self._gather(Collector.take_prepared)
        for deployment in self._slots:
            deployment.loop.on_completed(Completed(self._attempt, self.checkpoint, frozenset()))
        return HarnessSnapshot(tuple(map(tuple, self._acks)), quiet, written, self._storage)

    def _waiting_for(self, subtasks: int) -> bool:
        return any(len(acks) < subtasks for acks in self._acks)

    def close(self) -> None:
        """Closes the slots."""
        for deployment in self._slots:
            deployment.close()

    # -- what came out -------------------------------------------------------------------------------------------------

    def written(self) -> dict[OperatorName, list[WrittenRecord]]:
        """Returns the records by sink in the order of writing, including those of the restored snapshot."""
        for name, records in self._gather(Collector.take).items():
            self._written.setdefault(name, []).extend(records)
        return self._written

    def _gather(self, take: Callable[[Collector], list[Numbered]]) -> dict[OperatorName, list[WrittenRecord]]:
        found: dict[OperatorName, list[Numbered]] = {}
        for parts in self._parts:
            for sink in parts.sinks:
                found.setdefault(sink.operator.name, []).extend(take(sink))
        return {name: [one for _, one in sorted(records, key=itemgetter(0))] for name, records in found.items()}

    def keep_rows(self) -> None:
        """Keeps the rows that sinks write from now on."""
        for parts in self._parts:
            for sink in parts.sinks:
                sink.kept = []

    def rows(self) -> dict[OperatorName, list[pl.DataFrame]]:
        """Returns the kept rows by sink in the order of writing."""
        found: dict[OperatorName, list[tuple[int, pl.DataFrame]]] = {}
        for parts in self._parts:
            for sink in parts.sinks:
                found.setdefault(sink.operator.name, []).extend(sink.kept or ())
        return {name: [frame for _, frame in sorted(frames, key=itemgetter(0))] for name, frames in found.items()}

    def bad_records(self) -> dict[FailureKind, int]:
        """Returns the number of skipped records by kind."""
        found: dict[FailureKind, int] = {}
        for deployment in self._slots:
            for (_, kind), skipped in deployment.loop.counters.bad_records.items():
                found[kind] = found.get(kind, 0) + skipped
        return found

    def counts(self) -> dict[OperatorName, OperatorCounts]:
        """Returns the counters of operators, summed over all slots; of their watermarks the lowest.

        To be called only after all input. Rows that wait to be added to a state are added, because they would not be
        counted otherwise.
        """
        found: dict[OperatorName, OperatorCounts] = {}
        for deployment in self._slots:
            for task in deployment.loop.tasks:
                for operator in task.chain.operators.values():
                    operator.before_snapshot()
            for name, one in deployment.reporter.report().operators.items():
                total = found.setdefault(name, OperatorCounts(watermark_ms=one.watermark_ms))
                total.late += one.late
                total.before_1971 += one.before_1971
                total.watermark_ms = _lowest(total.watermark_ms, one.watermark_ms)
                total.held_back_by = total.held_back_by or one.held_back_by
                total.gauges = add_gauges(total.gauges, one.gauges)
        return found

    def _exchange(self) -> bool:
        """Carries frames from slot to slot, and credits and questions back."""
        moved = False
        for sender, deployment in enumerate(self._slots):
            for receiver, outputs in deployment.wiring.remote_outputs.items():
                for edge, output in outputs.items():
                    channel = self._slots[receiver].wiring.remote_inputs[sender, edge]
                    while (taken := output.take()) is not None:
                        kind, sequence, body = taken
                        channel.push(decode_element(Frame(kind, edge, sequence, body)))
                        moved = True
                    output.grant(channel.take_credit())
                    question = channel.take_question()
                    if question:
                        output.on_question(question)
                        moved = True
        return moved


def _lowest(one: int | None, other: int | None) -> int | None:
    """Returns the lower watermark; None is lower than any."""
    return None if one is None or other is None else min(one, other)


def _assign(plan: Plan, log: Log) -> dict[OperatorName, Sequence[tuple[TopicPartition, ...]]]:
    sources = plan.operators(SourceOperator)
    parts = {one.name: [part for part in log.of(one.cluster).ends if _reads(one, part.topic)] for one in sources}
    return {name: assign_partitions(found, plan.parallelism) for name, found in parts.items()}


def _reads(source: SourceOperator, topic: str) -> bool:
    """Returns whether a source reads a topic.

    If a case names no topic, the topic of a source with a pattern is the pattern itself.
    """
    return topic in source.topics or topic == source.pattern or source.matches(topic)


def _settings(plan: Plan) -> SlotSettings:
    """Builds the slots' settings.

    Barriers overtake rows if the plan's mode allows it, because such checkpoints are harder to restore.
    """
    return SlotSettings(
        group_id=plan.pipeline,
        storage_url="memory",
        transaction_timeout_ms=0,
        checkpoint_interval_ms=1000,
        heartbeat_interval_ms=1000,
        lease_ms=1000,
        pipeline_log_level=0,
        unaligned_after_ms=0 if plan.exactly_once else None,
    )


def _nothing() -> None:
    """Does nothing, because no thread sleeps that would have to be woken."""
