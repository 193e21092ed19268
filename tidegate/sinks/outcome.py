"""Decides how a committable ended, from the broker's answers. Pure.

The essential rule: a committed transaction looks "fenced", "empty" or "unknown" to its coordinator after any
re-initialisation of its id. So a refusal alone proves nothing, and *only an abort marker* in a partition proves that a
transaction is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from tidegate.kafka.facts import EndAnswer, Marker


class CommitOutcome(Enum):
    """The outcome of a committable after a request to end it."""

    ENDED_NOW = "ended now"
    """The coordinator accepted the commit (or confirmed that it had accepted it)."""
    COMMITTED = "committed"
    """The coordinator refuses, but a commit marker exists: committed earlier."""
    STILL_OPEN = "still open"
    """Not final: ask again."""
    LOST = "lost"
    """An abort marker exists."""
    GONE = "gone"
    """Nothing of it is left: retention has removed its records and markers. Only the user can decide."""
    ACCEPTED = "accepted as gone"
    """As GONE, but the user has decided that it counts as committed."""
    UNDECIDABLE = "undecidable"
    """One partition has a commit marker, another an abort marker. Only the user can decide."""

    @property
    def committed(self) -> bool:
        """Whether its records are visible to read-committed readers, will be once the markers are written, or count as
        such.
        """
        return self in (CommitOutcome.ENDED_NOW, CommitOutcome.COMMITTED, CommitOutcome.ACCEPTED)


def decide_from_answer(answer: EndAnswer) -> CommitOutcome | None:
    """Decides from the coordinator's answer alone. Returns None if the markers must be read."""
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
    """Decides from the markers of all partitions of a refused transaction.

    Its coordinator decides once for all partitions and then writes one marker after another, so one marker is enough.
    Missing markers will follow (or are lost, which `hanging_transactions.py` detects), and markers that retention has
    removed had the same type. Without any marker, the caller waits. A commit marker next to an abort marker is
    corruption.
    """
    seen = set(markers)
    if {Marker.COMMIT, Marker.ABORT} <= seen:
        return CommitOutcome.UNDECIDABLE
    if Marker.COMMIT in seen:
        return CommitOutcome.COMMITTED
    if Marker.ABORT in seen:
        return CommitOutcome.LOST
    return CommitOutcome.STILL_OPEN if Marker.OPEN in seen else CommitOutcome.GONE
