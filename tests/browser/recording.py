"""A pipeline whose slots are made up: it feeds real PipelineMetrics as slots and a coordinator would, without Spark."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.support.clocks import HandClock
from tidegate.committable import Committable, WrittenRange
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.coordinator.events import (
    PERIODIC,
    AckReceived,
    CheckpointFailure,
    CheckpointProperties,
    CheckpointReport,
    Journaled,
    NotifyAborted,
    NotifyCompleted,
    SendTrigger,
    SubtaskRunning,
    Tick,
)
from tidegate.coordinator.types import Ack, CompletedCheckpoint, SourcePositions, StateHandle
from tidegate.daemon.broker_watch import ProbeResult
from tidegate.daemon.diagnosis.facts import derive_limits, derive_plan_facts
from tidegate.daemon.diagnosis.watch import DiagnosisWatch
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts, derive_kinds, derive_remedies, derive_waits
from tidegate.daemon.status import PipelineState
from tidegate.formats.failures import FailureKind
from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    SubtaskId,
    TopicPartition,
    TransactionalId,
)
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.plan.build import build_plan
from tidegate.plan.clusters import derive_sink_clusters, derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.task.report import OperatorCounts, SlotReport

FILE: Final = Path(__file__).with_name("shop.yaml")
ORDERS, PAYMENTS = OperatorName("orders"), OperatorName("payments")
REVENUE, LATE_ORDERS = OperatorName("revenue"), OperatorName("late_orders")
STARTED_S: Final = 50_000.0
"""Monotonic time of the daemon's start."""


STALLED: Final = TopicPartition("orders", 2)
IDLE: Final = TopicPartition("payments", 3)


class Flow(msgspec.Struct, frozen=True):
    """What an operator does in one slot: rows in and out per second, and its share of the slot's time."""

    rows_in: float
    rows_out: float
    busy: float
    gauges: Mapping[str, int] = {}


FLOWS: Final[Mapping[str, Flow]] = {
    "orders": Flow(420, 420, 0.08),
    "valid": Flow(420, 408, 0.02),
    "paid_orders.order": Flow(408, 408, 0.02),
    "payments": Flow(390, 390, 0.07),
    "paid_orders.payment": Flow(390, 390, 0.02),
    "paid_orders": Flow(798, 371, 0.21, {"open_pairs": 9_400, WAITING_ROWS: 11_250}),
    "per_minute.input": Flow(371, 371, 0.01),
    "late_orders": Flow(0.2, 0.2, 0.001),
    "per_minute": Flow(371, 6.5, 0.06, {"open_windows": 130}),
    "revenue": Flow(6.5, 6.5, 0.01),
}
EVENT_TIME_LAG_MS: Final = 2_300
BEHIND_BOTH: Final = frozenset({"paid_orders", "per_minute.input", "per_minute", "revenue"})
"""Operators whose watermark waits for all partitions of both sources."""
PARTITIONS: Final = {"orders": 6, "payments": 4}
"""Partitions of each topic, if there are fewer slots."""


class Phases(msgspec.Struct, frozen=True):
    """Milliseconds of one subtask's part of a checkpoint, and its bytes."""

    start_delay_ms: float = 4.0
    alignment_ms: float = 3.0
    snapshot_ms: float = 2.0
    upload_ms: float = 24.0
    prepare_ms: float = 0.0
    size_bytes: int = 40_000
    inflight_rows: int = 0


def read_shop(parallelism: int) -> LoadedPipeline:
    """Reads the pipeline of the situations."""
    text = FILE.read_text().replace("parallelism: 4", f"parallelism: {parallelism}")
    return parse_pipeline(text, FILE.name, {})


class Recording:
    """One pipeline. `now_ms` is the wall clock at the moment that is shown; `minutes` before it the daemon started."""

    def __init__(self, name: str, now_ms: int, parallelism: int = 4, minutes: int = 60) -> None:
        self.loaded = read_shop(parallelism)
        self.plan: Plan = build_plan(self.loaded)
        self.attempt = Attempt(1)
        self.random = random.Random(name)
        self.slots = parallelism
        self.scale: dict[int, float] = {}
        """How much more than others a slot does."""
        self.stalled_ms: int | None = None
        """The event time at which partition orders[2] stands."""
        self.lag_growth: dict[int, float] = {}
        """By how many records a second partitions of this number fall behind."""
        self.failing = 0.0
        """Bad records per second and slot, of which dead letters are written."""
        self._epoch_ms = now_ms - minutes * 60_000 - int(STARTED_S * 1000)
        self.clock = HandClock(STARTED_S)
        self._counts: dict[int, dict[str, float]] = {}
        self._checkpoint = 0
        self._checkpoint_at = STARTED_S
        plan = self.plan
        clusters = derive_source_clusters(plan) | derive_sink_clusters(plan)
        operators = OperatorAccounts(derive_kinds(plan), derive_remedies(plan), derive_waits(plan))
        self.metrics = PipelineMetrics("shop", "0.1.0", self.clock, operators, self.now_ms, clusters=clusters)
        self.metrics.limits(5_000, 0, 900_000)
        limits = derive_limits(self.loaded.settings.checkpoints)
        self._diagnosis = DiagnosisWatch(self.metrics, limits, derive_plan_facts(plan), self.clock)
        self._partitions = {topic: max(count, parallelism) for topic, count in PARTITIONS.items()}
        self._offsets: dict[TopicPartition, int] = {}

    def now_ms(self) -> int:
        """Returns the wall clock."""
        return self._epoch_ms + int(self.clock.now * 1000)

    @property
    def subtasks(self) -> list[SubtaskId]:
        """All subtasks, in the order of the plan."""
        return [SubtaskId(one.id, SlotIndex(slot)) for one in self.plan.vertices for slot in range(self.slots)]

    def begin_attempt(self, number: int = 1) -> None:
        """Starts an attempt, all of whose subtasks run."""
        self.attempt = Attempt(number)
        self._counts = {}
        self.metrics.attempt_started(self.attempt)
        for subtask in self.subtasks:
            self.metrics.coordinator_answered(SubtaskRunning(subtask, self._mono_ms), [])
        for slot in range(self.slots):
            self.metrics.slot_report(self.attempt, slot, SlotReport())
        self.metrics.state(PipelineState.RUNNING)

    def run(self, seconds: float, step_s: float = 5.0, checkpoints: bool = True) -> None:
        """Lets the pipeline run: a report of each slot every `step_s`, and a checkpoint each time."""
        ends = self.clock.now + seconds
        while self.clock.now < ends:
            self.clock.now += step_s
            for slot in range(self.slots):
                self._report(slot, step_s)
            self.metrics.lags(MAIN_CLUSTER, {part: (self._lag(part), at) for part, at in self._offsets.items()})
            self.metrics.brokers(MAIN_CLUSTER, ProbeResult(unavailable_s=None, why="", took_s=0.01))
            self.metrics.oldest_transaction(self.random.uniform(2, 7))
            if checkpoints and self.clock.now - self._checkpoint_at >= 5:
                self.checkpoint()
            self.beat()

    def beat(self) -> None:
        """Does what the daemon does a few times a second."""
        self.metrics.beat()
        self._diagnosis.look()

    def wait(self, seconds: int) -> None:
        """Lets time pass without any report."""
        for _ in range(seconds):
            self.clock.now += 1
            self.beat()

    def checkpoint(
        self,
        properties: CheckpointProperties = PERIODIC,
        changes: Mapping[SubtaskId, Phases] | None = None,
        missing: frozenset[SubtaskId] = frozenset(),
        failure: CheckpointFailure | None = None,
        detail: str = "",
    ) -> None:
        """Takes a checkpoint; `missing` subtasks do not acknowledge it, so it is under way unless it has failed."""
        self._checkpoint += 1
        self._checkpoint_at = self.clock.now
        id_, base_ms = CheckpointId(self._checkpoint), self._mono_ms
        trigger = SendTrigger(self.attempt, id_, self.now_ms(), properties)
        self.metrics.coordinator_answered(Tick(base_ms), [trigger])
        states: list[StateHandle] = []
        slowest_ms = 0.0
        acks = []
        for subtask in self.subtasks:
            phases = (changes or {}).get(subtask) or self._usual(subtask)
            total_ms = phases.start_delay_ms + phases.alignment_ms + phases.snapshot_ms
            total_ms += max(phases.upload_ms, phases.prepare_ms) + 1
            if subtask not in missing:
                slowest_ms = max(slowest_ms, total_ms)
                acks.append((total_ms, self._ack(id_, subtask, phases)))
        for total_ms, ack in sorted(acks, key=lambda one: one[0]):
            states.extend(ack.states)
            self.metrics.coordinator_answered(AckReceived(ack, base_ms + round(total_ms)), [])
        if failure is not None:
            aborted = NotifyAborted(self.attempt, id_, failure, detail)
            timeout_ms = 60_000 if failure is CheckpointFailure.EXPIRED else round(slowest_ms)
            self.metrics.coordinator_answered(Tick(base_ms + timeout_ms), [aborted])
            if failure.counts:
                self.metrics.checkpoint_failed(failure.value)
        elif not missing:
            self._complete(id_, base_ms, round(slowest_ms), tuple(states), trigger)

    @property
    def _mono_ms(self) -> int:
        return int(self.clock.now * 1000)

    def _complete(
        self, id_: CheckpointId, base_ms: int, took_ms: int, states: tuple[StateHandle, ...], trigger: SendTrigger
    ) -> None:
        records = int(6.5 * self.slots * 5 * self.random.uniform(0.85, 1.15))
        journaled_ms, ended_ms = base_ms + took_ms + 3, base_ms + took_ms + 3 + self.random.randrange(6, 20)
        completed = CompletedCheckpoint(
            id_,
            self.attempt,
            trigger.timestamp_ms,
            trigger.timestamp_ms + took_ms,
            (SourcePositions(ORDERS, ((TopicPartition("orders", 0), 10),)),),
            states,
            (self._committable(id_, records),),
        )
        report = CheckpointReport(
            id_, base_ms, base_ms + took_ms, journaled_ms, ended_ms, completed.size_bytes, records, 0, 0, 0, 0, 0
        )
        self.metrics.coordinator_answered(Journaled(id_, CheckpointId(id_ + 100), journaled_ms), [])
        notify = NotifyCompleted(self.attempt, completed, frozenset(), report)
        self.metrics.coordinator_answered(Tick(ended_ms), [notify])
        phases = {"journal": 0.003, "commit": (ended_ms - journaled_ms) / 1000}
        self.metrics.checkpoint_completed(completed, phases)

    def _committable(self, id_: CheckpointId, records: int) -> Committable:
        written = WrittenRange(TopicPartition("revenue-per-minute", 0), 0, records, records)
        name = TransactionalId(f"shop.revenue.0.{self.attempt}-j.0")
        return Committable(REVENUE, SlotIndex(0), self.attempt, id_, name, id_, 0, (written,), 0, 900_000)

    def _usual(self, subtask: SubtaskId) -> Phases:
        draw = self.random
        scale = self.scale.get(subtask.index, 1.0)
        stateful = subtask.vertex in ("paid_orders", "per_minute")
        return Phases(
            start_delay_ms=draw.uniform(1, 6) * (3 if stateful else 1),
            alignment_ms=draw.uniform(2, 14) if stateful else 0.0,
            snapshot_ms=draw.uniform(0.5, 4) * scale,
            upload_ms=draw.uniform(12, 40) * scale if stateful else draw.uniform(2, 6),
            prepare_ms=draw.uniform(8, 25) if subtask.vertex == "per_minute" else 0.0,
            size_bytes=int(draw.uniform(600_000, 900_000) * scale) if stateful else 900,
        )

    def _ack(self, id_: CheckpointId, subtask: SubtaskId, phases: Phases) -> Ack:
        operator = OperatorName(subtask.vertex)
        state = StateHandle(operator, subtask.index, f"{id_}-{subtask}", phases.size_bytes, "", 0, "")
        return Ack(
            self.attempt,
            id_,
            subtask,
            states=(state,),
            alignment_ms=phases.alignment_ms,
            start_delay_ms=phases.start_delay_ms,
            snapshot_ms=phases.snapshot_ms,
            upload_ms=phases.upload_ms,
            prepare_ms=phases.prepare_ms,
            written_bytes=phases.size_bytes // 8,
            inflight_rows=phases.inflight_rows,
        )

    def _report(self, slot: int, seconds: float) -> None:
        counts = self._counts.setdefault(slot, {})
        scale = self.scale.get(slot, 1.0) * self.random.uniform(0.9, 1.1)
        operators, busy = dict[OperatorName, OperatorCounts](), 0.0
        for operator in derive_kinds(self.plan):
            flow = FLOWS.get(operator, Flow(0, 0, 0))
            share = min(0.99, flow.busy * scale)
            busy += share
            counts[f"{operator} in"] = counts.get(f"{operator} in", 0) + flow.rows_in * scale * seconds
            counts[f"{operator} out"] = counts.get(f"{operator} out", 0) + flow.rows_out * scale * seconds
            counts[f"{operator} busy"] = counts.get(f"{operator} busy", 0) + share * seconds
            operators[operator] = self._operator(operator, flow, counts, slot, scale)
        busy = min(1.0, busy)
        counts["busy"] = counts.get("busy", 0) + busy * seconds
        counts["idle"] = counts.get("idle", 0) + (1 - busy) * seconds * 0.98
        counts["blocked"] = counts.get("blocked", 0) + (1 - busy) * seconds * 0.02
        counts["bad"] = counts.get("bad", 0) + self.failing * seconds
        bad = {ORDERS: {FailureKind.WRONG_TYPE: int(counts["bad"])}}
        positions = self._positions(slot, seconds)
        report = SlotReport(
            records_in={name: int(counts[f"{name} in"]) for name in (ORDERS, PAYMENTS)},
            records_out={name: int(counts[f"{name} out"]) for name in (REVENUE, LATE_ORDERS)},
            bad_records=bad,
            dead_letters=bad,
            operators=operators,
            busy_seconds=counts["busy"],
            backpressured_seconds=counts["blocked"],
            idle_seconds=counts["idle"],
            queued_batches=3,
            positions=positions,
            newest=tuple(
                (one.source, part, offset - 1, self.now_ms() - self.random.randrange(200, 900))
                for one in positions
                for part, offset in one.next_offsets
            ),
            idle={PAYMENTS: (IDLE,) if IDLE.partition % self.slots == slot else ()},
        )
        self.metrics.slot_report(self.attempt, slot, report)

    def _lag(self, part: TopicPartition) -> int:
        growing = self.lag_growth.get(part.partition, 0.0) * (self.clock.now - STARTED_S)
        return self.random.randrange(40, 160) + int(growing)

    def _positions(self, slot: int, seconds: float) -> tuple[SourcePositions, ...]:
        found = []
        for source in (ORDERS, PAYMENTS):
            parts = [TopicPartition(source, at) for at in range(slot, self._partitions[source], self.slots)]
            marks = []
            for part in parts:
                before = self._offsets.get(part, 80_000)
                stands = self.stalled_ms is not None and part == STALLED
                self._offsets[part] = before + int(FLOWS[source].rows_in * seconds / len(parts))
                late_ms = EVENT_TIME_LAG_MS + slot * 10 - part.partition * 17 + (900_000 if part == IDLE else 0)
                marks.append((part, self.stalled_ms if stands and self.stalled_ms else self.now_ms() - late_ms))
            offsets = tuple((part, self._offsets[part]) for part in parts)
            found.append(SourcePositions(source, offsets, watermarks=tuple(marks)))
        return tuple(found)

    def _operator(
        self, operator: str, flow: Flow, counts: Mapping[str, float], slot: int, scale: float
    ) -> OperatorCounts:
        watermark_ms: int | None = self.now_ms() - EVENT_TIME_LAG_MS - slot * 10
        held_back_by = f"{operator}[{slot}]" if operator in PARTITIONS else ""
        waits = slot == 2 % self.slots and operator not in ("payments", "paid_orders.payment")
        if self.stalled_ms is not None and (waits or operator in BEHIND_BOTH):
            watermark_ms = self.stalled_ms
            held_back_by = str(STALLED) if operator == ORDERS else ""
        if operator.startswith("dead_letters"):
            watermark_ms = None
        gauges = {name: int(value * scale) for name, value in flow.gauges.items()}
        if WAITING_ROWS in gauges:
            gauges[WAITING_UNTIL] = self.now_ms() + 3_600_000
        return OperatorCounts(
            rows_in=int(counts[f"{operator} in"]),
            rows_out=int(counts[f"{operator} out"]),
            filtered=int(counts[f"{operator} in"] - counts[f"{operator} out"]) if operator == "valid" else 0,
            failed=int(counts.get("bad", 0)) if operator == "orders" else 0,
            late=int(counts.get("late_orders in", 0)) if operator == "paid_orders" else 0,
            busy_ms=counts[f"{operator} busy"] * 1000,
            watermarks=int(counts[f"{operator} in"] / 400),
            watermark_ms=watermark_ms,
            held_back_by=held_back_by,
            gauges=gauges,
            blocked_ms=counts.get("blocked", 0) * 1000 if operator == "orders" else 0,
        )
