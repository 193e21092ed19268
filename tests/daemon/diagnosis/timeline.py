"""A pipeline as numbers: a test says what each second looks like, and reads what the rules make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from tidegate.coordinator.history import (
    CheckpointKind,
    CheckpointRecord,
    CheckpointResult,
    FailureRecord,
    FollowedBy,
    SubtaskPhases,
)
from tidegate.daemon.diagnosis.facts import CheckpointLimits, Conditions, Observation, PlanFacts, Recorder
from tidegate.daemon.diagnosis.watch import Diagnoser
from tidegate.daemon.status import Diagnosis, OperatorStatus, PipelineState, SlotStatus, Status, SubtaskStatus
from tidegate.ids import MAIN_CLUSTER, Attempt, CheckpointId, OperatorName, SlotIndex, VertexId

ORDERS, TOTALS, OUT = OperatorName("orders"), OperatorName("totals"), OperatorName("out")
KINDS: Final = {ORDERS: "source", TOTALS: "aggregate", OUT: "sink"}
PLAN: Final = PlanFacts(
    {ORDERS: VertexId("orders"), TOTALS: VertexId("totals"), OUT: VertexId("totals")},
    {ORDERS: MAIN_CLUSTER, OUT: MAIN_CLUSTER},
)
CALM: Final = (0.1, 0.0, 0.9)
BUSY: Final = (0.97, 0.01, 0.02)
BLOCKED: Final = (0.1, 0.85, 0.05)
NOW_MS: Final = 1_777_629_600_000
EMPTY: Final = Status(
    pipeline="shop",
    version="0",
    state=PipelineState.RUNNING,
    reason="",
    attempt=Attempt(1),
    uptime_seconds=100.0,
    records_in=0,
    records_out=0,
    records_in_per_second=0.0,
    records_out_per_second=0.0,
    records_committed=0,
    bad_records=0,
    lag_records=0,
    lag_age_seconds=1.0,
    last_checkpoint=None,
    failed_checkpoints=0,
    restarts=0,
    lag_seconds=0.0,
)


class Timeline:
    """One pipeline; `second` lets time pass. Shares of slots are busy, blocked, idle."""

    def __init__(self, slots: int = 2, interval_s: float = 1.0, transaction_timeout_s: float = 900.0) -> None:
        self.now = 5000.0
        self.status = EMPTY
        self.conditions = Conditions()
        self.checkpoints: list[CheckpointRecord] = []
        self.failures: list[FailureRecord] = []
        self.rows = dict.fromkeys(range(slots), 100)
        """Rows of the step a second, by slot."""
        self.operators: dict[OperatorName, dict[str, Any]] = {name: {} for name in KINDS}
        """Fields of an operator's status."""
        self.seen: list[tuple[str, ...]] = []
        """What was shown, second by second."""
        self._limits = CheckpointLimits(interval_s, transaction_timeout_s)
        self.recorder = Recorder(self._limits, PLAN)
        self._diagnoser = Diagnoser()
        self._slots = {slot: SlotStatus(slot) for slot in range(slots)}
        self._work = {(name, slot): (0, 0.0, 0.0) for name in KINDS for slot in range(slots)}
        self.diagnoses: tuple[Diagnosis, ...] = ()

    @property
    def codes(self) -> tuple[str, ...]:
        """What is shown now."""
        return tuple(one.code for one in self.diagnoses)

    @property
    def shown(self) -> set[str]:
        """Everything that was shown so far."""
        return {code for codes in self.seen for code in codes}

    def second(
        self,
        loads: Sequence[tuple[float, float, float]] = (),
        *,
        times: int = 1,
        lag: int = 0,
        lag_s: float | None = None,
        **status: Any,
    ) -> Timeline:
        """Lets seconds pass. `lag` and `lag_s` are what the lag grows by in each; `status` is how the status changes.

        Without `loads` all slots are calm.
        """
        for _ in range(times):
            self.now += 1.0
            self.status = replace(self.status, **status)
            for slot, (busy, blocked, idle) in enumerate(loads or [CALM] * len(self._slots)):
                self._spend(slot, busy, blocked, idle)
            waiting = max(0, (self.status.lag_records or 0) + lag)
            seconds = max(0.0, (self.status.lag_seconds or 0.0) + (lag_s if lag_s is not None else 0.0))
            self.status = replace(
                self.status,
                records_in=self.status.records_in + sum(self.rows.values()),
                records_in_per_second=float(sum(self.rows.values())),
                lag_records=waiting,
                lag_seconds=seconds if waiting else 0.0,
                slots=tuple(self._slots.values()),
                operators=tuple(self._operator(name) for name in KINDS),
            )
            self._look()
        return self

    def _look(self) -> None:
        seen = Observation(
            status=self.status, checkpoints=self.checkpoints, failures=self.failures, conditions=self.conditions
        )
        self.diagnoses = self._diagnoser.diagnose(self.recorder.record(self.now, seen))
        self.seen.append(self.codes)

    def _spend(self, slot: int, busy: float, blocked: float, idle: float) -> None:
        one = self._slots[slot]
        self._slots[slot] = SlotStatus(
            slot, one.busy_seconds + busy, one.backpressured_seconds + blocked, one.idle_seconds + idle
        )
        for name, share in ((ORDERS, 0.2), (TOTALS, 0.7), (OUT, 0.1)):
            rows, busy_s, blocked_s = self._work[name, slot]
            more = blocked if name == TOTALS else 0.0
            self._work[name, slot] = (rows + self.rows[slot], busy_s + share * busy, blocked_s + more)

    def _operator(self, name: OperatorName) -> OperatorStatus:
        figures: dict[str, Any] = {"rows_out": 0, "filtered": 0, "failed": 0}
        subtasks = tuple(
            SubtaskStatus(slot=slot, rows_in=rows, busy_seconds=busy, blocked_seconds=blocked, **figures)
            for (step, slot), (rows, busy, blocked) in self._work.items()
            if step == name
        )
        known = {
            **figures,
            "rows_in": sum(one.rows_in for one in subtasks),
            "busy_seconds": sum(one.busy_seconds for one in subtasks),
            "rows_in_per_second": 0.0,
            "rows_out_per_second": 0.0,
            "busy_ratio": 0.0,
            **self.operators[name],
        }
        return OperatorStatus(name=name, kind=KINDS[name], subtasks=subtasks, **known)

    def checkpoint(
        self,
        seconds: float | None,
        *phases: SubtaskPhases,
        result: CheckpointResult = CheckpointResult.COMPLETED,
        **fields: Any,
    ) -> Timeline:
        """Adds a checkpoint that took so long, or one in progress (None). Two subtasks were quick unless told."""
        duration_ms = None if seconds is None else int(seconds * 1000)
        known: dict[str, Any] = {
            "id": CheckpointId(len(self.checkpoints) + 1),
            "attempt": self.status.attempt,
            "kind": CheckpointKind.CHECKPOINT,
            "result": CheckpointResult.UNDER_WAY if seconds is None else result,
            "reason": "",
            "triggered_at_ms": NOW_MS,
            "duration_ms": duration_ms,
            "acknowledged_ms": None if duration_ms is None else duration_ms - 20,
            "journal_ms": None if seconds is None else 10,
            "commit_ms": None if seconds is None else 10,
            "size_bytes": 1000,
            "records": 10,
            "subtasks": phases or (phase(), phase(slot=1)),
            "missing": (),
            **fields,
        }
        self.checkpoints = [CheckpointRecord(**known), *self.checkpoints][:100]
        return self

    def fail(self, code: str = "slot-lost", cause: str = "slot 1 was lost", ran_s: float = 60.0) -> Timeline:
        """Ends the attempt; the next one is running in the next second."""
        attempt = self.status.attempt
        self.failures = [
            FailureRecord(
                failed_at_ms=NOW_MS + int(self.now * 1000),
                attempt=attempt,
                code=code,
                cause=cause,
                ran_ms=int(ran_s * 1000),
                followed_by=FollowedBy.RESTART,
                restart_after_ms=1000,
            ),
            *self.failures,
        ]
        self.second(times=2, state=PipelineState.RESTARTING, reason=cause, restarts=self.status.restarts + 1)
        self.status = replace(self.status, state=PipelineState.RUNNING, reason="", attempt=Attempt(attempt + 1))
        return self


def phase(
    vertex: str = "totals",
    slot: int = 0,
    *,
    delay_s: float = 0.01,
    snapshot_s: float = 0.01,
    upload_s: float = 0.01,
    prepare_s: float = 0.01,
    written_bytes: int = 1000,
) -> SubtaskPhases:
    """The phases of one subtask, in seconds."""
    total = delay_s + snapshot_s + max(upload_s, prepare_s)
    return SubtaskPhases(
        vertex=VertexId(vertex),
        slot=SlotIndex(slot),
        start_delay_ms=delay_s * 1000,
        alignment_ms=0.0,
        snapshot_ms=snapshot_s * 1000,
        upload_ms=upload_s * 1000,
        prepare_ms=prepare_s * 1000,
        acknowledged_after_ms=int(total * 1000),
        size_bytes=written_bytes,
        written_bytes=written_bytes,
        inflight_bytes=0,
        inflight_rows=0,
    )
