"""From facts to diagnoses: rules find causes, and a cause hides its consequences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.daemon.diagnosis.facts import Facts
from tidegate.daemon.diagnosis.rule import FoundCause, Rule
from tidegate.daemon.diagnosis.rules import RULES
from tidegate.daemon.diagnosis.situation import Situation
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

    def diagnose(self, facts: Facts) -> tuple[Diagnosis, ...]:
        """Returns what is wrong, the most important first. Called about once a second, with growing times."""
        situation, now = Situation(facts), facts.at_s
        for rule in self._rules:
            for cause in rule.find(situation):
                self._note(rule, cause, now)
        self._found = {place: one for place, one in self._found.items() if now - one.last_s <= _kept_s(one.rule)}
        hidden = {code for one in self._found.values() for code in one.rule.explains}
        shown = [
            one
            for one in self._found.values()
            if one.rule.code not in hidden
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
