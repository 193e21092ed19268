"""Transactional ids: `<pipeline>.<sink>.<subtask>.<attempt>-<journal>.<pool slot>`. Pure.

The token of the journal is part of the id, so that two checkpoint directories never share one (ADR 20). A pipeline's
name may contain dots, a sink's name may not. An id is therefore parsed from its right end, and two pipelines never
touch each other's transactions even if one name is a prefix of the other.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tidegate.ids import Attempt, OperatorName, SlotIndex, TransactionalId

_NUMBER: Final = r"(0|[1-9][0-9]*)"
_ID: Final = re.compile(rf"(.+)\.([^.]+)\.{_NUMBER}\.{_NUMBER}-([^.]+)\.{_NUMBER}", re.ASCII)

_REPLAY: Final = ".dead-letters"


class TransactionalName(msgspec.Struct, frozen=True):
    """The parts of a transactional id."""

    pipeline: str
    sink: OperatorName
    subtask: SlotIndex
    attempt: Attempt
    journal: str
    """Token of the journal."""
    pool_slot: int

    @property
    def transactional_id(self) -> TransactionalId:
        """The id as Kafka knows it."""
        if not self.sink or "." in self.sink:
            raise ValueError(f"a sink's name may not be empty or contain a dot: {self.sink!r}")
        return TransactionalId(
            f"{self.pipeline}.{self.sink}.{self.subtask}.{self.attempt}-{self.journal}.{self.pool_slot}"
        )


def derive_name(transactional_id: str) -> TransactionalName | None:
    """Parses an id. Returns None if it does not have our form and so is not ours."""
    found = _ID.fullmatch(transactional_id)
    if found is None:
        return None
    pipeline, sink, subtask, attempt, journal, pool_slot = found.groups()
    return TransactionalName(
        pipeline, OperatorName(sink), SlotIndex(int(subtask)), Attempt(int(attempt)), journal, int(pool_slot)
    )


def replay_id(pipeline: str) -> TransactionalId:
    """Returns the transactional id of `tidegate dead-letters replay`."""
    return TransactionalId(f"{pipeline}{_REPLAY}")


def is_replay(transactional_id: str) -> bool:
    """Returns whether the id is the replay id of any pipeline."""
    return transactional_id.endswith(_REPLAY)
