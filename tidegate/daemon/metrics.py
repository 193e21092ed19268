"""The figures of one pipeline: fed by reports and events, read by Prometheus, the status page and the terminal.

All counting is per report or per event, never per record. Slots report cumulative counts of their attempt; the
differences are added here, so the exported counters only grow, through any number of attempts. Names and labels are
in tidegate.daemon.metric_catalogue. One registry per object: nothing is global. Every method may be called from any
thread and returns at once.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from tidegate.clock import SYSTEM_CLOCK
from tidegate.committable import Committable
from tidegate.coordinator.events import Event, Instruction
from tidegate.coordinator.history import CheckpointHistory, CheckpointRecord, FailureHistory, FailureRecord
from tidegate.coordinator.recovery import Offsets, merge_offsets
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.broker_watch import Sign
from tidegate.daemon.checkpoint_summary import PHASES, derive_duration_s, derive_state_bytes
from tidegate.daemon.commit_account import CommitAccount
from tidegate.daemon.freshness import Freshness, TimedCheckpoint
from tidegate.daemon.metric_catalogue import CATALOGUE, MetricKind
from tidegate.daemon.operator_accounts import NO_REMEDIES, OPERATOR_COUNTERS, OperatorAccounts
from tidegate.daemon.rates import CounterWindow, LabelBound, ReportCounts
from tidegate.daemon.record_times import RecordTimes
from tidegate.daemon.status import PipelineState, Status, decide_state
from tidegate.ids import Attempt, OperatorName, TopicPartition
from tidegate.settings.counts import render_seconds
from tidegate.task.report import SlotReport

logger = logging.getLogger(__name__)

RATE_WINDOW_SECONDS: Final = 5.0
STEPS_MAX: Final = 1000
REASONS_MAX: Final = 50
PARTITIONS_MAX: Final = 20_000
NO_KINDS: Final[Mapping[OperatorName, str]] = {}
EVENT_TIME_GAUGES: Final = (
    "tidegate_operator_watermark_timestamp_seconds",
    "tidegate_operator_event_time_lag_seconds",
)
MARKER_ENDS: Final = ("commit", "abort")


class TransactionResult(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"
    """The broker had timed it out although a checkpoint had decided to commit it."""
    SALVAGED = "salvaged"
    """A lost one whose records were produced and committed again."""


class PipelineMetrics:
    """See the module. `elapsed` gives monotonic seconds, `now_ms` the wall clock; `kinds` as in OperatorAccounts."""

    def __init__(
        self,
        pipeline: str,
        version: str,
        elapsed: Callable[[], float] = time.monotonic,
        kinds: Mapping[OperatorName, str] = NO_KINDS,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
        guarantee: str = "exactly-once",
        remedies: Mapping[OperatorName, str] = NO_REMEDIES,
    ) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._version = version
        self._guarantee = guarantee
        self._elapsed = elapsed
        self._now_ms = now_ms
        self._started_at = elapsed()
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._attempt = Attempt(0)
        self._told_state = self._state = (PipelineState.STARTING, "")
        self._silence = self._hanging = self._schemas = ""
        self._reports: dict[int, ReportCounts] = {}
        self._windows = {name: CounterWindow(RATE_WINDOW_SECONDS) for name in ("records_in", "records_out")}
        self._bad_records = self._dead_letters = self._committed = self._failed = self._restarts = 0
        self._lags: dict[TopicPartition, int] = {}
        self._times = RecordTimes()
        self._lags_s: dict[TopicPartition, float] = {}
        self._lags_at: float | None = None
        self._away_since: float | None = None
        self._exported: set[TopicPartition] = set()
        self._commits = CommitAccount()
        self._freshness = Freshness()
        self._operators = OperatorAccounts(kinds, RATE_WINDOW_SECONDS, remedies)
        self._stalled: set[OperatorName] = set()
        self._history, self._failures = CheckpointHistory(), FailureHistory()
        self._steps, self._reasons = LabelBound(STEPS_MAX), LabelBound(REASONS_MAX)
        self._register()

    def _register(self) -> None:
        makers: dict[MetricKind, Callable[..., Counter | Gauge | Histogram]] = {
            MetricKind.COUNTER: Counter,
            MetricKind.GAUGE: Gauge,
            MetricKind.HISTOGRAM: Histogram,
        }
        for spec in CATALOGUE.values():
            more = {"buckets": spec.buckets} if spec.kind is MetricKind.HISTOGRAM else {}
            metric = makers[spec.kind](spec.name, spec.help, ("pipeline", *spec.labels), registry=self.registry, **more)
            match metric:
                case Counter():
                    self._counters[spec.name] = metric
                case Gauge():
                    self._gauges[spec.name] = metric
                case Histogram():
                    self._histograms[spec.name] = metric
        # Process-wide in this library. Without it every counter has a second series that says when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # library's gap
        ProcessCollector(registry=self.registry)
        self._gauge("tidegate_uptime_seconds").set_function(lambda: self._elapsed() - self._started_at)
        self._gauge("tidegate_build_info", self._version, platform.python_version()).set(1)
        self._gauge("tidegate_transaction_oldest_open_age_seconds").set(0)
        self._gauge("tidegate_checkpoint_last_success_timestamp_seconds").set(0)
        self._gauge("tidegate_checkpoint_last_id").set(0)
        for result in ("completed", "failed"):
            self._counter("tidegate_checkpoints_total", result).inc(0)
        for transaction_result in TransactionResult:
            self._counter("tidegate_transactions_total", transaction_result.value).inc(0)
        for end in MARKER_ENDS:
            self._counter("tidegate_missing_markers_written_total", end).inc(0)
        self.hanging_transactions(0, 0)
        self._gauge("tidegate_brokers_away_seconds").set_function(self._away_s)
        self.state(PipelineState.STARTING)

    # -- what slots report -----------------------------------------------------------------------------------------

    def slot_report(self, attempt: Attempt, subtask: int, report: SlotReport) -> None:
        """Take the counts of slot `subtask`. Reports of attempts older than the newest known are ignored.

        The first report of a newer attempt counts from zero. Within an attempt a value below an earlier one is a late
        report and adds nothing.
        """
        with self._lock:
            if attempt < self._attempt:
                return
            if attempt > self._attempt:
                self._begin_attempt(attempt)
            counts = self._reports.setdefault(subtask, ReportCounts())
            counts.positions = report.positions
            self._add_records(counts, str(subtask), report)
            self._add_times(counts, subtask, report)
            for step, keys in report.state_keys.items():
                self._gauge("tidegate_state_keys", self._steps.of(step), str(subtask)).set(keys)
            self._gauge("tidegate_queue_batches", str(subtask)).set(report.queued_batches)
            self._add_operators(counts, subtask, report)
            self._observe_latency(self._times.read(report.newest))
            for window in self._windows.values():
                window.observe(self._elapsed())
            self._operators.observe(self._elapsed())
            self._show_event_time()

    def _add_records(self, counts: ReportCounts, subtask: str, report: SlotReport) -> None:
        for name, per_step in (
            ("records_in", report.records_in),
            ("bytes_in", report.bytes_in),
            ("header_names_cut", report.header_names_cut),
            ("records_out", report.records_out),
            ("bytes_out", report.bytes_out),
        ):
            for step, value in per_step.items():
                added = counts.advance((name, step), value)
                self._counter(f"tidegate_{name}_total", self._steps.of(step), subtask).inc(added)
                if name in self._windows:
                    self._windows[name].total += added
        for step, kinds in report.bad_records.items():
            for kind, value in kinds.items():
                added = counts.advance(("bad_records", step, kind), value)
                self._counter("tidegate_bad_records_total", self._steps.of(step), subtask, kind).inc(added)
                self._bad_records += int(added)
        for step, kinds in report.dead_letters.items():
            for kind, value in kinds.items():
                added = counts.advance(("dead_letters", step, kind), value)
                self._counter("tidegate_dead_letters_total", self._steps.of(step), subtask, kind).inc(added)
                self._dead_letters += int(added)

    def _add_times(self, counts: ReportCounts, subtask: int, report: SlotReport) -> None:
        busy_s = counts.advance(("time", "busy"), report.busy_seconds)
        backpressured_s = counts.advance(("time", "backpressured"), report.backpressured_seconds)
        idle_s = counts.advance(("time", "idle"), report.idle_seconds)
        for state, seconds in (("busy", busy_s), ("backpressured", backpressured_s), ("idle", idle_s)):
            self._counter("tidegate_time_seconds_total", str(subtask), state).inc(seconds)
        self._operators.add_times(subtask, busy_s, backpressured_s, idle_s)

    def _add_operators(self, counts: ReportCounts, subtask: int, report: SlotReport) -> None:
        for name, new in self._operators.take(subtask, report, counts).items():
            step = self._steps.of(name)
            for metric, by_slot, read in OPERATOR_COUNTERS:
                self._counter(metric, step, *([str(subtask)] if by_slot else [])).inc(read(new))
            if self._operators.is_source(name):
                self._counter("tidegate_source_rows_before_1971_total", step).inc(new.before_1971)
            for kind, held in new.gauges.items():
                self._gauge("tidegate_operator_entries", step, str(subtask), kind).set(held)

    def _show_event_time(self) -> None:
        """A gauge whose value is not known is not exported."""
        for name, watermark_ms in self._operators.watermarks().items():
            step = self._steps.of(name)
            if watermark_ms is None:
                for gauge in EVENT_TIME_GAUGES:
                    self._gauges[gauge].remove(self._pipeline, step)
                continue
            self._gauge(EVENT_TIME_GAUGES[0], step).set(watermark_ms / 1000)
            lag = partial(self._lag_of_event_time, watermark_ms)
            self._gauge(EVENT_TIME_GAUGES[1], step).set_function(lag)
        for line in self._operators.take_early():
            logger.warning("%s", line)
        now = self._elapsed()
        for source, stall in self._operators.stalls(now).items():
            self._gauge("tidegate_source_watermark_stalled_seconds", self._steps.of(source)).set(
                0 if stall is None else now - stall.since_s
            )
            if stall is None:
                self._stalled.discard(source)
            elif source not in self._stalled:
                self._stalled.add(source)
                logger.warning("%s", stall.text(now))

    def _lag_of_event_time(self, watermark_ms: int) -> float:
        return (self._now_ms() - watermark_ms) / 1000

    def reached(self) -> Offsets:
        """The next offsets to read, as the slots of this attempt have reported them last."""
        with self._lock:
            return merge_offsets(tuple(one for counts in self._reports.values() for one in counts.positions))

    def lags(self, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """How many records each partition's last stable offset is ahead of the next one to read, and that offset.

        All at once: the sum of some of them would be reported as the lag.
        """
        with self._lock:
            if self._lags_at is None:
                self._gauge("tidegate_source_lag_age_seconds").set_function(lambda: self._lag_age() or 0.0)
            self._lags_at = self._elapsed()
            self._lags.update({part: records for part, (records, _) in found.items()})
            for part, (records, position) in found.items():
                lag_s = self._times.lag_s(part, records, self._lags_at, self._now_ms())
                self._lags_s.pop(part, None)
                if lag_s is not None:
                    self._lags_s[part] = lag_s
                if part not in self._exported:
                    if len(self._exported) >= PARTITIONS_MAX:
                        continue  # counted in the sum; more series than this would make every scrape slow
                    self._exported.add(part)
                labels = (part.topic, str(part.partition))
                self._gauge("tidegate_source_lag_records", *labels).set(records)
                self._gauge("tidegate_source_position_offset", *labels).set(position)
                if lag_s is not None:
                    self._gauge("tidegate_source_lag_seconds", *labels).set(lag_s)

    # -- what the daemon reports-------------------------------------------------------------------------------------

    def attempt_started(self, attempt: Attempt) -> None:
        """From now on older attempts' reports are ignored, and gauges of slots start empty."""
        with self._lock:
            self._commits.begin(attempt)
            if attempt > self._attempt:
                self._begin_attempt(attempt)

    def _begin_attempt(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._reports.clear()
        self._operators.begin_attempt()
        self._times.begin_attempt()
        for name in ("state_keys", "queue_batches", "operator_entries"):
            self._gauges[f"tidegate_{name}"].clear()
        self.oldest_transaction(None)  # the recovery has ended what was open
        self._gauge("tidegate_attempt").set(attempt)

    def limits(self, interval_ms: int, min_pause_ms: int, transaction_timeout_ms: int) -> None:
        """What `checkpoints` of the file says, for alerts that go by it."""
        self._gauge("tidegate_checkpoint_interval_seconds").set(max(interval_ms, min_pause_ms) / 1000)
        self._gauge("tidegate_transaction_timeout_seconds").set(transaction_timeout_ms / 1000)

    def state(self, state: PipelineState, reason: str = "") -> None:
        """The pipeline is in `state` now; `reason` is for people and goes to the status and the readiness probe."""
        with self._lock:
            self._told_state = (state, reason)
            self._settle_state()

    def degraded(self, reason: str) -> None:
        """While records flow: readers of an output do not see them, or (without a reason) do again."""
        with self._lock:
            self._hanging = reason
            self._settle_state()

    def brokers(self, sign: Sign) -> None:
        """What the watch says, about once a second."""
        with self._lock:
            now = self._elapsed()
            self._silence, self._away_since = sign.why, None if sign.away_s is None else now - sign.away_s
            if sign.away_s is None:
                self._freshness.answered(now - sign.took_s)
            else:
                self._freshness.silent()
                self._show_checkpoint()
            self._settle_state()

    def registry_says(self, why: str, waiting: int) -> None:
        """Why the registry does not answer, or nothing, and how many schemas records wait for."""
        with self._lock:
            self._gauge("tidegate_schemas_waiting").set(waiting)
            self._schemas = f"records wait for a schema: {why}" if waiting and why else ""
            self._settle_state()

    def schemas_do_not_fit(self, count: int) -> None:
        """Of how many schemas records cannot be read."""
        with self._lock:
            self._gauge("tidegate_schemas_unfit").set(count)

    def _settle_state(self) -> None:
        self._state = decide_state(self._told_state, self._silence, self._schemas or self._hanging)
        for each in PipelineState:
            self._gauge("tidegate_pipeline_state", each.value).set(each is self._state[0])

    @property
    def current_state(self) -> tuple[PipelineState, str]:
        """State and reason of now; for probes, which wait for nobody."""
        (state, reason), silent = self._state, self._away_since is not None
        waits = silent and state is PipelineState.WAITING
        return state, f"{reason} (for {render_seconds(self._away_s())})" if waits else reason

    def _away_s(self) -> float:
        since = self._away_since
        return 0.0 if since is None else self._elapsed() - since

    def restarted(self, cause: str) -> None:
        """An attempt has failed and another follows; `cause` is the code of the error."""
        with self._lock:
            self._restarts += 1
            self._counter("tidegate_restarts_total", self._reasons.of(cause)).inc()

    def coordinator_answered(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """The coordinator of the attempt has taken an event; for the history."""
        with self._lock:
            self._history.observe(event, instructions)

    def attempt_failed(self, failure: FailureRecord) -> None:
        """For the history."""
        with self._lock:
            self._failures.add(failure)

    def checkpoint_completed(self, checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> None:
        """The journal has the checkpoint; `phases` are seconds by name of PHASES."""
        unknown = phases.keys() - set(PHASES)
        if unknown:
            raise ValueError(f"unknown phases of a checkpoint: {sorted(unknown)}; known are {PHASES}")
        duration = derive_duration_s(checkpoint, phases)
        with self._lock:
            now, records = self._elapsed(), self._count_committed(self._commits.completed(checkpoint))
            self._freshness.completed(TimedCheckpoint(checkpoint, records, now - duration, now))
            self._counter("tidegate_checkpoints_total", "completed").inc()
            for phase, seconds in {"total": duration, **phases}.items():
                self._histogram("tidegate_checkpoint_duration_seconds", phase).observe(seconds)
            self._gauge("tidegate_checkpoint_last_id").set(checkpoint.id)
            self._gauge("tidegate_checkpoint_last_duration_seconds").set(duration)
            self._gauge("tidegate_checkpoint_size_bytes", "full").set(checkpoint.size_bytes)
            self._gauge("tidegate_checkpoint_size_bytes", "in_flight").set(checkpoint.inflight_bytes)
            self._show_checkpoint()
            self._observe_latency(self._times.committed(checkpoint.positions, self._now_ms()))
            for step, size in derive_state_bytes(checkpoint).items():
                self._gauge("tidegate_state_bytes", self._steps.of(step)).set(size)

    def committed(self, committables: Iterable[Committable], since: Attempt) -> None:
        """The end of an attempt or a recovery has seen that they are; `since` is an attempt of this daemon."""
        with self._lock:
            self._commits.begin(since)
            self._count_committed(self._commits.ended(committables))

    def _count_committed(self, found: Mapping[str, int]) -> int:
        for sink, records in found.items():
            self._counter("tidegate_records_committed_total", self._steps.of(sink)).inc(records)
        self._committed += sum(found.values())
        return sum(found.values())

    def _observe_latency(self, found: Iterable[tuple[TopicPartition, float]]) -> None:
        for part, seconds in found:
            self._histogram("tidegate_record_latency_seconds", part.topic).observe(seconds)

    def checkpoint_failed(self, reason: str) -> None:
        """A checkpoint was given up; `reason` is a value of CheckpointFailure, not free text."""
        with self._lock:
            self._failed += 1
            self._counter("tidegate_checkpoints_total", "failed").inc()
            self._counter("tidegate_checkpoint_failures_total", self._reasons.of(reason)).inc()

    def transactions_committed(self, committables: Iterable[Committable], seconds: float) -> None:
        """Kafka has taken the commit of each, in that time, retries included; or has said once more that it had."""
        with self._lock:
            ended = self._commits.end(committables)
            self.transactions_ended(TransactionResult.COMMITTED, ended)
            for _ in range(ended):
                self._histogram("tidegate_transaction_commit_seconds").observe(seconds)

    def transactions_ended(self, result: TransactionResult, count: int) -> None:
        """With a result other than a commit."""
        self._counter("tidegate_transactions_total", result.value).inc(count)

    def hanging_transactions(self, own: int, foreign: int) -> None:
        """How many block readers of the outputs now."""
        self._gauge("tidegate_hanging_transactions", "own").set(own)
        self._gauge("tidegate_hanging_transactions", "foreign").set(foreign)

    def marker_written(self, end: str) -> None:
        """A lost marker was written; `end` is one of MARKER_ENDS."""
        self._counter("tidegate_missing_markers_written_total", end).inc()

    def lost_input(self, source: OperatorName, offsets: int) -> None:
        """A source continues after so many offsets that were removed before they were read."""
        self._counter("tidegate_lost_input_records_total", source).inc(offsets)

    def oldest_transaction(self, age_s: float | None) -> None:
        """How old the oldest transaction is that is not ended; None when there is none. It grows older from now on."""
        gauge = self._gauge("tidegate_transaction_oldest_open_age_seconds")
        if age_s is None:
            gauge.set_function(lambda: 0.0)
        else:
            opened_at = self._elapsed() - age_s
            gauge.set_function(lambda: self._elapsed() - opened_at)

    # -- what people read ------------------------------------------------------------------------------------------

    def snapshot(self) -> Status:
        """The figures of this moment."""
        with self._lock:
            now, (state, reason) = self._elapsed(), self.current_state
            records_in, records_out = self._windows["records_in"], self._windows["records_out"]
            return Status(
                pipeline=self._pipeline,
                version=self._version,
                state=state,
                reason=reason,
                attempt=self._attempt,
                uptime_seconds=now - self._started_at,
                records_in=int(records_in.total),
                records_out=int(records_out.total),
                records_in_per_second=records_in.rate(now),
                records_out_per_second=records_out.rate(now),
                records_committed=self._committed,
                bad_records=self._bad_records,
                lag_records=sum(self._lags.values()) if self._lags else None,
                lag_age_seconds=self._lag_age(),
                last_checkpoint=self._freshness.status(now),
                failed_checkpoints=self._failed,
                restarts=self._restarts,
                brokers_away_seconds=self._away_s(),
                dead_letters=self._dead_letters,
                operators=self._operators.operators(now, self._now_ms()),
                slots=self._operators.slots,
                guarantee=self._guarantee,
                history=self._history.summarise(self._failures.failures),
                lag_seconds=max(self._lags_s.values(), default=None),
            )

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The newest ones of this daemon, newest first."""
        with self._lock:
            return self._history.checkpoints

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The newest ones of this daemon, newest first."""
        with self._lock:
            return self._failures.failures

    def _show_checkpoint(self) -> None:
        newest = self._freshness.newest
        at_s = 0.0 if newest is None else newest.checkpoint.completed_at_ms / 1000
        self._gauge("tidegate_checkpoint_last_success_timestamp_seconds").set(at_s)

    def _lag_age(self) -> float | None:
        return None if self._lags_at is None else self._elapsed() - self._lags_at

    def _counter(self, name: str, *labels: str) -> Counter:
        return self._counters[name].labels(self._pipeline, *labels)

    def _gauge(self, name: str, *labels: str) -> Gauge:
        return self._gauges[name].labels(self._pipeline, *labels)

    def _histogram(self, name: str, *labels: str) -> Histogram:
        return self._histograms[name].labels(self._pipeline, *labels)
