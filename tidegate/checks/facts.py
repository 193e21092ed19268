"""What the judges are given: the pipeline's topics and needs, what the cluster and this machine are. Values only.

Collected by `details.py` (the cluster) and `machine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.checks.cluster import Cluster
from tidegate.checks.findings import Level
from tidegate.ids import TopicPartition
from tidegate.kafka.facts import TransactionListing
from tidegate.kafka.inspection import ClockReading
from tidegate.kafka.versions import BrokerVersion
from tidegate.settings.base import Path
from tidegate.sinks.hanging import Hanging
from tidegate.storage.base import StorageError


class Use(msgspec.Struct, frozen=True):
    """How the pipeline uses a topic."""

    topic: str
    path: Path
    """Where the file names it."""
    written: bool = False
    """Else it is read."""
    keyed: bool = True
    """Of a sink: records have keys."""
    tombstones: bool = False
    """A sink writes them; a source understands them, so a compacted topic is in order."""
    stamped: bool = False
    """A sink sets the timestamps; a source takes its event time from Kafka's."""
    client_bytes: int | None = None
    """The largest record that the client takes."""


class Need(msgspec.Struct, frozen=True):
    """A right, in Kafka's words, and what is done without it."""

    resource: str
    """topic, group, transactional-id or cluster: an option of kafka-acls.sh."""
    name: str
    operation: str
    """As kafka-acls.sh takes it."""
    path: Path
    level: Level = Level.PROBLEM
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


class ClusterFacts(msgspec.Struct, frozen=True):
    """What the brokers say, beyond the survey of a start."""

    cluster: Cluster
    versions: tuple[BrokerVersion, ...] = ()
    clock: ClockReading | None = None
    settings: Mapping[str, Mapping[str, str]] = {}
    """Of topics, Kafka's own included; none of those that are hidden."""
    broker_settings: Mapping[str, str] = {}
    rights: tuple[tuple[Need, bool], ...] = ()
    """Each with whether this user has it."""
    transactions_seen: bool = False
    """Producers and transactions in the outputs could be asked for; else all below is empty."""
    listings: tuple[TransactionListing, ...] = ()
    """Transactional ids that begin with the pipeline's name and a dot."""
    others: tuple[OtherWriter, ...] = ()
    hanging: tuple[Hanging, ...] = ()
    waits: tuple[Wait, ...] = ()


class Room(msgspec.Struct, frozen=True):
    """What a directory's file system has."""

    directory: str
    path: Path
    system: str = ""
    """Kind of file system, such as ext4; empty: unknown."""
    free_bytes: int = 0
    free_inodes: int | None = None
    """None: the file system does not count them."""
    used_bytes: int = 0
    """By the objects in it."""


class MachineFacts(msgspec.Struct, frozen=True):
    """Of this machine, or of the container that it is."""

    rooms: tuple[Room, ...] = ()
    storage_trouble: StorageError | None = None
    """What a trial of the checkpoint directory ended with."""
    open_files: int | None = None
    """The hard limit; None: there is none."""
    memory_bytes: int | None = None
    """That are left; None: unknown."""
    cpus: int = 1
