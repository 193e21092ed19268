"""Facts of a deployment, as values: the pipeline's topics and rights, the cluster, this machine, what is restored.

Collected by `cluster.py`, `details.py`, `machine.py`, and by the daemon, which implements `StartTarget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from tidegate.checks.findings import Severity
from tidegate.config.fields.base import Path
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import LostRange
from tidegate.ids import TopicPartition
from tidegate.kafka.facts import TopicFacts, TransactionListing
from tidegate.kafka.inspection import ClockReading
from tidegate.kafka.topic_settings import AFTER, BEFORE, DIFFERENCE
from tidegate.kafka.versions import BrokerVersion
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.hanging_transactions import HangingTransaction
from tidegate.storage.base import StorageError

SERVERS: Final[Path] = ("kafka", "bootstrap.servers")
DIRECTORY: Final[Path] = ("checkpoints", "directory")
OFFSETS_LOG: Final = "__consumer_offsets"

MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
ID_EXPIRATION: Final = "transactional.id.expiration.ms"
BROKER_SETTINGS: Final = (MAX_TIMEOUT, ID_EXPIRATION)
MIN_IN_SYNC: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
CLEANUP: Final = "cleanup.policy"
BATCH_BYTES: Final = "max.message.bytes"
RETENTION: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
COMPACTION_LAG: Final = "min.compaction.lag.ms"
STAMPS: Final = "message.timestamp.type"
TOPIC_SETTINGS: Final = (
    RETENTION, RETENTION_BYTES, COMPACTION_LAG, STAMPS, BEFORE, AFTER, DIFFERENCE, BATCH_BYTES, CLEANUP, MIN_IN_SYNC,
    UNCLEAN,
)  # fmt: skip


class Use(msgspec.Struct, frozen=True):
    """How the pipeline uses a topic."""

    topic: str
    place: Path
    """Where the file names it."""
    written: bool = False
    """Else it is read."""
    keyed: bool = True
    """Of a sink: records have keys."""
    tombstones: bool = False
    """A sink writes them; a source understands them, so a compacted topic is in order."""
    loss: str = ""
    """What can happen when the brokers lose acknowledged records of it."""
    stamped: bool = False
    """A sink sets the timestamps; a source takes its event time from Kafka's."""
    client_bytes: int | None = None
    """The largest record that the client takes."""


class Need(msgspec.Struct, frozen=True):
    """A right, in Kafka's terms, and what needs it."""

    resource: str
    """topic, group, transactional-id or cluster: an option of kafka-acls.sh."""
    name: str
    operation: str
    """As kafka-acls.sh takes it."""
    place: Path
    severity: Severity = Severity.PROBLEM
    """When it is missing."""
    use: str = ""
    """What needs it."""
    login: str = ""
    """The source or sink that goes in with its own user; empty: `kafka:` at the top."""
    user: str = ""


class Wait(msgspec.Struct, frozen=True):
    """A transaction that is open in an output, and known to be so by its coordinator."""

    partition: TopicPartition
    start_offset: int
    transactional_id: str
    open_ms: int
    own: bool


class OtherWriter(msgspec.Struct, frozen=True):
    """A producer in an output that is not of this pipeline."""

    topic: str
    producer_id: int
    transactional_id: str
    """Empty: none that this user may see."""
    last_ms: int
    """Timestamp of its last record."""


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic as the brokers describe it; `error` is the name of Kafka's error, empty if there is none."""

    error: str
    facts: TopicFacts | None
    operations: frozenset[str] = frozenset()
    """What this user may do: READ, WRITE, DESCRIBE ...; empty when the broker does not say."""
    leaderless: tuple[int, ...] = ()
    copies: int = 0
    """Of the partition that has the fewest; 0 when unknown."""
    settings: Mapping[str, str] = {}
    """Of TOPIC_SETTINGS; empty when they are hidden from this user."""

    def number(self, name: str) -> int | None:
        """Get a setting that is a number; None when it is hidden, or unknown to the broker."""
        text = self.settings.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else None

    def has_policy(self, word: str) -> bool:
        """Tell whether `cleanup.policy` is known to contain a word."""
        return word in self.settings.get(CLEANUP, "")


class ClusterFacts(msgspec.Struct, frozen=True):
    """The cluster, by its brokers. `details.py` adds everything from `clock` on."""

    topics: Mapping[str, SeenTopic]
    """Those of the pipeline."""
    internal: Mapping[str, SeenTopic] = {}
    """Kafka's own topics that hold the decisions about transactions, and positions; those that this user may see."""
    brokers: int = 1
    versions: tuple[BrokerVersion, ...] = ()
    broker_settings: Mapping[str, int] = {}
    """Of BROKER_SETTINGS, those that this user may see."""
    offsets: Mapping[TopicPartition, tuple[int, int]] = {}
    """First and last stable offset of the partitions that a `start` names."""
    rights: tuple[tuple[Need, bool], ...] = ()
    """Each with whether this user has it."""

    clock: ClockReading | None = None
    transactions_seen: bool = False
    """Producers and transactions in the outputs could be asked for; else all below is empty."""
    listings: tuple[TransactionListing, ...] = ()
    """Transactional ids that begin with the pipeline's name and a dot."""
    others: tuple[OtherWriter, ...] = ()
    hanging: tuple[HangingTransaction, ...] = ()
    waits: tuple[Wait, ...] = ()


class Room(msgspec.Struct, frozen=True):
    """The file system of a directory."""

    directory: str
    place: Path
    system: str = ""
    """Kind of file system, such as ext4; empty: unknown."""
    free_bytes: int = 0
    free_inodes: int | None = None
    """None: the file system does not count them."""
    used_bytes: int = 0
    """By the objects in it."""


class MachineFacts(msgspec.Struct, frozen=True):
    """The machine, or the container, that the daemon runs on."""

    rooms: tuple[Room, ...] = ()
    storage_trouble: StorageError | None = None
    """What a trial of the checkpoint directory ended with."""
    open_files: int | None = None
    """The hard limit; None: there is none."""
    memory_bytes: int | None = None
    """That are left; None: unknown."""
    cpus: int = 1


class Comparison(msgspec.Struct, frozen=True):
    """The pipeline and the cluster as they are now, compared with what a start would restore. It fits but for these."""

    lost: tuple[LostRange, ...] = ()
    """Input that retention has removed."""
    ahead: tuple[SourceOperator, ...] = ()
    """Sources whose `until` lies in the future."""
    goes_back: bool = False
    """The newest checkpoint is not what would be restored."""


class StartTarget(Protocol):
    """What a start would continue from. Nothing is changed by asking."""

    async def try_storage(self) -> None:
        """Write, read and delete an object. Raises StorageError."""

    async def read_journal(self) -> JournalState:
        """Read the journal. Raises JournalRefused, StorageError."""

    async def compare(self, plan: Plan) -> Comparison:
        """Compare the pipeline with what would be restored. Raises RestoreRefused and whatever else a recovery does."""
