"""How a committable ended, decided from what the broker says. Pure.

The rule that everything hangs on: a committed transaction looks "fenced", "empty" or "unknown" to its coordinator
after any re-initialisation of its id. So a refusal alone says nothing, and *lost may be concluded only from abort
markers* in the partitions themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tidegate.sinks.facts import EndAnswer, Marker


class Outcome(Enum):
    """What is known about a committable after asking for its end."""

    ENDED_NOW = "ended now"
    """The coordinator took the commit (or confirmed that it had taken it)."""
    COMMITTED = "committed"
    """The coordinator refuses, but every partition has the commit marker: committed earlier."""
    STILL_OPEN = "still open"
    """Not final: ask again."""
    LOST = "lost"
    """Every partition has an abort marker."""
    UNDECIDABLE = "undecidable"
    """The partitions do not tell, or contradict each other: only a person can decide."""

    @property
    def committed(self) -> bool:
        """The records are, or will be once the markers are written, visible to read-committed readers."""
        return self in (Outcome.ENDED_NOW, Outcome.COMMITTED)


def decide_from_answer(answer: EndAnswer) -> Outcome | None:
    """What the coordinator's answer alone decides; None: the markers must be read."""
    match answer:
        case EndAnswer.ENDED:
            return Outcome.ENDED_NOW
        case EndAnswer.NO_ANSWER:
            return Outcome.STILL_OPEN
        case EndAnswer.FENCED | EndAnswer.INVALID_STATE | EndAnswer.UNKNOWN_PRODUCER:
            return None
        case EndAnswer.NOT_AUTHORIZED | EndAnswer.REJECTED:
            return None


def decide_from_markers(markers: Sequence[Marker]) -> Outcome:
    """What the markers of all partitions of a refused transaction decide.

    Markers are written one partition after the other, so some may still be missing: that is not final. A start
    offset that is gone, or commit beside abort, is for a person.
    """
    seen = set(markers)
    if not seen or Marker.GONE in seen or {Marker.COMMIT, Marker.ABORT} <= seen:
        return Outcome.UNDECIDABLE
    if Marker.OPEN in seen:
        return Outcome.STILL_OPEN
    return Outcome.COMMITTED if seen == {Marker.COMMIT} else Outcome.LOST


def decide_outcome(answer: EndAnswer, markers: Sequence[Marker]) -> Outcome:
    """The whole table: the coordinator's answer, and the markers of every recorded partition where they were needed."""
    decided = decide_from_answer(answer)
    return decide_from_markers(markers) if decided is None else decided
