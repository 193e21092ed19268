"""What several rules derive from the facts: how busy the slots are, whether the lag shrinks, which checkpoint is slow.

Pure. Ratios cover the last twenty to thirty seconds, so that a hiccup of a second changes nothing. A rule finds one
cause in a situation, and knows which consequences it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_count
from tidegate.config.fields.units import render_duration
from tidegate.coordinator.history import CheckpointKind, CheckpointRecord, CheckpointResult, SubtaskPhases
from tidegate.daemon.diagnosis.facts import Facts, Sample
from tidegate.daemon.status import DiagnosisSeverity, OperatorStatus
from tidegate.ids import ClusterName, OperatorName

LOAD_S: Final = 20.0
LAG_S_MIN: Final = 15.0
"""Records that wait for less are no problem: a burst of a producer, or a checkpoint, can make them."""
LAG_FOR_S: Final = 30.0
"""The lag is a problem if it has not shrunk for so long, and was late all the time."""
LAG_AGE_S_MAX: Final = 10.0
"""A lag that was measured longer ago counts as unknown."""
SHRINKS: Final = 0.95
"""A backlog that is worked off falls below this share of what it was."""
SLOW_S_MIN: Final = 5.0
"""A checkpoint is slow if it takes longer than this and the interval: output is then later than the file promises."""
ALONE_TIMES: Final = 2.0
"""Two in a row count, and a single one that takes twice that time, also while it is in progress."""
SLOW_IN_A_ROW: Final = 2


MINUTES_FROM_S: Final = 120.0


class SlotLoad(msgspec.Struct, frozen=True):
    """The shares of a slot's time."""

    slot: int
    busy: float
    blocked: float
    idle: float


class Phase(StrEnum):
    """The part of a checkpoint that takes longest."""

    BARRIER = "barriers"
    SNAPSHOT = "snapshot"
    UPLOAD = "upload"
    PREPARE = "prepare"
    JOURNAL = "journal"
    COMMIT = "commit"
    MISSING = "missing acknowledgements"


class SlowCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that takes too long, and what it spends its time with."""

    record: CheckpointRecord
    seconds: float
    phase: Phase
    phase_seconds: float
    subtask: SubtaskPhases | None
    """The slowest subtask of that phase."""
    is_over: bool

    def describe_share(self) -> str:
        """Renders `took 7.0 s of the 7.1 s of checkpoint 12 (slowest: totals[1])`."""
        so_far = "" if self.is_over else " so far"
        slowest = "" if self.subtask is None else f" (slowest: {self.subtask.vertex}[{self.subtask.slot}])"
        total = f"{render_span(self.seconds)} of checkpoint {self.record.id}{so_far}"
        return f"took {render_span(self.phase_seconds)} of the {total}{slowest}"

    def describe(self) -> str:
        """Renders `checkpoint 12 took 7.1 s`."""
        verb = "took" if self.is_over else "has taken"
        return f"checkpoint {self.record.id} {verb} {render_span(self.seconds)}"


class Situation:
    """The facts, and what is derived from them once."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def since(self, seconds: float) -> Sample | None:
        """Returns the newest sample that is at least this old."""
        old = [one for one in self.facts.samples if self.facts.at_s - one.at_s >= seconds]
        return old[-1] if old else None

    @cached_property
    def loads(self) -> tuple[SlotLoad, ...]:
        """What the slots do; empty if it is not known yet."""
        sample = self.since(LOAD_S)
        if sample is None or not self.facts.flows:
            return ()
        before = {one.slot: one for one in sample.status.slots}
        found = []
        for now in self.facts.status.slots:
            if (then := before.get(now.slot)) is None:
                continue
            busy_s = now.busy_seconds - then.busy_seconds
            blocked_s = now.backpressured_seconds - then.backpressured_seconds
            idle_s = now.idle_seconds - then.idle_seconds
            total_s = max(busy_s + blocked_s + idle_s, 1e-9)
            found.append(SlotLoad(now.slot, busy_s / total_s, blocked_s / total_s, idle_s / total_s))
        return tuple(found)

    def work(self, field: str, slot: int | None = None) -> dict[OperatorName, float]:
        """Returns what a count of the operators has grown by in the time of `loads`, in one slot or in all."""
        sample = self.since(LOAD_S)
        before = {} if sample is None else _counts(sample.status.operators, field, slot)
        now = _counts(self.facts.status.operators, field, slot)
        return {name: value - before.get(name, 0.0) for name, value in now.items()}

    @cached_property
    def late_records(self) -> int:
        """How many records wait, if the sources are late and do not catch up; else 0."""
        facts, age_s = self.facts, self.facts.status.lag_age_seconds
        sample = self.since(LAG_FOR_S)
        if sample is None or not facts.flows or age_s is None or age_s > LAG_AGE_S_MAX:
            return 0
        seen = [one.status for one in facts.samples if one.at_s >= sample.at_s]
        if any((one.lag_seconds or 0.0) < LAG_S_MIN for one in (*seen, facts.status)):
            return 0
        now = facts.status.lag_records or 0
        return now if now >= SHRINKS * (sample.status.lag_records or 0) else 0

    @cached_property
    def slow(self) -> SlowCheckpoint | None:
        """The newest slow checkpoint; None if checkpoints are as fast as they should be."""
        facts = self.facts
        limit_s = max(SLOW_S_MIN, facts.limits.interval_s)
        known = [one for one in facts.checkpoints if one.kind is CheckpointKind.CHECKPOINT]
        ended = [one for one in known if one.result in {CheckpointResult.COMPLETED, CheckpointResult.FAILED}]
        newest = [one for one in ended if one.attempt == facts.status.attempt][:SLOW_IN_A_ROW]
        last = next((_derive_slow(one, (one.duration_ms or 0) / 1000) for one in newest), None)
        pending = [one for one in known if facts.under_way_s.get(one.id, 0.0) > ALONE_TIMES * limit_s]
        if pending and facts.flows:
            oldest = pending[-1]
            slow = _derive_slow(oldest, facts.under_way_s[oldest.id])
            known_before = last is not None and last.seconds > limit_s and last.phase is not Phase.MISSING
            return last if slow.phase is Phase.MISSING and known_before else slow  # it does not tell yet, the last has
        expired = bool(newest) and newest[0].result is CheckpointResult.FAILED and bool(newest[0].missing)
        in_a_row = len(newest) == SLOW_IN_A_ROW and all((one.duration_ms or 0) > 1000 * limit_s for one in newest)
        if last is None or not facts.flows or last.seconds <= limit_s:
            return None
        return last if expired or in_a_row or last.seconds > ALONE_TIMES * limit_s else None

    @property
    def barriers_wait(self) -> bool:
        """Returns whether barriers do not get through: what holds rows up holds checkpoints up as well."""
        return self.slow is not None and self.slow.phase in {Phase.BARRIER, Phase.MISSING}

    @property
    def suffers(self) -> bool:
        """Returns whether a bottleneck would matter: a busy slot that keeps up is no problem."""
        return bool(self.late_records) or self.barriers_wait

    def describe_effect(self) -> str:
        """Renders what a bottleneck causes, to be appended to a sentence."""
        effects = []
        if self.late_records:
            waiting = render_count(self.late_records, "record")
            effects.append(f"{waiting} wait, the oldest for {render_span(self.facts.status.lag_seconds or 0.0)}")
        if self.barriers_wait and self.slow is not None:
            effects.append(self.slow.describe())
        return f"; {', and '.join(effects)}" if effects else ""

    def measure_effect(self) -> dict[str, float | str]:
        """Returns the evidence of `describe_effect`."""
        found: dict[str, float | str] = {}
        if self.late_records:
            found |= {"lag_records": self.late_records, "lag_seconds": round(self.facts.status.lag_seconds or 0.0, 1)}
        if self.barriers_wait and self.slow is not None:
            found |= {"checkpoint": self.slow.record.id, "checkpoint_seconds": round(self.slow.seconds, 1)}
        return found


def render_span(seconds: float) -> str:
    """Renders a time for a sentence: `8.1 s`, `2m5s`."""
    return f"{seconds:.1f} s" if seconds < MINUTES_FROM_S else render_duration(int(seconds) * 1000)


def _counts(operators: tuple[OperatorStatus, ...], field: str, slot: int | None) -> dict[OperatorName, float]:
    return {
        one.name: sum(getattr(each, field) for each in one.subtasks if slot is None or each.slot == slot)
        for one in operators
    }


def _derive_slow(record: CheckpointRecord, seconds: float) -> SlowCheckpoint:
    """Finds the phase that takes longest: of the slowest subtask, or of the daemon after the last acknowledgement."""
    slowest: dict[Phase, tuple[float, SubtaskPhases | None]] = {}
    for one in record.subtasks:
        for phase, milliseconds in (
            (Phase.BARRIER, one.start_delay_ms + one.alignment_ms),
            (Phase.SNAPSHOT, one.snapshot_ms),
            (Phase.UPLOAD, one.upload_ms),
            (Phase.PREPARE, one.prepare_ms),
        ):
            if milliseconds > slowest.get(phase, (-1.0, None))[0]:
                slowest[phase] = (milliseconds, one)
    acknowledged_ms, journal_ms = record.acknowledged_ms, record.journal_ms
    if record.missing:
        slowest = {Phase.MISSING: (seconds * 1000, None)}
    elif acknowledged_ms is not None:
        left_ms = seconds * 1000 - acknowledged_ms
        slowest[Phase.JOURNAL] = (left_ms if journal_ms is None else journal_ms, None)
        if journal_ms is not None:
            slowest[Phase.COMMIT] = (left_ms - journal_ms, None)
    phase = max(slowest, key=lambda one: slowest[one][0], default=Phase.MISSING)
    milliseconds, subtask = slowest.get(phase, (0.0, None))
    return SlowCheckpoint(
        record=record,
        seconds=seconds,
        phase=phase,
        phase_seconds=milliseconds / 1000,
        subtask=subtask,
        is_over=record.result is not CheckpointResult.UNDER_WAY,
    )


class FoundCause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that a rule has found."""

    sentence: str
    remedy: str = ""
    """Empty: the rule's own."""
    severity: DiagnosisSeverity | None = None
    """None: the rule's own."""
    step: OperatorName | None = None
    slot: int | None = None
    cluster: ClusterName | None = None
    evidence: dict[str, float | str] = {}


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One cause. `find` yields it for every place where it is found."""

    code: str
    meaning: str
    """For docs/operations/diagnosis.md."""
    remedy: str
    find: Callable[[Situation], Iterator[FoundCause]]
    severity: DiagnosisSeverity = DiagnosisSeverity.PROBLEM
    explains: frozenset[str] = frozenset()
    """Codes of consequences, which are not shown next to it."""
    after_s: float = 0.0
    """How long it must have been found without a break before it is shown."""
    linger_s: float = 0.0
    """How long it is still shown after it was found last."""
    logged: bool = False
    """True if the part that finds it out logs its beginning and end already."""
