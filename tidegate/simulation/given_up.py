"""Checks that others learn when a subtask gives up a checkpoint: the coordinator by a decline, receivers by a marker.

Both only save time, so the output is correct without them. Their absence must be detected here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from tidegate.ids import Attempt, CheckpointId, SubtaskId
from tidegate.simulation.faults import Fault

HEARD_S: Final = 1.0
"""A decline takes less than this to arrive, unless a fault delays it."""
DISTURBING: Final = frozenset({"partition", "freeze", "replace"})
"""Faults that may delay a message that has been sent."""
ACKS: Final = "slot.ack"
"""The point at which declines are also lost."""

Key = tuple[Attempt, CheckpointId]


class GivenUp:
    """The checkpoints given up in one world. Each check returns what is wrong."""

    def __init__(self, *, aligned: bool) -> None:
        """`aligned`: no barrier overtakes, so a marker precedes the next barrier on its channel."""
        self._aligned = aligned
        self._since: dict[Key, float] = {}
        self._due: defaultdict[Key, set[int]] = defaultdict(set)
        self._arrived: defaultdict[Key, set[int]] = defaultdict(set)
        self._unsent: defaultdict[tuple[Attempt, SubtaskId], dict[CheckpointId, set[int]]] = defaultdict(dict)

    def given_up(self, attempt: Attempt, checkpoint: CheckpointId, now: float) -> None:
        """Notes a checkpoint given up by a part whose decline only the coordinator receives."""
        self._since.setdefault((attempt, checkpoint), now)

    def declined(
        self, attempt: Attempt, subtask: SubtaskId, checkpoint: CheckpointId, now: float, edges: Collection[int]
    ) -> None:
        """Notes a checkpoint given up by a subtask, whose receivers are at the other ends of these edges."""
        self.given_up(attempt, checkpoint, now)
        self._due[attempt, checkpoint].update(edges)
        self._unsent[attempt, subtask][checkpoint] = set(edges)

    def marker_sent(self, attempt: Attempt, subtask: SubtaskId, checkpoint: CheckpointId, edge: int) -> None:
        """Notes that a cancellation was sent to all receivers of an edge."""
        self._unsent[attempt, subtask].get(checkpoint, set()).discard(edge)

    def check_sent(self, attempt: Attempt, subtask: SubtaskId) -> list[str]:
        """Checks that a subtask which sends anything else has already sent its cancellations."""
        unsent = self._unsent.pop((attempt, subtask), {})
        return [
            f"{subtask} has given up checkpoint {checkpoint} and sent no cancellation on edges {sorted(edges)}"
            for checkpoint, edges in unsent.items()
            if edges
        ]

    def marker_arrived(self, attempt: Attempt, checkpoint: CheckpointId, edge: int) -> None:
        """Notes that a cancellation has arrived."""
        self._arrived[attempt, checkpoint].add(edge)

    def check_expired(
        self, attempt: Attempt, checkpoint: CheckpointId, now: float, fired: Iterable[Fault]
    ) -> list[str]:
        """Checks a checkpoint whose timeout has expired in the coordinator."""
        since = self._since.get((attempt, checkpoint), now)
        if now - since <= HEARD_S or any(fault.kind in DISTURBING or fault.point == ACKS for fault in fired):
            return []
        return [f"checkpoint {checkpoint} was given up {now - since:.1f} s before its timeout, and was not reported"]

    def check_completed(self, attempt: Attempt, checkpoint: CheckpointId) -> list[str]:
        """Checks that cancellations have arrived before every barrier of a later checkpoint."""
        if not self._aligned:
            return []
        older = [key for key in self._due if key[0] == attempt and key[1] < checkpoint]
        missing = {key[1]: self._due.pop(key) - self._arrived.pop(key, set()) for key in older}
        return [
            f"no cancellation of checkpoint {one} has come on edges {sorted(edges)}, but checkpoint {checkpoint} has"
            for one, edges in missing.items()
            if edges
        ]
