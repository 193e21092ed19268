"""Diagnoses the pipeline of a daemon once a second: for `/status`, the metrics and the log.

Rules find causes in facts, and a cause hides its consequences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from tidegate.daemon.diagnosis.facts import CheckpointLimits, Facts, Observation, PlanFacts, Recorder
from tidegate.daemon.diagnosis.rules import RULES
from tidegate.daemon.diagnosis.situation import FoundCause, Rule, Situation
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity
from tidegate.ids import ClusterName, OperatorName

EXPLAINS_S: Final = 15.0
"""How long a cause explains its consequences after its end: a backlog of an outage is worked off."""
DIAGNOSES_MAX: Final = 50
"""Places of one cause, such as the sources on hold, can be many."""

Place = tuple[str, OperatorName | None, int | None, ClusterName | None]
"""Code, step, slot and cluster."""


class _Found(msgspec.Struct):
    rule: Rule
    since_s: float
    last_s: float
    diagnosis: Diagnosis


class Diagnoser:
    """Diagnoses one pipeline; it remembers since when it has found what."""

    def __init__(self, rules: Sequence[Rule] = RULES) -> None:
        self._rules = rules
        self._found: dict[Place, _Found] = {}
        self.explained: frozenset[str] = frozenset()
        """The consequences of what was found last, which are not shown."""

    def diagnose(self, facts: Facts) -> tuple[Diagnosis, ...]:
        """Returns what is wrong, the most important first. Called about once a second, with growing times."""
        situation, now = Situation(facts), facts.at_s
        for rule in self._rules:
            for cause in rule.find(situation):
                self._note(rule, cause, now)
        self._found = {place: one for place, one in self._found.items() if now - one.last_s <= _kept_s(one.rule)}
        self.explained = frozenset(code for one in self._found.values() for code in one.rule.explains)
        shown = [
            one
            for one in self._found.values()
            if one.rule.code not in self.explained
            and one.last_s - one.since_s >= one.rule.after_s
            and (one.last_s == now or (facts.flows and now - one.last_s <= one.rule.linger_s))
        ]
        order = {rule.code: number for number, rule in enumerate(self._rules)}
        shown.sort(key=lambda one: (one.diagnosis.severity is DiagnosisSeverity.NOTICE, order[one.rule.code]))
        return tuple(one.diagnosis for one in shown[:DIAGNOSES_MAX])

    def _note(self, rule: Rule, cause: FoundCause, now: float) -> None:
        diagnosis = Diagnosis(
            code=rule.code,
            severity=cause.severity or rule.severity,
            sentence=cause.sentence,
            remedy=cause.remedy or rule.remedy,
            step=cause.step,
            slot=cause.slot,
            cluster=cause.cluster,
            evidence=cause.evidence,
        )
        place = (rule.code, cause.step, cause.slot, cause.cluster)
        before = self._found.get(place)
        unbroken = before is not None and now - before.last_s <= max(rule.linger_s, BREAK_S)
        since_s = before.since_s if before is not None and unbroken else now
        self._found[place] = _Found(rule, since_s, now, diagnosis)


BREAK_S: Final = 3.0
"""A cause that is not found for this long has ended; the next time it counts anew."""


def _kept_s(rule: Rule) -> float:
    return max(rule.linger_s, EXPLAINS_S if rule.explains else BREAK_S)


logger = logging.getLogger(__name__)

EVERY_S: Final = 1.0
LOGGED: Final = frozenset(rule.code for rule in RULES if rule.logged)


class DiagnosedMetrics(Protocol):
    """The metrics of a pipeline."""

    def observe(self) -> Observation:
        """Returns what the metrics hold now."""

    def diagnosed(self, diagnoses: Sequence[Diagnosis]) -> None:
        """Sets what is wrong now."""


class DiagnosisWatch:
    """The diagnoses of one daemon. `elapsed` returns monotonic seconds; all methods are called on one thread."""

    def __init__(
        self, metrics: DiagnosedMetrics, limits: CheckpointLimits, plan: PlanFacts, elapsed: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._recorder = Recorder(limits, plan)
        self._diagnoser = Diagnoser()
        self._elapsed = elapsed
        self._looked_s: float | None = None
        self._told: dict[str, Diagnosis] = {}
        self._rule_failed = False

    def clock_was_set(self, step_s: float) -> None:
        """Records that the wall clock of this machine was set."""
        self._recorder.clock_was_set(self._elapsed(), step_s)

    def look(self) -> None:
        """Diagnoses the pipeline, at most once a second. It may be called more often."""
        now = self._elapsed()
        if self._looked_s is not None and now - self._looked_s < EVERY_S:
            return
        self._looked_s = now
        try:
            diagnoses = self._diagnoser.diagnose(self._recorder.record(now, self._metrics.observe()))
        except Exception:  # a wrong rule must not stop the loop that calls it
            if not self._rule_failed:
                logger.exception("internal error in the diagnosis: the pipeline continues without it")
            self._rule_failed, diagnoses = True, ()
        self._metrics.diagnosed(diagnoses)
        self._tell(diagnoses)

    def _tell(self, diagnoses: Sequence[Diagnosis]) -> None:
        """Logs one line when a problem begins and one when it ends. One that another explains has not ended."""
        problems = {one.code: one for one in reversed(diagnoses) if one.severity is DiagnosisSeverity.PROBLEM}
        problems |= {
            code: one for code, one in self._told.items() if code in self._diagnoser.explained - problems.keys()
        }
        for code, one in problems.items():
            if code not in self._told and code not in LOGGED:
                logger.warning("%s: %s; %s", code, one.sentence, one.remedy)
        for code in self._told.keys() - problems.keys() - LOGGED:
            logger.info("%s: resolved", code)
        self._told = problems
