"""What the daemon says about its pipeline to people: the state it is in, and a snapshot of the figures that matter.

Plain values; made by tidegate.daemon.metrics, shown by the terminal display and by `/status`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.history import HistorySummary
from tidegate.ids import Attempt, CheckpointId, OperatorName


class PipelineState(StrEnum):
    """Where a pipeline is in its life."""

    STARTING = "starting"
    """The process, Spark and the control server come up."""
    RESTORING = "restoring"
    """Transactions of the past are ended, state and positions are restored, slots are deployed."""
    RUNNING = "running"
    """Records flow."""
    WAITING = "waiting"
    """No broker answers: records, checkpoints and the next attempt wait until they are back."""
    DEGRADED = "degraded"
    """Records flow and are committed, but a hanging transaction keeps readers of an output from seeing them, or some
    partitions wait for a schema of the registry."""
    RESTARTING = "restarting"
    """An attempt has failed; the restart strategy waits before the next."""
    STOPPING = "stopping"
    """The final checkpoint is taken and committed."""
    FINISHED = "finished"
    """Everything is committed; the daemon ends with exit code 0."""
    FAILED = "failed"
    """The daemon gives up; the reason is in the status and the log."""


NEEDS_BROKERS: Final = frozenset({PipelineState.RUNNING, PipelineState.RESTORING, PipelineState.RESTARTING})


def decide_state(told: tuple[PipelineState, str], silence: str, degraded: str) -> tuple[PipelineState, str]:
    """State and reason for people. Pure. `silence` is why no broker answers, `degraded` why readers do not see records.

    Between two attempts the next one waits for the brokers as well: none can begin without them.
    """
    state, _ = told
    if silence and state in NEEDS_BROKERS:
        return PipelineState.WAITING, silence
    if degraded and state is PipelineState.RUNNING:
        return PipelineState.DEGRADED, degraded
    return told


class CheckpointStatus(msgspec.Struct, frozen=True):
    """The newest completed checkpoint of this daemon that was triggered while brokers answered."""

    id: CheckpointId
    age_seconds: float
    duration_seconds: float
    size_bytes: int
    records_committed: int


class OperatorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator has done since this daemon started, rows that an attempt processed again included."""

    rows_in: int
    """Of a source: records read."""
    rows_out: int
    """Of a sink: records produced."""
    filtered: int
    """Rows for which the predicate of a `where` was not true."""
    failed: int
    """Rows that could not be read, computed or written, and were left out."""
    busy_seconds: float
    late: int = 0
    """Rows left out because what they belong to was closed already."""
    before_1971: int = 0
    """Of a source: rows whose event time is before 1971."""
    watermarks: int = 0
    """How many it has passed on."""
    watermark_ms: int | None = None
    """Event time that it has reached, ms since 1970; None: it has none, or it is at the end of event time."""
    idle: bool = False
    """Nobody waits for its watermark."""
    gauges: dict[str, int] = {}
    """What it holds now: `open_windows`, `timers`."""
    blocked_seconds: float = 0.0
    """Its slots waited so long because nothing could leave it and the operators chained after it."""


class SubtaskStatus(OperatorFigures, frozen=True, kw_only=True):
    """Its part in one slot."""

    slot: int


class OperatorStatus(OperatorFigures, frozen=True, kw_only=True):
    """An operator in all slots. Rates and `busy_ratio` are over the last few seconds."""

    name: OperatorName
    kind: str
    """Of the plan's operator: `source`, `filter`, `aggregate`, `sink` ..."""
    rows_in_per_second: float
    rows_out_per_second: float
    busy_ratio: float
    """The part of its slots' time that it takes: 1 keeps them busy all the time."""
    event_time_lag_seconds: float | None = None
    """How long ago its watermark is, by this machine's clock; None without one."""
    stalled_seconds: float | None = None
    """Of a source: for so long its watermark has stood although rows arrive; None while it moves."""
    held_back_by: str = ""
    """Then: the partition that it waits for."""
    before_1971_remedy: str = ""
    """What helps, where event times are before 1971."""
    subtasks: tuple[SubtaskStatus, ...]


class SlotStatus(msgspec.Struct, frozen=True):
    """How one slot's loop has spent its time since this daemon started."""

    slot: int
    busy_seconds: float = 0.0
    backpressured_seconds: float = 0.0
    """It waited for room at a sink or in a channel."""
    idle_seconds: float = 0.0


class Status(msgspec.Struct, frozen=True):
    """One look at the pipeline. Rates are over the last few seconds, counts since this daemon started."""

    pipeline: str
    version: str
    state: PipelineState
    reason: str
    """Why it is in that state, for a person; may be empty."""
    attempt: Attempt
    uptime_seconds: float
    records_in: int
    records_out: int
    records_in_per_second: float
    records_out_per_second: float
    records_committed: int
    bad_records: int
    lag_records: int | None
    """Sum over all partitions when it was measured last; None until then."""
    lag_age_seconds: float | None
    """How long ago: it is measured every 2 s, but not while no broker answers or no attempt runs."""
    last_checkpoint: CheckpointStatus | None
    failed_checkpoints: int
    restarts: int
    brokers_away_seconds: float = 0.0
    """No broker has answered for so long; 0 while they do."""
    operators: tuple[OperatorStatus, ...] = ()
    """In the order of the plan."""
    slots: tuple[SlotStatus, ...] = ()
    guarantee: str = "exactly-once"
    """`checkpoints.mode`. With `at-least-once` nothing is committed: records are visible once they are produced."""
    history: HistorySummary = HistorySummary()
    """Of the checkpoints and failures that this daemon keeps; all of them: `/checkpoints`, `/failures`."""
    dead_letters: int = 0
    """Those of the bad records that letters were written about."""
    lag_seconds: float | None = None
    """How old the oldest record may be that was not read when lag was measured last; None until then."""
