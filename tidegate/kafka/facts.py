"""Broker responses about transactions as values, so that no Kafka strings or error numbers cross package boundaries."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from tidegate.ids import ProducerId, TopicPartition, TransactionalId


class CoordinatorState(Enum):
    """State of a transactional id at its coordinator. The values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    UNKNOWN = "Unknown"


class EndAnswer(Enum):
    """The coordinator's final response to EndTxn(commit), version at most 4."""

    ENDED = "ended"
    """Committed now, or by an earlier request of the same producer id and epoch."""
    FENCED = "fenced"
    """A newer epoch exists: the transaction timed out, was fenced, or was committed and the id initialised again."""
    INVALID_STATE = "invalid state"
    """Same epoch, but no open transaction: aborted, or never begun."""
    UNKNOWN_PRODUCER = "unknown producer"
    """Another producer id, or the transactional id is unknown or has expired."""
    NOT_AUTHORIZED = "not authorized"
    REJECTED = "rejected"
    """Any other final error."""
    NO_ANSWER = "no answer"
    """No final response before the deadline."""


TRANSACTION_LOG: Final = "__transaction_state"
"""Kafka's internal topic. The leader of one of its partitions coordinates the transactional ids in that partition."""


class Leader(msgspec.Struct, frozen=True):
    """The leader of a partition."""

    node: int
    """-1: no leader."""
    epoch: int
    """Increases with every change of leader."""


class Marker(Enum):
    """How a transaction ended in one partition, according to the control record in the partition."""

    COMMIT = "commit"
    ABORT = "abort"
    OPEN = "open"
    """No marker up to the high watermark."""
    GONE = "gone"
    """The log no longer contains the start of the transaction: retention, deleted records, or a recreated topic."""


class TransactionDescription(msgspec.Struct, frozen=True):
    """The coordinator's description of a transactional id."""

    state: CoordinatorState
    producer: ProducerId
    timeout_ms: int
    opened_at_ms: int
    """The broker's start time of the transaction, in ms since 1970; -1 if none is open."""
    partitions: frozenset[TopicPartition]


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id and its state."""

    transactional_id: TransactionalId
    producer_id: int
    state: CoordinatorState


class ProducerProgress(msgspec.Struct, frozen=True):
    """What the leader of a partition has counted for one producer."""

    start_offset: int
    """First offset of the open transaction; -1 if none is open."""
    records: int
    """Last sequence + 1. Exact, because an epoch starts at sequence 0 and the leader rejects gaps after the first
    batch.
    """


class OpenBrokerTransaction(msgspec.Struct, frozen=True):
    """A transaction without a marker in a partition, as its leader reports it. Only the producer identifies its owner.

    If the epoch was raised while the transaction was open, `producer` has the newer epoch.
    """

    partition: TopicPartition
    producer: ProducerId
    start_offset: int
    """Offset of its first record. Read-committed readers cannot advance past it."""
    coordinator_epoch: int
    """Coordinator epoch of this producer's last marker in the partition; -1 without one."""


class LoggedRange(msgspec.Struct, frozen=True):
    """Consecutive data records of one transaction in a partition."""

    first_offset: int
    next_offset: int
    """The offset after the last record."""
    records: int


class PreparedView(msgspec.Struct, frozen=True):
    """The broker state that a prepare needs."""

    description: TransactionDescription | None
    progress: dict[TopicPartition, ProducerProgress]
    end_offsets: dict[TopicPartition, int]
    """High watermarks after the flush, so behind the last record of the transaction."""


class TopicLimits(msgspec.Struct, frozen=True):
    """Limits of a topic on records. None: no limit, or the user may not see it."""

    batch_bytes: int | None = None
    """`max.message.bytes`: the size of a batch as it arrives."""
    before_ms: int | None = None
    """How much older than the broker's time a timestamp may be."""
    after_ms: int | None = None
    """How much newer than the broker's time a timestamp may be."""
    compacted: bool = False
    """The topic rejects records without a key."""
    codec: str = "producer"
    """The codec with which the broker compresses batches; `producer` leaves them unchanged."""


class TopicFacts(msgspec.Struct, frozen=True):
    """Identity and partition count of a topic."""

    topic_id: str
    """Changes when a topic is deleted and created again."""
    partitions: int
