"""The status of a pipeline for people: its state, and a snapshot of the numbers that matter.

Plain values, created by tidegate.daemon.metrics and shown by the terminal display and `/status`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.history import HistorySummary
from tidegate.ids import Attempt, CheckpointId, ClusterName, OperatorName


class PipelineState(StrEnum):
    """The state of a pipeline."""

    STARTING = "starting"
    """The process, Spark and the control server start."""
    RESTORING = "restoring"
    """Earlier transactions are resolved, state and positions are restored, slots are deployed."""
    RUNNING = "running"
    """Records flow."""
    WAITING = "waiting"
    """No broker responds: records, checkpoints and the next attempt wait until one does."""
    DEGRADED = "degraded"
    """Records flow and are committed, but some readers or partitions are blocked.

    A hanging transaction hides records from readers of an output, or partitions wait for a schema of the registry.
    """
    RESTARTING = "restarting"
    """An attempt has failed; the restart strategy waits before the next."""
    STOPPING = "stopping"
    """The final checkpoint is taken and committed."""
    FINISHED = "finished"
    """Everything is committed; the daemon ends with exit code 0."""
    FAILED = "failed"
    """The daemon gives up; the reason is in the status and the log."""


NEEDS_BROKERS: Final = frozenset({PipelineState.RUNNING, PipelineState.RESTORING, PipelineState.RESTARTING})


def decide_state(told: tuple[PipelineState, str], outage: str, degraded: str) -> tuple[PipelineState, str]:
    """Decides the state and the reason to show. Pure.

    `outage` is why no broker responds, `degraded` why readers do not see records. Between two attempts the state is
    also WAITING if no broker responds, because no attempt can begin without them.
    """
    state, _ = told
    if outage and state in NEEDS_BROKERS:
        return PipelineState.WAITING, outage
    if degraded and state is PipelineState.RUNNING:
        return PipelineState.DEGRADED, degraded
    return told


class CheckpointStatus(msgspec.Struct, frozen=True):
    """The newest completed checkpoint of this daemon that was triggered while brokers responded."""

    id: CheckpointId
    age_seconds: float
    duration_seconds: float
    size_bytes: int
    records_committed: int


class OperatorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an operator since this daemon started, including rows that a later attempt processed again."""

    rows_in: int
    """For a source: records read."""
    rows_out: int
    """For a sink: records produced."""
    filtered: int
    """Rows for which the predicate of a `where` was not true."""
    failed: int
    """Rows that could not be read, computed or written, and were left out."""
    busy_seconds: float
    late: int = 0
    """Rows left out because the window or ranking they belong to was already closed."""
    before_1971: int = 0
    """For a source: rows whose event time is before 1971."""
    watermarks: int = 0
    """The number of watermarks that it has passed on."""
    watermark_ms: int | None = None
    """The event time that it has reached, ms since 1970; None if it has none or is at the end of event time."""
    idle: bool = False
    """True if downstream watermarks do not wait for it."""
    gauges: dict[str, int] = {}
    """The entries that it holds now: `open_windows`, `timers`."""
    blocked_seconds: float = 0.0
    """How long its slots waited because no row could leave it and the operators chained after it."""


class SubtaskStatus(OperatorFigures, frozen=True, kw_only=True):
    """An operator's subtask in one slot."""

    slot: int


class OperatorStatus(OperatorFigures, frozen=True, kw_only=True):
    """An operator in all slots. Rates and `busy_ratio` cover the last few seconds."""

    name: OperatorName
    kind: str
    """The kind of the plan's operator: `source`, `filter`, `aggregate`, `sink` ..."""
    rows_in_per_second: float
    rows_out_per_second: float
    busy_ratio: float
    """Its share of its slots' time: 1 keeps them busy all the time."""
    event_time_lag_seconds: float | None = None
    """How far its watermark is behind this machine's clock; None without a watermark."""
    stalled_seconds: float | None = None
    """For a source: how long its watermark has not advanced although rows arrive; None while it advances."""
    held_back_by: str = ""
    """The partition that holds a stalled watermark back."""
    waiting: str = ""
    """Which of its rows wait for what, and until when."""
    on_hold: str = ""
    """For a source on hold: until when, or while what."""
    on_hold_seconds: float | None = None
    """For a source on hold: for how long."""
    before_1971_remedy: str = ""
    """The advice about event times before 1971, if there are any."""
    subtasks: tuple[SubtaskStatus, ...]


class SlotStatus(msgspec.Struct, frozen=True):
    """How one slot's loop has spent its time since this daemon started."""

    slot: int
    busy_seconds: float = 0.0
    backpressured_seconds: float = 0.0
    """Time spent waiting for room at a sink or in a channel."""
    idle_seconds: float = 0.0


class DiagnosisSeverity(StrEnum):
    """How urgent a diagnosis is."""

    PROBLEM = "problem"
    """Action is required, or records are late."""
    NOTICE = "notice"
    """Worth knowing; the pipeline copes with it by itself."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the pipeline: its cause in one sentence, and the remedy."""

    code: str
    """Stable; docs/operations/diagnosis.md lists all."""
    severity: DiagnosisSeverity
    sentence: str
    remedy: str
    step: OperatorName | None = None
    slot: int | None = None
    cluster: ClusterName | None = None
    evidence: dict[str, float | str] = {}
    """The numbers behind the sentence, by name; units are suffixes."""


class Status(msgspec.Struct, frozen=True):
    """A snapshot of the pipeline. Rates cover the last few seconds; counts begin with this daemon."""

    pipeline: str
    version: str
    state: PipelineState
    reason: str
    """Why it is in that state; may be empty."""
    attempt: Attempt
    uptime_seconds: float
    records_in: int
    records_out: int
    records_in_per_second: float
    records_out_per_second: float
    records_committed: int
    bad_records: int
    lag_records: int | None
    """Sum over all partitions at the last measurement; None before the first."""
    lag_age_seconds: float | None
    """How long ago the lag was measured: every 2 s, but not while no broker responds or no attempt runs."""
    last_checkpoint: CheckpointStatus | None
    failed_checkpoints: int
    restarts: int
    brokers_unavailable_seconds: float = 0.0
    """How long no broker has responded; 0 while they do."""
    operators: tuple[OperatorStatus, ...] = ()
    """In the order of the plan."""
    slots: tuple[SlotStatus, ...] = ()
    guarantee: str = "exactly-once"
    """`checkpoints.mode`. With `at-least-once` nothing is committed: records are visible once they are produced."""
    history: HistorySummary = HistorySummary()
    """Summary of the checkpoints and failures that this daemon keeps; `/checkpoints` and `/failures` list them all."""
    dead_letters: int = 0
    """The bad records for which dead letters were written."""
    lag_seconds: float | None = None
    """How old the oldest unread record may have been at the last measurement; None before the first."""
    oldest_transaction_seconds: float | None = None
    """How long the oldest open transaction has been open; None if there is none."""
    diagnoses: tuple[Diagnosis, ...] = ()
    """What is wrong, the most important first; empty if nothing is."""
