"""Turns slots' reports into metrics: records, times, operators, event time, lag.

Called by PipelineMetrics, which locks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.metric_catalogue import MetricSeries
from tidegate.daemon.operator_accounts import (
    OPERATOR_COUNTERS,
    RATE_WINDOW_SECONDS,
    CounterWindow,
    LabelBound,
    OperatorAccounts,
    ReportCounts,
)
from tidegate.daemon.source_holds import HoldMetrics
from tidegate.daemon.source_progress import NO_CLUSTERS, Clusters, PartitionReport, ReadPartition, RecordTimes
from tidegate.ids import ClusterName, OperatorName, TopicPartition
from tidegate.operators.waiting import WAITING_UNTIL
from tidegate.task.report import SlotReport

logger = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 20_000
EVENT_TIME_GAUGES: Final = (
    "tidegate_operator_watermark_timestamp_seconds",
    "tidegate_operator_event_time_lag_seconds",
)


class LoopAge(msgspec.Struct, frozen=True):
    """How long the loop of a slot had not turned at its last heartbeat, and the user code that ran."""

    seconds: float = 0.0
    user_code: str = ""


class SlotMetrics:
    """Adds up the counts of all slots. `steps` bounds the values of the label `step`."""

    def __init__(
        self,
        series: MetricSeries,
        operators: OperatorAccounts,
        steps: LabelBound,
        elapsed: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self.operators = operators
        self.holds = HoldMetrics(series, elapsed)
        self.windows = {name: CounterWindow(RATE_WINDOW_SECONDS) for name in ("records_in", "records_out")}
        self.bad_records = self.dead_letters = 0
        self._series = series
        self._steps = steps
        self._elapsed = elapsed
        self._now_ms = now_ms
        self._reports: dict[int, ReportCounts] = {}
        self.loops: dict[int, LoopAge] = {}
        self.bad_kinds: dict[OperatorName, Counter[str]] = {}
        self._stalled: set[OperatorName] = set()

    @property
    def positions(self) -> tuple[SourcePositions, ...]:
        """The next offsets to read, as last reported by the slots of this attempt."""
        return tuple(one for counts in self._reports.values() for one in counts.positions)

    def reports(self) -> tuple[PartitionReport, ...]:
        """Returns what every slot reads, as last reported in this attempt."""
        return tuple(PartitionReport(slot, one.positions, one.idle) for slot, one in sorted(self._reports.items()))

    def begin_attempt(self) -> None:
        """Counts from zero again, and clears the gauges of slots."""
        self._reports.clear()
        self.loops.clear()
        self.operators.begin_attempt()
        self.holds.set({})
        for name in ("state_keys", "queue_batches", "operator_entries"):
            self._series.clear_gauges(f"tidegate_{name}")

    def add(self, subtask: int, report: SlotReport) -> None:
        """Adds what a report of this attempt counts beyond the last one of its slot."""
        counts = self._reports.setdefault(subtask, ReportCounts())
        counts.positions, counts.idle = report.positions, report.idle
        self._add_records(counts, str(subtask), report)
        self._add_times(counts, subtask, report)
        for step, keys in report.state_keys.items():
            self._series.gauge("tidegate_state_keys", self._steps.of(step), str(subtask)).set(keys)
        self._series.gauge("tidegate_queue_batches", str(subtask)).set(report.queued_batches)
        self._add_operators(counts, subtask, report)
        for window in self.windows.values():
            window.observe(self._elapsed())
        self.operators.observe(self._elapsed())
        self._show_event_time()

    def _add_records(self, counts: ReportCounts, subtask: str, report: SlotReport) -> None:
        for name, per_step in (
            ("records_in", report.records_in),
            ("bytes_in", report.bytes_in),
            ("records_out", report.records_out),
            ("bytes_out", report.bytes_out),
        ):
            for step, value in per_step.items():
                added = counts.advance((name, step), value)
                self._series.counter(f"tidegate_{name}_total", self._steps.of(step), subtask).inc(added)
                if name in self.windows:
                    self.windows[name].total += added
        for step, kinds in report.bad_records.items():
            for kind, value in kinds.items():
                added = counts.advance(("bad_records", step, kind), value)
                self._series.counter("tidegate_bad_records_total", self._steps.of(step), subtask, kind).inc(added)
                self.bad_records += int(added)
                self.bad_kinds.setdefault(step, Counter())[kind.value] += int(added)
        for step, kinds in report.dead_letters.items():
            for kind, value in kinds.items():
                added = counts.advance(("dead_letters", step, kind), value)
                self._series.counter("tidegate_dead_letters_total", self._steps.of(step), subtask, kind).inc(added)
                self.dead_letters += int(added)

    def _add_times(self, counts: ReportCounts, subtask: int, report: SlotReport) -> None:
        busy_s = counts.advance(("time", "busy"), report.busy_seconds)
        backpressured_s = counts.advance(("time", "backpressured"), report.backpressured_seconds)
        idle_s = counts.advance(("time", "idle"), report.idle_seconds)
        for state, seconds in (("busy", busy_s), ("backpressured", backpressured_s), ("idle", idle_s)):
            self._series.counter("tidegate_time_seconds_total", str(subtask), state).inc(seconds)
        self.operators.add_times(subtask, busy_s, backpressured_s, idle_s)

    def _add_operators(self, counts: ReportCounts, subtask: int, report: SlotReport) -> None:
        for name, new in self.operators.take(subtask, report, counts).items():
            step = self._steps.of(name)
            for metric, by_slot, read in OPERATOR_COUNTERS:
                self._series.counter(metric, step, *([str(subtask)] if by_slot else [])).inc(read(new))
            if self.operators.is_source(name):
                self._series.counter("tidegate_source_rows_before_1971_total", step).inc(new.before_1971)
            for kind, held in new.gauges.items():
                if kind != WAITING_UNTIL:
                    self._series.gauge("tidegate_operator_entries", step, str(subtask), kind).set(held)

    def _show_event_time(self) -> None:
        """Exports the event-time gauges; a gauge with an unknown value is not exported."""
        for name, watermark_ms in self.operators.watermarks().items():
            step = self._steps.of(name)
            if watermark_ms is None:
                for gauge in EVENT_TIME_GAUGES:
                    self._series.remove_gauge(gauge, step)
                continue
            self._series.gauge(EVENT_TIME_GAUGES[0], step).set(watermark_ms / 1000)
            lag = partial(self._lag_of_event_time, watermark_ms)
            self._series.gauge(EVENT_TIME_GAUGES[1], step).set_function(lag)
        for line in self.operators.take_early():
            logger.warning("%s", line)
        now = self._elapsed()
        for source, stall in self.operators.stalls(now).items():
            self._series.gauge("tidegate_source_watermark_stalled_seconds", self._steps.of(source)).set(
                0 if stall is None else now - stall.since_s
            )
            if stall is None:
                self._stalled.discard(source)
            elif source not in self._stalled:
                self._stalled.add(source)
                logger.warning("%s", stall.text(now))

    def _lag_of_event_time(self, watermark_ms: int) -> float:
        return (self._now_ms() - watermark_ms) / 1000


class LagMetrics:
    """How far and how long the sources are behind the ends of their partitions."""

    def __init__(
        self,
        series: MetricSeries,
        elapsed: Callable[[], float],
        now_ms: Callable[[], int],
        clusters: Clusters = NO_CLUSTERS,
    ) -> None:
        self.times = RecordTimes(clusters)
        self._series = series
        self._elapsed = elapsed
        self._now_ms = now_ms
        self._records: dict[ReadPartition, int] = {}
        self._ends: dict[ReadPartition, int] = {}
        self._seconds: dict[ReadPartition, float] = {}
        self._seen_at: dict[ClusterName, float] = {}
        self._exported: set[ReadPartition] = set()

    @property
    def records(self) -> int | None:
        """The sum over all partitions that were measured; None before the first measurement."""
        return sum(self._records.values()) if self._records else None

    @property
    def seconds(self) -> float | None:
        """The largest of all partitions; None if none is known."""
        return max(self._seconds.values(), default=None)

    def ends(self) -> dict[ReadPartition, int]:
        """Returns the last stable offsets of the partitions that were measured."""
        return dict(self._ends)

    def age_s(self) -> float | None:
        """Returns how long ago the lag was measured in all clusters; None before the first measurement."""
        return max(map(self._age_in, self._seen_at), default=None)

    def _age_in(self, cluster: ClusterName) -> float:
        return self._elapsed() - self._seen_at[cluster]

    def set(self, cluster: ClusterName, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Sets the lag in records and the next offset to read of each partition in a cluster."""
        if cluster not in self._seen_at:
            self._series.gauge("tidegate_source_lag_age_seconds", cluster).set_function(partial(self._age_in, cluster))
        now_s = self._seen_at[cluster] = self._elapsed()
        self._records.update({(cluster, part): records for part, (records, _) in found.items()})
        self._ends.update({(cluster, part): position + records for part, (records, position) in found.items()})
        for partition, (records, position) in found.items():
            part = (cluster, partition)
            lag_s = self.times.lag_s(part, records, now_s, self._now_ms())
            self._seconds.pop(part, None)
            if lag_s is not None:
                self._seconds[part] = lag_s
            if part not in self._exported:
                if len(self._exported) >= PARTITIONS_MAX:
                    continue  # counted in the sum; more series would make every scrape slow
                self._exported.add(part)
            labels = (cluster, partition.topic, str(partition.partition))
            self._series.gauge("tidegate_source_lag_records", *labels).set(records)
            self._series.gauge("tidegate_source_position_offset", *labels).set(position)
            if lag_s is not None:
                self._series.gauge("tidegate_source_lag_seconds", *labels).set(lag_s)
