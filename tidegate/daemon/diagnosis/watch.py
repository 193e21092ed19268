"""Diagnoses the pipeline of a daemon once a second: for `/status`, the metrics and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidegate.daemon.diagnosis.diagnoser import Diagnoser
from tidegate.daemon.diagnosis.facts import CheckpointLimits, Observation, PlanFacts, Recorder
from tidegate.daemon.diagnosis.rules import RULES
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity

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
        """Logs one line when a problem begins and one when it ends."""
        problems = {one.code: one for one in reversed(diagnoses) if one.severity is DiagnosisSeverity.PROBLEM}
        for code, one in problems.items():
            if code not in self._told and code not in LOGGED:
                logger.warning("%s: %s; %s", code, one.sentence, one.remedy)
        for code in self._told.keys() - problems.keys() - LOGGED:
            logger.info("%s: no longer", code)
        self._told = problems
