"""Facts about a deployment, as values: topics and rights of the pipeline, the cluster, this machine, what is restored.

Collected by `cluster.py`, `details.py`, `machine.py`, and by the daemon, which implements `StartTarget`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import msgspec

from tidegate.checks.findings import Severity
from tidegate.config.clusters import derive_clusters, place_of
from tidegate.config.fields.base import Path
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import LostRange
from tidegate.formats.registry import FORMATS
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition
from tidegate.kafka.facts import TRANSACTION_LOG, TopicFacts, TransactionListing
from tidegate.kafka.inspection import BrokerVersion, ClockReading
from tidegate.kafka.properties import derive_login, largest_record
from tidegate.kafka.topic_settings import AFTER, BEFORE, DIFFERENCE
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import TOMBSTONE, SourceOperator
from tidegate.operators.builtin.retry import RETRY
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


# -- what a pipeline requires: topics and their use, rights, the retention of records ----------------------------------

PRINCIPAL: Final = "PRINCIPAL"
"""Placeholder if only the broker knows the user's name, for example from a client certificate."""
INPUT_LOSS: Final = "records can be lost before they are read, and offsets can be assigned twice"
OUTPUT_LOSS: Final = "output that was committed can be lost"
WEEKEND_MS: Final = 3 * 24 * 3600 * 1000
"""Outages may last a weekend before a person notices."""
UNATTENDED: Final = "the longest time that an unattended restart may take"


def derive_uses(loaded: LoadedPipeline, plan: Plan) -> list[Use]:
    """Derive the use of every topic that the plan names, in its order; topics of a pattern are not included."""
    return [*_read(loaded, plan), *_written(plan)]


def _read(loaded: LoadedPipeline, plan: Plan) -> Iterator[Use]:
    for source in plan.operators(SourceOperator):
        changes = FORMATS[source.format].is_changelog or source.on_null == TOMBSTONE
        time = source.timing
        for index, topic in enumerate(source.topics):
            stamped = time is not None and source.carries_time and not time.text and not time.arrival
            place = place_source(source.name)
            if source.name != RETRY:
                below: Path = ("topics", index) if loaded.settings.sources[source.name].topics else ("topic",)
                place = (*place, *below)
            yield Use(topic, place, tombstones=changes, loss=INPUT_LOSS, stamped=stamped, cluster=source.cluster)


def place_source(name: OperatorName) -> Path:
    """Derive where the file has a source. That of the retry topic is a setting of the dead letters."""
    return (DEAD_LETTERS, "retry_topic") if name == RETRY else ("sources", name)


def _written(plan: Plan) -> Iterator[Use]:
    for sink in plan.operators(SinkOperator):
        letters = isinstance(sink, DeadLetterOperator)
        path: Path = (DEAD_LETTERS, "topic") if letters else ("sinks", sink.name, "topic")
        for index, topic in enumerate(sink.topics):
            yield Use(
                topic,
                path if isinstance(sink.topic, str) else (*path, "allow", index),
                written=True,
                keyed=letters or sink.key is not None,
                tombstones=sink.deleted is not None,
                loss=OUTPUT_LOSS,
                stamped=sink.timestamp is not None,
                client_bytes=largest_record(sink.kafka),
                cluster=sink.cluster,
            )


def derive_needs(loaded: LoadedPipeline, plan: Plan, cluster: ClusterName) -> list[Need]:
    """Derive every right that the pipeline needs in one cluster.

    A source or sink with its own login needs its rights for both that user and the one of its cluster.
    """
    top = derive_login(derive_clusters(loaded.settings)[cluster])
    owners: dict[str, Mapping[str, str]] = {one.name: one.kafka for one in plan.operators(SourceOperator)}
    owners |= {one.name: one.kafka for one in plan.operators(SinkOperator) if one.name != DEAD_LETTERS}
    found: dict[Need, None] = {}
    for need in _needs(plan, cluster, [use for use in derive_uses(loaded, plan) if use.cluster == cluster]):
        owner = str(need.place[1]) if need.place[0] in ("sources", "sinks") else ""
        found[_of(need, "", top)] = None
        own = derive_login(owners[owner]) if owner else top
        if own != top and need.resource != "cluster":
            found[_of(need, owner, own)] = None
    return list(found)


def _of(need: Need, owner: str, login: Mapping[str, str]) -> Need:
    return msgspec.structs.replace(need, login=owner, user=login.get("sasl.username", PRINCIPAL))


def _needs(plan: Plan, cluster: ClusterName, uses: list[Use]) -> Iterator[Need]:
    for use in uses:
        if use.written:
            yield Need("topic", use.topic, "Write", use.place, use="writing")
            if plan.exactly_once:
                yield Need("topic", use.topic, "Read", use.place, use="the proof that a transaction is complete")
            yield Need(
                "topic", use.topic, "DescribeConfigs", use.place, Severity.WARNING, "the topic's limits on a record"
            )
        else:
            yield Need("topic", use.topic, "Read", use.place, use="reading")
            yield Need("topic", use.topic, "DescribeConfigs", use.place, Severity.WARNING, "these checks")
            if use.place == place_source(RETRY):
                yield Need("topic", use.topic, "Write", use.place, Severity.WARNING, "`tidegate dead-letters replay`")
    name, servers = ("name",), place_servers(cluster)
    is_read = any(source.cluster == cluster for source in plan.operators(SourceOperator))
    is_written = any(use.written for use in uses)
    if is_written and plan.exactly_once:
        yield Need("transactional-id", f"{plan.pipeline}.", "Write", name, use="transactions")
    if is_read:
        yield Need(
            "group", plan.pipeline, "Read", name, Severity.WARNING, "lag tools, and the ownership record in Kafka"
        )
    if is_written:
        yield Need("cluster", "", "DescribeConfigs", servers, Severity.WARNING, "the brokers' limits")
    yield Need("cluster", "", "Describe", servers, Severity.WARNING, "the cluster's clock")
    if is_written and plan.exactly_once:
        yield Need("cluster", "", "ClusterAction", servers, Severity.WARNING, "writing markers that Kafka has lost")
        yield Need("topic", TRANSACTION_LOG, "Describe", servers, Severity.WARNING, "detecting coordinators that move")


def derive_unattended_ms(settings: PipelineSettings) -> int:
    """Derive the longest time from a record's arrival to the end of a recovery without help.

    It assumes that a transaction is as old as it can be, the checkpoint takes as long as it may, attempts fail until
    the daemon gives up, and one start follows.
    """
    checkpoints, restart, runtime = settings.checkpoints, settings.restart, settings.runtime
    return (
        checkpoints.transaction_timeout_ms
        + checkpoints.timeout_ms
        + restart.give_up_after.within_ms
        + restart.max_ms
        + runtime.start_timeout_ms
    )
