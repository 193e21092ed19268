"""Facts about a deployment, as values: topics and rights of the pipeline, the cluster, this machine, what is restored.

Collected by `cluster.py`, `details.py`, `machine.py`, and by the daemon, which implements `StartTarget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from tidegate.checks.findings import Severity
from tidegate.config.clusters import place_of
from tidegate.config.fields.base import Path
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import LostRange
from tidegate.ids import MAIN_CLUSTER, ClusterName, TopicPartition
from tidegate.kafka.facts import TopicFacts, TransactionListing
from tidegate.kafka.inspection import ClockReading
from tidegate.kafka.topic_settings import AFTER, BEFORE, DIFFERENCE
from tidegate.kafka.versions import BrokerVersion
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.hanging_transactions import HangingTransaction
from tidegate.storage.base import StorageError

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


def place_servers(cluster: ClusterName) -> Path:
    """Locate the address of a cluster in the pipeline file."""
    return (*place_of(cluster), "bootstrap.servers")


class Use(msgspec.Struct, frozen=True):
    """How the pipeline uses a topic."""

    topic: str
    place: Path
    """Where the pipeline file names it."""
    written: bool = False
    """True if it is written, False if it is read."""
    keyed: bool = True
    """For a sink: records have keys."""
    tombstones: bool = False
    """True if a sink writes tombstones, or a source understands them and so can read a compacted topic."""
    loss: str = ""
    """The consequence if the brokers lose acknowledged records of it."""
    stamped: bool = False
    """True if a sink sets the timestamps, or a source takes its event time from Kafka's."""
    client_bytes: int | None = None
    """The size limit of the client for a record."""
    cluster: ClusterName = MAIN_CLUSTER


class Need(msgspec.Struct, frozen=True):
    """A right, in Kafka's terms, and what requires it."""

    resource: str
    """topic, group, transactional-id or cluster: an option of kafka-acls.sh."""
    name: str
    operation: str
    """In the form that kafka-acls.sh expects."""
    place: Path
    severity: Severity = Severity.PROBLEM
    """The severity if the right is missing."""
    use: str = ""
    """The purpose that requires it."""
    login: str = ""
    """The source or sink with a login of its own; empty for the user of the cluster."""
    user: str = ""


class Wait(msgspec.Struct, frozen=True):
    """An open transaction in an output that its coordinator also knows as open."""

    partition: TopicPartition
    start_offset: int
    transactional_id: str
    open_ms: int
    own: bool


class OtherWriter(msgspec.Struct, frozen=True):
    """A producer in an output that does not belong to this pipeline."""

    topic: str
    producer_id: int
    transactional_id: str
    """Empty if there is none that this user may see."""
    last_ms: int
    """Timestamp of its last record."""


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic as the brokers describe it; `error` is the name of Kafka's error, or empty."""

    error: str
    facts: TopicFacts | None
    operations: frozenset[str] = frozenset()
    """The operations that this user may perform: READ, WRITE, DESCRIBE ...; empty if not returned by the broker."""
    leaderless: tuple[int, ...] = ()
    copies: int = 0
    """The number of replicas of the partition with the fewest; 0 if unknown."""
    settings: Mapping[str, str] = {}
    """The settings in TOPIC_SETTINGS; empty if they are hidden from this user."""

    def number(self, name: str) -> int | None:
        """Get a numeric setting; None if it is hidden, or unknown to the broker."""
        text = self.settings.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else None

    def has_policy(self, policy: str) -> bool:
        """Return whether `cleanup.policy` is known to contain a policy."""
        return policy in self.settings.get(CLEANUP, "")


class ClusterFacts(msgspec.Struct, frozen=True):
    """One cluster, as reported by its brokers. `details.py` adds everything from `clock` on."""

    topics: Mapping[str, SeenTopic]
    """The topics of the pipeline that are in this cluster."""
    internal: Mapping[str, SeenTopic] = {}
    """Kafka's own topics for transactions and consumer offsets, as far as this user may see them."""
    brokers: int = 1
    versions: tuple[BrokerVersion, ...] = ()
    broker_settings: Mapping[str, int] = {}
    """The settings in BROKER_SETTINGS that this user may see."""
    offsets: Mapping[TopicPartition, tuple[int, int]] = {}
    """First and last stable offset of the partitions that a `start` names."""
    rights: tuple[tuple[Need, bool], ...] = ()
    """Each right with whether this user has it."""
    name: ClusterName = MAIN_CLUSTER
    cluster_id: str = ""
    """Kafka's own name for it; empty if it was not read."""
    is_written: bool = True
    """True if a sink, or the dead letters, are in this cluster. Otherwise no transaction is."""

    clock: ClockReading | None = None
    transactions_seen: bool = False
    """True if producers and transactions in the outputs could be listed; otherwise all fields below are empty."""
    listings: tuple[TransactionListing, ...] = ()
    """Transactional ids that begin with the pipeline's name and a dot."""
    others: tuple[OtherWriter, ...] = ()
    hanging: tuple[HangingTransaction, ...] = ()
    waits: tuple[Wait, ...] = ()

    @property
    def servers(self) -> Path:
        """Where the pipeline file has its address."""
        return place_servers(self.name)


class Room(msgspec.Struct, frozen=True):
    """The file system of a directory."""

    directory: str
    place: Path
    system: str = ""
    """The type of the file system, such as ext4; empty if unknown."""
    free_bytes: int = 0
    free_inodes: int | None = None
    """None if the file system does not count inodes."""
    used_bytes: int = 0
    """The size of the objects in the directory."""


class MachineFacts(msgspec.Struct, frozen=True):
    """The machine, or the container, that the daemon runs on."""

    rooms: tuple[Room, ...] = ()
    storage_trouble: StorageError | None = None
    """The error of a test of the checkpoint directory, if it failed."""
    open_files: int | None = None
    """The hard limit; None if there is none."""
    memory_bytes: int | None = None
    """Available memory; None if unknown."""
    cpus: int = 1


class Comparison(msgspec.Struct, frozen=True):
    """The differences between the current pipeline and cluster and what a start would restore, which fits otherwise."""

    lost: tuple[LostRange, ...] = ()
    """Input that retention has removed, of sources with `on_lost_input: stop`."""
    skipped: tuple[LostRange, ...] = ()
    """The same of sources that continue without it."""
    ahead: tuple[SourceOperator, ...] = ()
    """Sources whose `until` is in the future."""
    goes_back: bool = False
    """True if a checkpoint other than the newest would be restored."""


class StartTarget(Protocol):
    """The state that a start would continue from. Its methods change nothing."""

    async def try_storage(self) -> None:
        """Write, read and delete an object. Raises StorageError."""

    async def read_journal(self) -> JournalState:
        """Read the journal. Raises JournalRefused, StorageError."""

    async def compare(self, plan: Plan) -> Comparison:
        """Compare the pipeline with what would be restored.

        Raises RestoreRefused and the other errors of a recovery.
        """
