"""The life of a transaction in a sink subtask, as a table: a transactional id from its first producer to its release.

Pure. `pool.py` tracks the state of every id by this table; `kafka.py` is the edge that carries out the steps.
docs/states.md shows the table as a diagram generated from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TransactionState(StrEnum):
    """The state of a transactional id."""

    FREE = "no producer has the id"
    OPENING = "a producer is being initialised"
    WARM = "its producer waits for records"
    WRITING = "records go into its transaction"
    FLUSHING = "its barrier has come, and it is flushed and proven whole"
    PREPARED = "its transaction is a committable whose end is not on record"


class TransactionStep(StrEnum):
    """A step that moves an id to another state."""

    TAKEN = "a producer is wanted"
    OPENED = "the producer is initialised"
    REOPENED = "it was idle for so long that it is reopened"
    BEGUN = "records begin"
    BARRIER = "the barrier comes"
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
