"""The bounded pool of transactional ids of one sink subtask. Pure.

A producer serves one transaction, so every transaction gets a freshly initialised one. An id may be initialised again
only when the outcome of its last transaction is on record: initialising aborts an open transaction, and makes a
committed one look fenced. `LIFE` has the steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tidegate.coordinator.story import Story
from tidegate.ids import CheckpointId, TransactionalId


class TransactionState(StrEnum):
    """The state of a transactional id, from its first producer to its release.

    The pool tracks the state of every id by the table `LIFE`; `kafka.py` is the edge that carries out the steps.
    docs/states.md shows the table as a diagram generated from it.
    """

    FREE = "no producer has the id"
    OPENING = "a producer is being initialised"
    WARM = "its producer waits for records"
    WRITING = "records go into its transaction"
    FLUSHING = "its barrier has arrived, and it is flushed and proven"
    PREPARED = "its transaction is a committable whose outcome is not recorded yet"


class TransactionStep(StrEnum):
    """A step that moves an id to another state."""

    TAKEN = "a producer is wanted"
    OPENED = "the producer is initialised"
    REOPENED = "it was idle for so long that it is reopened"
    BEGUN = "records begin"
    BARRIER = "the barrier arrives"
    PROVEN = "the brokers have counted all records"
    RELEASED = "a later checkpoint completed without it"


LIFE: Final[dict[tuple[TransactionState, TransactionStep], TransactionState]] = {
    (TransactionState.FREE, TransactionStep.TAKEN): TransactionState.OPENING,
    (TransactionState.OPENING, TransactionStep.OPENED): TransactionState.WARM,
    (TransactionState.WARM, TransactionStep.REOPENED): TransactionState.OPENING,
    (TransactionState.WARM, TransactionStep.BEGUN): TransactionState.WRITING,
    (TransactionState.WRITING, TransactionStep.BARRIER): TransactionState.FLUSHING,
    (TransactionState.FLUSHING, TransactionStep.PROVEN): TransactionState.PREPARED,
    (TransactionState.PREPARED, TransactionStep.RELEASED): TransactionState.FREE,
}
"""Any missing pair is impossible and raises ProtocolBroken. A transaction that cannot be proven ends the attempt, and
with it the table.
"""

HELD: Final = frozenset({TransactionState.FLUSHING, TransactionState.PREPARED})
"""States in which the id takes no records until it is released."""


POOL_SIZE: Final = 4
"""One id each for writing, prepared, ending and warming."""
DELAY_MS: Final = 500
"""How much longer than usual openings, commits and notices may take before rows wait for a producer."""
WARM: Final = 2
WARM_MAX: Final = 4
WARM_MS: Final = 200
"""An opening may take this long without making rows wait, several times the 18 ms of brokers nearby and at rest."""
POOL_SIZE_MAX: Final = 64
"""Limit of the growth while consecutive checkpoints are aborted after their prepare."""


def derive_pool_size(interval_ms: int, max_concurrent: int = 1) -> int:
    """Returns how many ids a checkpoint interval needs, with one more for every additional concurrent checkpoint.

    An id is held until the next checkpoint after its own has completed, and a late commit holds it longer. Below 500 ms
    more are needed: otherwise a delay of one checkpoint leaves the next without a producer, which delays that one too.
    """
    for_one = max(POOL_SIZE, 3 + math.ceil(DELAY_MS / max(interval_ms, 1)))
    return min(POOL_SIZE_MAX, for_one + max_concurrent - 1)


def derive_warm(interval_ms: int) -> int:
    """Returns how many producers are initialised ahead, and wait for records."""
    return min(WARM_MAX, max(WARM, 1 + math.ceil(WARM_MS / max(interval_ms, 1))))


class IdPool:
    """The ids of one subtask and their states. Raises ProtocolBroken, with its story, for a step that the table lacks.

    `spare` ids are added, one at a time, when every id holds a transaction of a checkpoint that did not complete: the
    next checkpoint needs a transaction of its own to carry them all.
    """

    def __init__(self, ids: Iterable[TransactionalId], spare: Iterable[TransactionalId] = (), warm: int = WARM) -> None:
        self.warm = warm
        """How many producers should wait for records."""
        self._states = dict.fromkeys(ids, TransactionState.FREE)
        self._spare = iter(spare)
        self._checkpoints: dict[TransactionalId, CheckpointId] = {}
        self._story = Story()

    def take(self) -> TransactionalId | None:
        """Returns an id to open now; None if those that are open or opening must suffice."""
        for transactional_id, state in self._states.items():
            if state is TransactionState.FREE:
                self._move(transactional_id, TransactionStep.TAKEN)
                return transactional_id
        if sum(map(self.count, HELD)) < len(self._states):
            return None
        added = next(self._spare, None)
        if added is not None:
            self._states[added] = TransactionState.FREE
            self._move(added, TransactionStep.TAKEN)
        return added

    def opened(self, transactional_id: TransactionalId) -> None:
        """Records that the producer of the id is initialised."""
        self._move(transactional_id, TransactionStep.OPENED)

    def reopened(self, transactional_id: TransactionalId) -> None:
        """Records that its producer is reopened after a long idle time."""
        self._move(transactional_id, TransactionStep.REOPENED)

    def begun(self, transactional_id: TransactionalId) -> None:
        """Records that its transaction receives records from now on."""
        self._move(transactional_id, TransactionStep.BEGUN)

    def barrier(self, transactional_id: TransactionalId, checkpoint: CheckpointId) -> None:
        """Assigns the id's transaction to `checkpoint`; it takes no more records."""
        self._move(transactional_id, TransactionStep.BARRIER)
        self._checkpoints[transactional_id] = checkpoint

    def proven(self, transactional_id: TransactionalId) -> None:
        """Records that its transaction is proven complete: a committable."""
        self._move(transactional_id, TransactionStep.PROVEN)

    def released(self, transactional_id: TransactionalId, checkpoint: CheckpointId) -> bool:
        """Frees the id if `checkpoint` completed without listing its transaction. Returns whether the id became free.

        The entry of the id's own checkpoint always lists it, so only a later one can release it: a late or repeated
        notice about an earlier transaction of the same id has no effect.
        """
        held = self._states.get(transactional_id) in HELD
        if not held or self._checkpoints[transactional_id] >= checkpoint:
            return False
        self._move(transactional_id, TransactionStep.RELEASED)
        del self._checkpoints[transactional_id]
        return True

    def count(self, state: TransactionState) -> int:
        """Returns how many ids are in a state."""
        return sum(1 for found in self._states.values() if found is state)

    def _move(self, transactional_id: TransactionalId, step: TransactionStep) -> None:
        before = self._states[transactional_id]
        after = LIFE.get((before, step))
        if after is None:
            raise self._story.broken(f"{transactional_id} is {before.name} when {step}")
        self._story.tell(f"{transactional_id}: {step}")
        self._states[transactional_id] = after
