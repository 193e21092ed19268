"""Transactional ids: `<pipeline>.<sink>.<subtask>.<attempt>.<pool slot>`. Pure.

A pipeline's name may contain dots, a sink's name may not, so an id is read from its right end and two pipelines of
which one name begins with the other never touch each other's transactions.
"""

from __future__ import annotations

import msgspec

from tidegate.ids import Attempt, OperatorName, SlotIndex, TransactionalId


class TransactionalName(msgspec.Struct, frozen=True):
    """The parts of a transactional id."""

    pipeline: str
    sink: OperatorName
    subtask: SlotIndex
    attempt: Attempt
    pool_slot: int

    @property
    def transactional_id(self) -> TransactionalId:
        """The id as Kafka knows it."""
        if not self.sink or "." in self.sink:
            raise ValueError(f"a sink's name may not be empty or contain a dot: {self.sink!r}")
        return TransactionalId(f"{self.pipeline}.{self.sink}.{self.subtask}.{self.attempt}.{self.pool_slot}")


def derive_name(transactional_id: str) -> TransactionalName | None:
    """The parts of an id, or None when it does not have our form (then it is not ours)."""
    parts = transactional_id.rsplit(".", 4)
    if len(parts) != 5 or not parts[0] or not parts[1]:
        return None
    if not all(part.isascii() and part.isdigit() and str(int(part)) == part for part in parts[2:]):
        return None
    subtask, attempt, pool_slot = (int(part) for part in parts[2:])
    return TransactionalName(parts[0], OperatorName(parts[1]), SlotIndex(subtask), Attempt(attempt), pool_slot)
