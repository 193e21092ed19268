"""Whether what a subtask gives up reaches those who wait for it: the coordinator by a decline, receivers by a marker.

Both only save time, so the output is right without them; that they are missing must be seen here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from tidegate.ids import Attempt, CheckpointId, SubtaskId
from tidegate.simulation.faults import Fault

HEARD_S: Final = 1.0
"""A decline is on its way for less, unless the way is disturbed."""
DISTURBING: Final = frozenset({"partition", "freeze", "replace"})
"""Faults that may hold up a message which its sender has sent."""
ACKS: Final = "slot.ack"
"""The point at which declines are lost, too."""

Key = tuple[Attempt, CheckpointId]


class GivenUp:
    """Of one world. Each question is answered with what is wrong, or with nothing."""

    def __init__(self, *, aligned: bool) -> None:
        """`aligned`: no barrier overtakes, so a marker is in front of the next one on its channel."""
        self._aligned = aligned
        self._since: dict[Key, float] = {}
        self._due: defaultdict[Key, set[int]] = defaultdict(set)
        self._arrived: defaultdict[Key, set[int]] = defaultdict(set)
        self._unsent: defaultdict[tuple[Attempt, SubtaskId], dict[CheckpointId, set[int]]] = defaultdict(dict)

    def given_up(self, attempt: Attempt, checkpoint: CheckpointId, now: float) -> None:
        """By somebody whose decline only the coordinator hears of."""
        self._since.setdefault((attempt, checkpoint), now)

    def declined(
        self, attempt: Attempt, subtask: SubtaskId, checkpoint: CheckpointId, now: float, edges: Collection[int]
    ) -> None:
        """By a subtask, whose receivers are at the other end of these edges."""
        self.given_up(attempt, checkpoint, now)
        self._due[attempt, checkpoint].update(edges)
        self._unsent[attempt, subtask][checkpoint] = set(edges)

    def marker_sent(self, attempt: Attempt, subtask: SubtaskId, checkpoint: CheckpointId, edge: int) -> None:
        """A cancellation, to all receivers of an edge."""
        self._unsent[attempt, subtask].get(checkpoint, set()).discard(edge)

    def check_sent(self, attempt: Attempt, subtask: SubtaskId) -> list[str]:
        """The subtask sends something else: it has done with what it had to give up."""
        unsent = self._unsent.pop((attempt, subtask), {})
        return [
            f"{subtask} has given up checkpoint {checkpoint} and sent no cancellation on edges {sorted(edges)}"
            for checkpoint, edges in unsent.items()
            if edges
        ]

    def marker_arrived(self, attempt: Attempt, checkpoint: CheckpointId, edge: int) -> None:
        """A cancellation."""
        self._arrived[attempt, checkpoint].add(edge)

    def check_expired(
        self, attempt: Attempt, checkpoint: CheckpointId, now: float, fired: Iterable[Fault]
    ) -> list[str]:
        """The coordinator has waited for a checkpoint in vain."""
        since = self._since.get((attempt, checkpoint), now)
        if now - since <= HEARD_S or any(fault.kind in DISTURBING or fault.point == ACKS for fault in fired):
            return []
        return [f"checkpoint {checkpoint} was given up {now - since:.1f} s before its time was over, unnoticed"]

    def check_completed(self, attempt: Attempt, checkpoint: CheckpointId) -> list[str]:
        """Every barrier of a later checkpoint has arrived everywhere."""
        if not self._aligned:
            return []
        older = [key for key in self._due if key[0] == attempt and key[1] < checkpoint]
        missing = {key[1]: self._due.pop(key) - self._arrived.pop(key, set()) for key in older}
        return [
            f"no cancellation of checkpoint {one} has come on edges {sorted(edges)}, but checkpoint {checkpoint} has"
            for one, edges in missing.items()
            if edges
        ]
