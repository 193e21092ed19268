"""Identifiers are types: no bare int or str crosses a room.

Every module may import this one; it imports nothing of Tidegate.
"""

from __future__ import annotations

from typing import NewType

import msgspec

CheckpointId = NewType("CheckpointId", int)
"""Grows by at least one per trigger, also across daemons (C10, B13). The first is 1."""

_DIGITS_MAX = 4000
"""Python makes no number of much more."""


def is_checkpoint_number(text: str) -> bool:
    """Whether somebody who names a checkpoint or a savepoint means the number of one."""
    return len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()


Attempt = NewType("Attempt", int)
"""One deployment of the whole graph. Each starts with a `takeover` entry in the journal, so the number grows across
daemons too and an older attempt can decide nothing any more (ADR 2). The first is 1."""

SlotIndex = NewType("SlotIndex", int)
"""0 .. parallelism - 1; slot i runs subtask i of every vertex (slot sharing)."""

VertexId = NewType("VertexId", str)
"""Name of a chain of operators that runs in one piece: the name of its first operator."""

OperatorName = NewType("OperatorName", str)
"""The user's name of a source, step or sink."""

StateName = NewType("StateName", str)
"""One state of an operator, named by its declaration: lower-case letters, digits and underscores."""

TransactionalId = NewType("TransactionalId", str)
"""`<pipeline>.<sink>.<subtask>.<attempt>-<journal>.<pool slot>`, see `sinks/naming.py`."""

JournalSequence = NewType("JournalSequence", int)
"""Number of a journal entry; the first is 0."""


class SubtaskId(msgspec.Struct, frozen=True, order=True):
    """One parallel instance of a vertex."""

    vertex: VertexId
    index: SlotIndex

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"


class ProducerId(msgspec.Struct, frozen=True, order=True):
    """A producer as brokers know it. One (id, epoch) is one transaction: each has a producer of its own."""

    id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.id} epoch {self.epoch}"


NO_PRODUCER = ProducerId(-1, -1)
"""Who writes without a transactional id, or has not been initialised."""


class StateId(msgspec.Struct, frozen=True, order=True):
    """One state of one operator."""

    operator: OperatorName
    name: StateName

    def __str__(self) -> str:
        return f"{self.operator}.{self.name}"


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A Kafka partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"
