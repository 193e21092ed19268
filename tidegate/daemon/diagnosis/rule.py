"""The contract of a rule: it finds one cause in a situation, and knows which consequences it explains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tidegate.daemon.diagnosis.situation import Situation
from tidegate.daemon.status import DiagnosisSeverity
from tidegate.ids import ClusterName, OperatorName


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
