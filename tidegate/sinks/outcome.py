"""How a committable ended, decided from what the broker says. Pure.

The rule that everything hangs on: a committed transaction looks "fenced", "empty" or "unknown" to its coordinator
after any re-initialisation of its id. So a refusal alone says nothing, and *lost may be concluded only from an abort
marker* in a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tidegate.kafka.facts import EndAnswer, Marker


class CommitOutcome(Enum):
    """What is known about a committable after asking for its end."""

    ENDED_NOW = "ended now"
    """The coordinator took the commit (or confirmed that it had taken it)."""
    COMMITTED = "committed"
    """The coordinator refuses, but a commit marker is there: committed earlier."""
    STILL_OPEN = "still open"
    """Not final: ask again."""
    LOST = "lost"
    """An abort marker is there."""
    GONE = "gone"
    """Nothing of it is left anywhere: retention has removed its records and markers. Only a person can decide."""
    ACCEPTED = "accepted as gone"
    """The same, and a person has decided that it counts as committed."""
    UNDECIDABLE = "undecidable"
    """One partition says commit, another abort: only a person can decide."""

    @property
    def committed(self) -> bool:
        """The records are, or will be once the markers are written, visible to read-committed readers; or they count
        as if they were.
        """
        return self in (CommitOutcome.ENDED_NOW, CommitOutcome.COMMITTED, CommitOutcome.ACCEPTED)


def decide_from_answer(answer: EndAnswer) -> CommitOutcome | None:
    """What the coordinator's answer alone decides; None: the markers must be read."""
    match answer:
        case EndAnswer.ENDED:
            return CommitOutcome.ENDED_NOW
        case EndAnswer.NO_ANSWER:
            return CommitOutcome.STILL_OPEN
        case EndAnswer.FENCED | EndAnswer.INVALID_STATE | EndAnswer.UNKNOWN_PRODUCER:
            return None
        case EndAnswer.NOT_AUTHORIZED | EndAnswer.REJECTED:
            return None


def decide_from_markers(markers: Sequence[Marker]) -> CommitOutcome:
    """What the markers of all partitions of a refused transaction decide.

    Its coordinator decides once for all of them and then writes one marker after the other, so one is enough: markers
    that are not there yet will come (or are lost, which `hanging_transactions.py` looks for), and those that retention
    has removed said the same. Without any marker it is waited for. Commit beside abort is damage.
    """
    seen = set(markers)
    if {Marker.COMMIT, Marker.ABORT} <= seen:
        return CommitOutcome.UNDECIDABLE
    if Marker.COMMIT in seen:
        return CommitOutcome.COMMITTED
    if Marker.ABORT in seen:
        return CommitOutcome.LOST
    return CommitOutcome.STILL_OPEN if Marker.OPEN in seen else CommitOutcome.GONE
