"""What a broker says about transactions, as values: no strings or error numbers of Kafka cross a room."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from tidegate.ids import ProducerId, TopicPartition, TransactionalId


class CoordinatorState(Enum):
    """State of a transactional id at its coordinator. Values are Kafka's words."""

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
    """The coordinator's final answer to EndTxn(commit), version at most 4."""

    ENDED = "ended"
    """Committed now, or by an earlier request of the same producer id and epoch."""
    FENCED = "fenced"
    """A newer epoch exists: timed out, fenced - or committed and initialised again."""
    INVALID_STATE = "invalid state"
    """Same epoch, but nothing open: aborted, or never begun."""
    UNKNOWN_PRODUCER = "unknown producer"
    """Another producer id, or the transactional id is not known (any more)."""
    NOT_AUTHORIZED = "not authorized"
    REJECTED = "rejected"
    """Any other final error."""
    NO_ANSWER = "no answer"
    """Nothing final before the deadline."""


TRANSACTION_LOG: Final = "__transaction_state"
"""Kafka's own topic: who leads a partition of it coordinates the transactional ids in it."""


class Leader(msgspec.Struct, frozen=True):
    """Who leads a partition."""

    node: int
    """-1: nobody."""
    epoch: int
    """Grows with every change."""


class Marker(Enum):
    """How a transaction ended in one partition, by the control record in the partition itself."""

    COMMIT = "commit"
    ABORT = "abort"
    OPEN = "open"
    """No marker up to the high watermark."""
    GONE = "gone"
    """The start of the transaction is not in the log: retention, deletion of records, or the topic is another one."""


class TransactionDescription(msgspec.Struct, frozen=True):
    """What the coordinator knows about a transactional id."""

    state: CoordinatorState
    producer: ProducerId
    timeout_ms: int
    opened_at_ms: int
    """Broker's start time of the transaction, ms since 1970; -1 when none is open."""
    partitions: frozenset[TopicPartition]


class TransactionListing(msgspec.Struct, frozen=True):
    """A transactional id and its state."""

    transactional_id: TransactionalId
    producer_id: int
    state: CoordinatorState


class ProducerProgress(msgspec.Struct, frozen=True):
    """What the leader of a partition counted for one producer."""

    start_offset: int
    """First offset of the open transaction; -1 when none is open."""
    records: int
    """Last sequence + 1: exact, because an epoch starts at sequence 0 and the leader refuses gaps after the first."""


class OpenBrokerTransaction(msgspec.Struct, frozen=True):
    """A transaction that has no marker in a partition, by the partition's leader; whose it is, only its producer says.

    When the epoch was raised while it was open, the epoch is the newer one.
    """

    partition: TopicPartition
    producer: ProducerId
    start_offset: int
    """Of its first record: read-committed readers do not get past it."""
    coordinator_epoch: int
    """Of the last marker of this producer here; -1 without one."""


class LoggedRange(msgspec.Struct, frozen=True):
    """Data records of one transaction that lie next to each other in a partition."""

    first_offset: int
    next_offset: int
    """After the last one."""
    records: int


class PreparedView(msgspec.Struct, frozen=True):
    """Everything that a prepare asks the broker."""

    description: TransactionDescription | None
    progress: dict[TopicPartition, ProducerProgress]
    end_offsets: dict[TopicPartition, int]
    """High watermark after the flush, so after the last record of the transaction."""


class TopicLimits(msgspec.Struct, frozen=True):
    """What a topic takes of a record; None: no limit, or none that this user may see."""

    batch_bytes: int | None = None
    """`max.message.bytes`: of a batch, as it arrives."""
    before_ms: int | None = None
    """How much older than the broker's time a timestamp may be."""
    after_ms: int | None = None
    """How much newer."""
    compacted: bool = False
    """It takes no record without a key."""
    codec: str = "producer"
    """With which the broker compresses batches; `producer`: it leaves them as they come."""


class TopicFacts(msgspec.Struct, frozen=True):
    """Identity and size of a topic."""

    topic_id: str
    """Changes when a topic is deleted and created again."""
    partitions: int
