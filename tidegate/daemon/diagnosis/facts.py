"""What the rules read: plain values that `watch.py` collects once a second. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidegate.config.deployment import CheckpointSettings
from tidegate.coordinator.history import CheckpointRecord, CheckpointResult, FailureRecord
from tidegate.daemon.slot_metrics import LoopAge
from tidegate.daemon.status import PipelineState, Status
from tidegate.ids import CheckpointId, ClusterName, OperatorName, VertexId
from tidegate.plan.clusters import derive_sink_clusters, derive_source_clusters
from tidegate.plan.graph import Plan

SAMPLE_S: Final = 10.0
"""Distance of two samples: 7 of them are kept, each as large as `/status`."""
SAMPLES_S: Final = 60.0
FLOWING: Final = frozenset({PipelineState.RUNNING, PipelineState.DEGRADED})
CLOCK_STEPS_MAX: Final = 10


class CheckpointLimits(msgspec.Struct, frozen=True):
    """Options of `checkpoints` that tell what is slow."""

    interval_s: float = 1.0
    """Or the minimum pause, if that is longer."""
    transaction_timeout_s: float = 900.0


class PlanFacts(msgspec.Struct, frozen=True):
    """What the rules need to know of the plan."""

    vertices: Mapping[OperatorName, VertexId] = {}
    """The vertex of each operator; those of one vertex wait together."""
    clusters: Mapping[OperatorName, ClusterName] = {}
    """The cluster of each source and sink."""


class BrokerOutage(msgspec.Struct, frozen=True):
    """Why no broker of a cluster responds, and for how long."""

    why: str
    unavailable_s: float


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What other parts of the daemon have found out already, with their texts."""

    outages: Mapping[ClusterName, BrokerOutage] = {}
    hanging: Mapping[ClusterName, str] = {}
    """Why readers of the outputs in a cluster are blocked."""
    schemas: str = ""
    """Why records wait for a schema."""
    schemas_waiting: int = 0
    bad_kinds: Mapping[OperatorName, Mapping[str, int]] = {}
    """How many records of each step were bad since the start of the daemon, by kind of failure."""
    loops: Mapping[int, LoopAge] = {}
    """How long the loops of the slots had not turned at the last heartbeat."""


class ClockStep(msgspec.Struct, frozen=True):
    """The wall clock was set by `step_s` at `at_s` of the monotonic clock."""

    at_s: float
    step_s: float


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What the metrics hold at one moment."""

    status: Status
    checkpoints: Sequence[CheckpointRecord] = ()
    """Newest first, as in `GET /checkpoints`."""
    failures: Sequence[FailureRecord] = ()
    """Newest first, as in `GET /failures`."""
    conditions: Conditions = Conditions()


class Sample(msgspec.Struct, frozen=True):
    """An earlier status of the same attempt, while records flowed."""

    at_s: float
    status: Status


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known at `at_s`, in seconds of a monotonic clock."""

    at_s: float
    status: Status
    samples: tuple[Sample, ...] = ()
    """Of the last minute, oldest first."""
    checkpoints: Sequence[CheckpointRecord] = ()
    failures: Sequence[FailureRecord] = ()
    failure_ages_s: tuple[float, ...] = ()
    """How long ago the failures were seen, whatever the wall clock does."""
    under_way_s: Mapping[CheckpointId, float] = {}
    """How long the checkpoints have taken that are in progress."""
    conditions: Conditions = Conditions()
    clock_steps: tuple[ClockStep, ...] = ()
    limits: CheckpointLimits = CheckpointLimits()
    plan: PlanFacts = PlanFacts()

    @property
    def flows(self) -> bool:
        """Returns whether records flow, so that rates mean something."""
        return self.status.state in FLOWING


class Recorder:
    """Remembers what the facts need of earlier moments."""

    def __init__(self, limits: CheckpointLimits, plan: PlanFacts) -> None:
        self._limits = limits
        self._plan = plan
        self._samples: deque[Sample] = deque()
        self._triggered: dict[CheckpointId, float] = {}
        self._failed: dict[tuple[int, int | None], float] = {}
        self._clock_steps: deque[ClockStep] = deque(maxlen=CLOCK_STEPS_MAX)

    def clock_was_set(self, at_s: float, step_s: float) -> None:
        """Records that the wall clock of the daemon's machine was set."""
        self._clock_steps.append(ClockStep(at_s, step_s))

    def record(self, at_s: float, seen: Observation) -> Facts:
        """Returns the facts of this moment."""
        self._sample(at_s, seen.status)
        open_now = [one.id for one in seen.checkpoints if one.result is CheckpointResult.UNDER_WAY]
        self._triggered = {one: self._triggered.get(one, at_s) for one in open_now}
        keys = [(one.failed_at_ms, one.attempt) for one in seen.failures]
        self._failed = {key: self._failed.get(key, at_s) for key in keys}
        return Facts(
            at_s=at_s,
            status=seen.status,
            samples=tuple(self._samples),
            checkpoints=seen.checkpoints,
            failures=seen.failures,
            failure_ages_s=tuple(at_s - self._failed[key] for key in keys),
            under_way_s={one: at_s - since for one, since in self._triggered.items()},
            conditions=seen.conditions,
            clock_steps=tuple(self._clock_steps),
            limits=self._limits,
            plan=self._plan,
        )

    def _sample(self, at_s: float, status: Status) -> None:
        """Keeps a status every ten seconds; another attempt, or records that do not flow, begin anew."""
        if status.state not in FLOWING or (self._samples and self._samples[-1].status.attempt != status.attempt):
            self._samples.clear()
        if status.state in FLOWING and (not self._samples or at_s - self._samples[-1].at_s >= SAMPLE_S):
            self._samples.append(Sample(at_s, status))
        while self._samples and at_s - self._samples[0].at_s > SAMPLES_S:
            self._samples.popleft()


def derive_limits(settings: CheckpointSettings) -> CheckpointLimits:
    """Returns the limits of a pipeline file."""
    return CheckpointLimits(
        max(settings.interval_ms, settings.min_pause_ms) / 1000, settings.transaction_timeout_ms / 1000
    )


def derive_plan_facts(plan: Plan) -> PlanFacts:
    """Returns what the rules need to know of a plan."""
    return PlanFacts(
        {node.operator.name: vertex.id for vertex in plan.vertices for node in vertex.nodes},
        derive_source_clusters(plan) | derive_sink_clusters(plan),
    )
