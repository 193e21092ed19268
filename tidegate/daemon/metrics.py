"""The metrics of one pipeline: fed by reports and events, read by Prometheus, the status page and the terminal.

All counting is per report or per event, never per record. Slots report cumulative counts of their attempt; the
differences are added here, so exported counters only grow, through any number of attempts. Names and labels are in
tidegate.daemon.metric_catalogue. Each object has its own registry; nothing is global. Every method may be called from
any thread and returns at once.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from tidegate.clock import SYSTEM_CLOCK
from tidegate.committable import Committable
from tidegate.config.fields.counts import render_seconds
from tidegate.coordinator.events import Event, Instruction
from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.coordinator.recovery import Offsets
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.broker_watch import ProbeResult
from tidegate.daemon.checkpoint_figures import (
    PHASES,
    CommitAccount,
    Freshness,
    TimedCheckpoint,
    derive_duration_s,
    derive_state_bytes,
)
from tidegate.daemon.diagnosis.facts import BrokerOutage, Conditions, Observation
from tidegate.daemon.metric_catalogue import MetricSeries
from tidegate.daemon.operator_accounts import LabelBound, OperatorAccounts
from tidegate.daemon.pipeline_history import EventKind, History, PipelineEvent, PipelineHistory
from tidegate.daemon.slot_metrics import LagMetrics, LoopAge, SlotMetrics
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.source_progress import NO_CLUSTERS, Clusters, PartitionStatus, ReadPartition, derive_partitions
from tidegate.daemon.status import Diagnosis, PipelineState, Status, decide_state
from tidegate.ids import MAIN_CLUSTER, Attempt, ClusterName, OperatorName, TopicPartition
from tidegate.task.report import SlotReport

STEPS_MAX: Final = 1000
REASONS_MAX: Final = 50
TURNS: Final = LoopAge()
MARKER_ENDS: Final = ("commit", "abort")


class TransactionResult(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LOST = "lost"
    """The broker had timed it out although a checkpoint had decided to commit it."""
    SALVAGED = "salvaged"
    """A lost transaction whose records were produced and committed again."""


class TransactionAge:
    """The age of the oldest open transaction, which grows until it is set again."""

    def __init__(self, series: MetricSeries, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._opened_at: float | None = None
        series.gauge("tidegate_transaction_oldest_open_age_seconds").set_function(lambda: self.seconds() or 0.0)

    def set(self, age_s: float | None) -> None:
        """Sets the age now; None if there is no open transaction."""
        self._opened_at = None if age_s is None else self._elapsed() - age_s

    def seconds(self) -> float | None:
        """Returns the age; None without an open transaction. Also called by scrapes, without the lock."""
        opened_at = self._opened_at
        return None if opened_at is None else self._elapsed() - opened_at


class DiagnosisMetrics:
    """What is wrong now. The series of a code stays once it was shown."""

    def __init__(self, series: MetricSeries) -> None:
        self._series = series
        self._codes: set[str] = set()
        self.current: tuple[Diagnosis, ...] = ()
        """The most important first."""

    def set(self, diagnoses: Sequence[Diagnosis]) -> None:
        """Sets what is wrong now."""
        self.current = tuple(diagnoses)
        codes = {one.code for one in diagnoses}
        self._codes |= codes
        for code in self._codes:
            self._series.gauge("tidegate_diagnosis", code).set(code in codes)


class StateMetrics:
    """The state of the pipeline: what the supervisor set, unless brokers, the registry or readers override it.

    `changed` is called with each new state and its reason.
    """

    def __init__(
        self,
        series: MetricSeries,
        elapsed: Callable[[], float],
        changed: Callable[[PipelineState, str], None],
        clusters: Iterable[ClusterName] = (),
    ) -> None:
        self._series = series
        self._elapsed = elapsed
        self._changed = changed
        self.oldest_transaction = TransactionAge(series, elapsed)
        self.diagnoses = DiagnosisMetrics(series)
        self._told = self._state = (PipelineState.STARTING, "")
        self._schemas, self._schemas_waiting = "", 0
        self._outages: dict[ClusterName, str] = {}
        """Why no broker of a cluster responds, for those that are unavailable."""
        self._unavailable_since: dict[ClusterName, float] = {}
        self._hanging: dict[ClusterName, str] = {}
        for name in clusters:
            series.gauge("tidegate_brokers_unavailable_seconds", name).set_function(partial(self._unavailable_in, name))
        self._settle()

    def set(self, state: PipelineState, reason: str) -> None:
        """Sets the state, unless a condition below overrides it."""
        self._told = (state, reason)
        self._settle()

    def set_hanging(self, cluster: ClusterName, reason: str) -> None:
        """Sets why readers of an output in a cluster do not see records; empty if they do."""
        self._hanging[cluster] = reason
        self._settle()

    def set_schemas(self, reason: str, waiting: int) -> None:
        """Sets why records wait for a schema, and for how many; empty if none does."""
        self._schemas, self._schemas_waiting = reason, waiting
        self._settle()

    def set_outage(self, cluster: ClusterName, result: ProbeResult) -> None:
        """Sets whether brokers of a cluster respond."""
        if result.unavailable_s is None:
            self._outages.pop(cluster, None)
            self._unavailable_since.pop(cluster, None)
        else:
            self._outages[cluster] = result.why
            self._unavailable_since[cluster] = self._elapsed() - result.unavailable_s
        self._settle()

    def unavailable_s(self) -> float:
        """Returns how long brokers of some cluster have not responded, in seconds."""
        return max(map(self._unavailable_in, tuple(self._unavailable_since)), default=0.0)

    def conditions(self) -> Conditions:
        """Returns what the rules of the diagnosis read."""
        return Conditions(
            outages={name: BrokerOutage(why, self._unavailable_in(name)) for name, why in self._outages.items()},
            hanging=dict(self._hanging),
            schemas=self._schemas,
            schemas_waiting=self._schemas_waiting,
        )

    def _unavailable_in(self, cluster: ClusterName) -> float:
        since = self._unavailable_since.get(cluster)
        return 0.0 if since is None else self._elapsed() - since

    @property
    def current(self) -> tuple[PipelineState, str]:
        """The current state and reason; needs no lock."""
        (state, reason), silent = self._state, bool(self._unavailable_since)
        waits = silent and state is PipelineState.WAITING
        return state, f"{reason} (for {render_seconds(self.unavailable_s())})" if waits else reason

    def _settle(self) -> None:
        outage = "; ".join(self._outages.values())
        hanging = next(filter(None, self._hanging.values()), "")
        before, self._state = self._state[0], decide_state(self._told, outage, self._schemas or hanging)
        if self._state[0] is not before:
            self._changed(*self._state)
        for each in PipelineState:
            self._series.gauge("tidegate_pipeline_state", each.value).set(each is self._state[0])


class PipelineMetrics:
    """The metrics of one pipeline. `elapsed` returns monotonic seconds, `now_ms` the wall clock.

    `clusters` has the cluster of every source and sink.
    """

    def __init__(
        self,
        pipeline: str,
        version: str,
        elapsed: Callable[[], float] = time.monotonic,
        operators: OperatorAccounts | None = None,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.now_ms,
        guarantee: str = "exactly-once",
        clusters: Clusters = NO_CLUSTERS,
    ) -> None:
        self._series = MetricSeries(pipeline)
        self._pipeline = pipeline
        self.version = version
        self._guarantee = guarantee
        self._elapsed = elapsed
        self._now_ms = now_ms
        self._started_at = elapsed()
        self._lock = threading.Lock()
        self._attempt = Attempt(0)
        self._failed = self._restarts = 0
        self._steps, self._reasons = LabelBound(STEPS_MAX), LabelBound(REASONS_MAX)
        operators = operators or OperatorAccounts({})
        names = tuple(dict.fromkeys(clusters.values())) or (MAIN_CLUSTER,)
        self._slots = SlotMetrics(self._series, operators, self._steps, elapsed, now_ms)
        self._lags = LagMetrics(self._series, elapsed, now_ms, clusters)
        self._history = PipelineHistory(now_ms)
        self._history.add_event(EventKind.STARTED, f"tidegate {version} has started")
        self._state = StateMetrics(self._series, elapsed, self._history.state_changed, names)
        self._commits = CommitAccount()
        self._freshness = Freshness(names)
        self._show_start(names)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry that Prometheus reads."""
        return self._series.registry

    def _show_start(self, clusters: Iterable[ClusterName]) -> None:
        self._series.gauge("tidegate_uptime_seconds").set_function(lambda: self._elapsed() - self._started_at)
        self._series.gauge("tidegate_build_info", self.version, platform.python_version()).set(1)
        self._series.gauge("tidegate_checkpoint_last_success_timestamp_seconds").set(0)
        for result in ("completed", "failed"):
            self._series.counter("tidegate_checkpoints_total", result).inc(0)
        for transaction_result in TransactionResult:
            self._series.counter("tidegate_transactions_total", transaction_result.value).inc(0)
        for cluster in clusters:
            for end in MARKER_ENDS:
                self._series.counter("tidegate_missing_markers_written_total", cluster, end).inc(0)
            self.hanging_transactions(cluster, 0, 0)

    # -- what slots report -----------------------------------------------------------------------------------------

    def slot_report(self, attempt: Attempt, subtask: int, report: SlotReport, loop: LoopAge = TURNS) -> None:
        """Adds the counts of slot `subtask`, and sets how long its loop has not turned.

        Reports of attempts older than the newest known are ignored.

        The first report of a newer attempt counts from zero. Within an attempt, a value below an earlier one is a late
        report and adds nothing.
        """
        with self._lock:
            if attempt < self._attempt:
                return
            if attempt > self._attempt:
                self._begin_attempt(attempt)
            self._slots.add(subtask, report)
            self._slots.loops[subtask] = loop
            self._observe_latency(self._lags.times.read(report.newest))

    def reached(self, cluster: ClusterName) -> Offsets:
        """Returns the next offsets to read in a cluster, as last reported by the slots of this attempt."""
        with self._lock:
            return self._lags.times.merge_in(cluster, self._slots.positions)

    def lags(self, cluster: ClusterName, found: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Sets the lag in records and the next offset to read of each partition that is read in a cluster."""
        with self._lock:
            self._lags.set(cluster, found)

    # -- what the daemon reports-------------------------------------------------------------------------------------

    def attempt_started(self, attempt: Attempt) -> None:
        """Ignores reports of older attempts from now on, and clears the gauges of slots."""
        with self._lock:
            self._commits.begin(attempt)
            if attempt > self._attempt:
                self._begin_attempt(attempt)

    def _begin_attempt(self, attempt: Attempt) -> None:
        self._attempt = self._history.attempt = attempt
        self._slots.begin_attempt()
        self._lags.times.begin_attempt()
        self.oldest_transaction(None)  # the recovery has ended open transactions
        self._series.gauge("tidegate_attempt").set(attempt)

    def limits(self, interval_ms: int, min_pause_ms: int, transaction_timeout_ms: int) -> None:
        """Exports options of `checkpoints` for alerts that depend on them."""
        self._series.gauge("tidegate_checkpoint_interval_seconds").set(max(interval_ms, min_pause_ms) / 1000)
        self._series.gauge("tidegate_transaction_timeout_seconds").set(transaction_timeout_ms / 1000)

    def state(self, state: PipelineState, reason: str = "") -> None:
        """Sets the state of the pipeline; `reason` is shown in the status and by the readiness probe."""
        with self._lock:
            self._state.set(state, reason)

    def degraded(self, cluster: ClusterName, reason: str) -> None:
        """Sets why readers of an output do not see records although records flow; an empty reason clears it."""
        with self._lock:
            self._state.set_hanging(cluster, reason)

    def brokers(self, cluster: ClusterName, result: ProbeResult) -> None:
        """Takes a result of a cluster's broker watch, about once a second."""
        with self._lock:
            self._state.set_outage(cluster, result)
            if result.unavailable_s is None:
                self._freshness.answered(cluster, self._elapsed() - result.took_s)
            else:
                self._freshness.silent(cluster)
                self._show_checkpoint()

    def registry_says(self, why: str, waiting: int) -> None:
        """Sets why the registry does not respond, if so, and how many schemas records wait for."""
        with self._lock:
            self._series.gauge("tidegate_schemas_waiting").set(waiting)
            self._state.set_schemas(f"records wait for a schema: {why}" if waiting and why else "", waiting)

    def schemas_incompatible(self, count: int) -> None:
        """Sets the number of schemas whose records cannot be read."""
        with self._lock:
            self._series.gauge("tidegate_schemas_incompatible").set(count)

    @property
    def current_state(self) -> tuple[PipelineState, str]:
        """The current state and reason, for probes, which never wait for the lock."""
        return self._state.current

    def on_hold(self, holds: Mapping[OperatorName, SourceHold]) -> None:
        """Sets the sources that are on hold now."""
        with self._lock:
            self._history.held(self._slots.holds.holds, holds)
            self._slots.holds.set(holds)

    def restarted(self, cause: str) -> None:
        """Counts a failed attempt that another one follows; `cause` is the code of the error."""
        with self._lock:
            self._restarts += 1
            self._series.counter("tidegate_restarts_total", self._reasons.of(cause)).inc()

    def coordinator_answered(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """Adds an event of the coordinator to the history."""
        with self._lock:
            self._history.coordinator_answered(event, instructions)

    def attempt_failed(self, failure: FailureRecord, traceback: str = "") -> None:
        """Adds a failure to the history."""
        with self._lock:
            self._history.attempt_failed(failure, traceback)

    def upgraded(self, changes: Iterable[str]) -> None:
        """Adds to the events how the pipeline has changed since the checkpoint that an attempt restores."""
        with self._lock:
            for one in changes:
                self._history.add_event(EventKind.UPGRADED, one)

    def command_given(self, text: str) -> None:
        """Adds a command to the events."""
        with self._lock:
            self._history.add_event(EventKind.COMMAND, text)

    def checkpoint_completed(self, checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> None:
        """Counts a checkpoint that is in the journal; `phases` are seconds by the names in PHASES."""
        unknown = phases.keys() - set(PHASES)
        if unknown:
            raise ValueError(f"unknown phases of a checkpoint: {sorted(unknown)}; known are {PHASES}")
        duration = derive_duration_s(checkpoint, phases)
        with self._lock:
            now, records = self._elapsed(), self._count_committed(self._commits.completed(checkpoint))
            self._freshness.completed(TimedCheckpoint(checkpoint, records, now - duration, now))
            self._series.counter("tidegate_checkpoints_total", "completed").inc()
            for phase, seconds in {"total": duration, **phases}.items():
                self._series.histogram("tidegate_checkpoint_duration_seconds", phase).observe(seconds)
            self._series.gauge("tidegate_checkpoint_size_bytes", "full").set(checkpoint.size_bytes)
            self._series.gauge("tidegate_checkpoint_size_bytes", "in_flight").set(checkpoint.inflight_bytes)
            self._show_checkpoint()
            self._observe_latency(self._lags.times.committed(checkpoint.positions, self._now_ms()))
            for step, size in derive_state_bytes(checkpoint).items():
                self._series.gauge("tidegate_state_bytes", self._steps.of(step)).set(size)

    def committed(self, committables: Iterable[Committable], since: Attempt) -> None:
        """Counts transactions that the end of an attempt or a recovery has committed.

        `since` is an attempt of this daemon.
        """
        with self._lock:
            self._commits.begin(since)
            self._count_committed(self._commits.ended(committables))

    def _count_committed(self, found: Mapping[str, int]) -> int:
        for sink, records in found.items():
            self._series.counter("tidegate_records_committed_total", self._steps.of(sink)).inc(records)
        return sum(found.values())

    def _observe_latency(self, found: Iterable[tuple[ReadPartition, float]]) -> None:
        for (cluster, part), seconds in found:
            self._series.histogram("tidegate_record_latency_seconds", cluster, part.topic).observe(seconds)

    def checkpoint_failed(self, reason: str) -> None:
        """Counts a checkpoint that was given up; `reason` is a value of CheckpointFailure, not free text."""
        with self._lock:
            self._failed += 1
            self._series.counter("tidegate_checkpoints_total", "failed").inc()
            self._series.counter("tidegate_checkpoint_failures_total", self._reasons.of(reason)).inc()

    def transactions_committed(self, committables: Iterable[Committable], seconds: float) -> None:
        """Counts transactions that Kafka has committed in this time, including retries, or has confirmed again."""
        with self._lock:
            ended = self._commits.end(committables)
            self.transactions_ended(TransactionResult.COMMITTED, ended)
            for _ in range(ended):
                self._series.histogram("tidegate_transaction_commit_seconds").observe(seconds)

    def transactions_ended(self, result: TransactionResult, count: int) -> None:
        """Counts transactions that ended with a result other than a commit."""
        self._series.counter("tidegate_transactions_total", result.value).inc(count)

    def hanging_transactions(self, cluster: ClusterName, own: int, foreign: int) -> None:
        """Sets how many hanging transactions block readers of the outputs in a cluster."""
        self._series.gauge("tidegate_hanging_transactions", cluster, "own").set(own)
        self._series.gauge("tidegate_hanging_transactions", cluster, "foreign").set(foreign)

    def marker_written(self, cluster: ClusterName, end: str) -> None:
        """Counts a lost marker that was written; `end` is one of MARKER_ENDS."""
        self._series.counter("tidegate_missing_markers_written_total", cluster, end).inc()

    def lost_input(self, source: OperatorName, offsets: int) -> None:
        """Counts offsets that a source skips because they were removed before they were read."""
        self._series.counter("tidegate_lost_input_records_total", source).inc(offsets)

    def oldest_transaction(self, age_s: float | None) -> None:
        """Sets the age of the oldest open transaction, which grows from now on; None if there is none."""
        self._state.oldest_transaction.set(age_s)

    def diagnosed(self, diagnoses: Sequence[Diagnosis]) -> None:
        """Sets what is wrong now, the most important first."""
        with self._lock:
            self._state.diagnoses.set(diagnoses)

    # -- what people read ------------------------------------------------------------------------------------------

    def snapshot(self) -> Status:
        """Returns the current status."""
        with self._lock:
            return self._snapshot()

    def observe(self) -> Observation:
        """Returns what the diagnosis reads."""
        with self._lock:
            return Observation(
                status=self._snapshot(),
                checkpoints=self._history.checkpoints.checkpoints,
                failures=self._history.failures.failures,
                conditions=msgspec.structs.replace(
                    self._state.conditions(),
                    loops=dict(self._slots.loops),
                    bad_kinds={step: dict(kinds) for step, kinds in self._slots.bad_kinds.items()},
                ),
            )

    def _snapshot(self) -> Status:
        now, (state, reason) = self._elapsed(), self.current_state
        records_in, records_out = self._slots.windows["records_in"], self._slots.windows["records_out"]
        return Status(
            pipeline=self._pipeline,
            version=self.version,
            state=state,
            reason=reason,
            attempt=self._attempt,
            uptime_seconds=now - self._started_at,
            records_in=int(records_in.total),
            records_out=int(records_out.total),
            records_in_per_second=records_in.rate(now),
            records_out_per_second=records_out.rate(now),
            records_committed=self._commits.records,
            bad_records=self._slots.bad_records,
            lag_records=self._lags.records,
            lag_age_seconds=self._lags.age_s(),
            last_checkpoint=self._freshness.status(now),
            failed_checkpoints=self._failed,
            restarts=self._restarts,
            brokers_unavailable_seconds=self._state.unavailable_s(),
            dead_letters=self._slots.dead_letters,
            operators=self._slots.holds.shown(self._slots.operators.operators(now, self._now_ms())),
            slots=self._slots.operators.slots,
            guarantee=self._guarantee,
            history=self._history.checkpoints.summarise(self._history.failures.failures),
            lag_seconds=self._lags.seconds,
            oldest_transaction_seconds=self._state.oldest_transaction.seconds(),
            diagnoses=self._state.diagnoses.current,
        )

    def beat(self) -> None:
        """Adds a point to the time series if one is due. The daemon calls this a few times a second."""
        now = self._elapsed()
        if self._history.series.is_due(now):
            status = self.snapshot()
            with self._lock:
                self._history.series.observe(status, now, self._now_ms())

    def history(self, after_ms: int = 0, steps: Iterable[OperatorName] = ()) -> History:
        """Returns the time series of the pipeline and of some steps after a time (Unix ms)."""
        with self._lock:
            return self._history.series.read(after_ms, steps)

    @property
    def events(self) -> tuple[PipelineEvent, ...]:
        """The newest events of this daemon, newest first."""
        with self._lock:
            return self._history.log.events

    @property
    def partitions(self) -> tuple[PartitionStatus, ...]:
        """What the sources read, by source and partition."""
        with self._lock:
            reports, holders, ends = self._slots.reports(), self._slots.operators.holders(), self._lags.ends()
        return derive_partitions(reports, holders, self._lags.times.cluster_of, ends)

    @property
    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The newest checkpoints of this daemon, newest first."""
        with self._lock:
            return self._history.checkpoints.checkpoints

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The newest failures of this daemon, newest first."""
        with self._lock:
            return self._history.failures.failures

    def _show_checkpoint(self) -> None:
        newest = self._freshness.newest
        at_s = 0.0 if newest is None else newest.checkpoint.completed_at_ms / 1000
        self._series.gauge("tidegate_checkpoint_last_success_timestamp_seconds").set(at_s)
