"""The bounded pool of transactional ids of one sink subtask. Pure.

One (producer id, epoch) is one transaction, so every transaction gets a freshly initialised producer, and an id may
be initialised again only when the outcome of its last transaction is on record: initialising aborts what is open, and
makes a committed transaction look fenced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import Final

from tidegate.ids import CheckpointId, TransactionalId

POOL_SIZE: Final = 4
"""Writing, prepared, ending, warming."""
OPENING_MS: Final = 85
"""Time to open a producer, with a margin over the 57 ms that were measured."""


POOL_SIZE_MAX: Final = 64
"""Bound of the growth while checkpoint after checkpoint is given up behind its prepare."""


def derive_pool_size(interval_ms: int, concurrent: int = 1) -> int:
    """How many ids a checkpoint interval needs: more below 100 ms, where opening takes longer than an interval, and
    one more for every further checkpoint that may be under way.
    """
    for_one = max(POOL_SIZE, 3 + math.ceil(OPENING_MS / max(interval_ms, 1)))
    return min(POOL_SIZE_MAX, for_one + concurrent - 1)


class SlotState(Enum):
    """Life of one id."""

    FREE = "free"
    OPENING = "opening"
    OPEN = "open"
    """Warm or writing."""
    PREPARED = "prepared"
    """Its transaction is a committable whose end is not on record."""


class IdPool:
    """Which ids may be initialised. Raises ValueError, with the id's state, for a step that is out of order.

    `spare` ids are added, one at a time, when every id holds a committable of a checkpoint that did not complete:
    the next checkpoint needs a transaction of its own to carry them all.
    """

    def __init__(self, ids: Iterable[TransactionalId], spare: Iterable[TransactionalId] = ()) -> None:
        self._states = dict.fromkeys(ids, SlotState.FREE)
        self._spare = iter(spare)
        self._checkpoints: dict[TransactionalId, CheckpointId] = {}

    def take(self) -> TransactionalId | None:
        """An id to be opened now; None when the ones that are open or being opened must do."""
        for transactional_id, state in self._states.items():
            if state is SlotState.FREE:
                self._states[transactional_id] = SlotState.OPENING
                return transactional_id
        if self.count(SlotState.PREPARED) < len(self._states):
            return None
        added = next(self._spare, None)
        if added is not None:
            self._states[added] = SlotState.OPENING
        return added

    def opened(self, transactional_id: TransactionalId) -> None:
        """The producer of the id is initialised."""
        self._move(transactional_id, SlotState.OPENING, SlotState.OPEN)

    def reopening(self, transactional_id: TransactionalId) -> None:
        """Its producer was not used for so long that it is opened anew."""
        self._move(transactional_id, SlotState.OPEN, SlotState.OPENING)

    def prepared(self, transactional_id: TransactionalId, checkpoint: CheckpointId) -> None:
        """The id's transaction belongs to `checkpoint` and takes no more records."""
        self._move(transactional_id, SlotState.OPEN, SlotState.PREPARED)
        self._checkpoints[transactional_id] = checkpoint

    def released(self, transactional_id: TransactionalId, checkpoint: CheckpointId) -> bool:
        """`checkpoint` completed and its journal entry does not list the id's transaction; whether the id got free.

        The entry of the id's own checkpoint always lists it, so only a later one can release it: a late or repeated
        notice about an earlier transaction of the same id changes nothing.
        """
        prepared = self._states.get(transactional_id) is SlotState.PREPARED
        if not prepared or self._checkpoints[transactional_id] >= checkpoint:
            return False
        self._states[transactional_id] = SlotState.FREE
        del self._checkpoints[transactional_id]
        return True

    def count(self, state: SlotState) -> int:
        """How many ids are in a state."""
        return sum(1 for found in self._states.values() if found is state)

    def _move(self, transactional_id: TransactionalId, expected: SlotState, to: SlotState) -> None:
        state = self._states[transactional_id]
        if state is not expected:
            raise ValueError(f"{transactional_id} is {state.value}, not {expected.value}: it cannot become {to.value}")
        self._states[transactional_id] = to
