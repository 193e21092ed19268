"""The life of a transaction in a sink subtask, as a table: a transactional id from a first producer to its release.

Pure. `pool.py` keeps the state of every id and moves it by this table; `kafka.py` is the edge that does what a step
stands for. docs/states.md shows the table as a diagram, which is made from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TransactionState(StrEnum):
    """Where an id is."""

    FREE = "no producer has the id"
    OPENING = "a producer is being initialised"
    WARM = "its producer waits for records"
    WRITING = "records go into its transaction"
    FLUSHING = "its barrier has come, and it is flushed and proven whole"
    PREPARED = "its transaction is a committable whose end is not on record"


class TransactionStep(StrEnum):
    """What moves an id to another state."""

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
"""Every pair that is missing is impossible and raises ProtocolBroken. A transaction that cannot be proven ends the
attempt, and with it the table."""

HELD: Final = frozenset({TransactionState.FLUSHING, TransactionState.PREPARED})
"""The id takes no records before it is released."""
