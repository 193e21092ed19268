"""Identifiers as types: no bare int or str crosses a package boundary.

Every module may import this one; it imports nothing from Tidegate.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

import msgspec

CheckpointId = NewType("CheckpointId", int)
"""Grows by at least one per trigger, also across daemons (C10, B13). The first is 1."""

_DIGITS_MAX = 4000
"""Python converts no decimal text much longer than this to a number."""


def is_checkpoint_number(text: str) -> bool:
    """Returns whether the text that names a checkpoint or savepoint is a number."""
    return len(text) <= _DIGITS_MAX and text.isascii() and text.isdigit()


Attempt = NewType("Attempt", int)
"""One deployment of the whole graph. Each starts with a `takeover` entry in the journal, so the number also grows
across daemons, and an older attempt can no longer decide anything (ADR 2). The first is 1.
"""

SlotIndex = NewType("SlotIndex", int)
"""0 .. parallelism - 1; slot i runs subtask i of every vertex (slot sharing)."""

VertexId = NewType("VertexId", str)
"""Name of a chain of operators that run as one unit: the name of its first operator."""

OperatorName = NewType("OperatorName", str)
"""The user's name for a source, step or sink."""

ClusterName = NewType("ClusterName", str)
"""The user's name for a Kafka cluster. Two names may not stand for one cluster; Kafka's cluster id identifies it."""

MAIN_CLUSTER = ClusterName("kafka")
"""The cluster of `kafka:` at the top of the file, which sources and sinks use unless they name another one."""


def with_cluster(text: str, cluster: ClusterName) -> str:
    """Adds the cluster to a text about a topic, unless it is the main one: `orders in us`."""
    return text if cluster == MAIN_CLUSTER else f"{text} in {cluster}"


class SourceTopic(NamedTuple):
    """A topic that is read. Its name alone identifies no topic: two clusters may have topics of the same name."""

    cluster: ClusterName
    topic: str

    def __str__(self) -> str:
        return with_cluster(self.topic, self.cluster)


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
    """A producer as brokers know it. Each (id, epoch) stands for one transaction, since each has its own producer."""

    id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.id} epoch {self.epoch}"


NO_PRODUCER = ProducerId(-1, -1)
"""A writer without a transactional id, or one that has not been initialised."""


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
