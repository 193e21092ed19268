"""What the brokers say about everything that a pipeline takes for granted, collected before anything runs.

Judged in `judge_start.py` and `durability.py`. Nothing is changed by asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.committable import Committable
from tidegate.ids import Attempt, CheckpointId, SlotIndex, TopicPartition
from tidegate.kafka.client_properties import derive_servers
from tidegate.kafka.connecting import connect
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.facts import TRANSACTION_LOG, EndAnswer, TopicFacts
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.versions import read_nodes, read_versions, refuse_old
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.settings.units import render_duration
from tidegate.sinks.naming import TransactionalName

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

REQUEST_TIMEOUT_S: Final = 15.0
OFFSETS_LOG: Final = "__consumer_offsets"
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
MIN_IN_SYNC: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
CLEANUP: Final = "cleanup.policy"
BATCH_BYTES: Final = "max.message.bytes"


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic as the brokers describe it; `error` is the name of Kafka's error, empty if there is none."""

    error: str
    facts: TopicFacts | None
    operations: frozenset[str]
    """What this user may do: READ, WRITE, DESCRIBE ...; empty when the broker does not say."""
    leaderless: tuple[int, ...] = ()
    copies: int = 0
    """Of the partition that has the fewest; 0 when unknown."""
    min_in_sync: int | None = None
    """Copies that acknowledge a record; None when this user may not see it."""
    unclean: bool | None = None
    """Whether a copy that lacks acknowledged records may become the leader."""
    compacted: bool | None = None
    batch_bytes: int | None = None
    """As in TopicLimits."""


class Cluster(msgspec.Struct, frozen=True):
    """What the brokers say. `offsets`: first and last stable offset of the partitions that a `start` names."""

    cluster_id: str
    topics: Mapping[str, SeenTopic]
    max_transaction_timeout_ms: int | None
    offsets: Mapping[TopicPartition, tuple[int, int]] = {}
    may_transact: bool = True
    """Write transactions under the pipeline's name."""
    may_mirror: bool = True
    """Write positions to the consumer group of the pipeline's name."""
    brokers: int = 1
    internal: Mapping[str, SeenTopic] = {}
    """Kafka's own topics that hold the decisions about transactions, and positions; those that this user may see."""


def read_cluster(kafka: Mapping[str, str], plan: Plan, timeout_s: float) -> Cluster:
    """Ask a broker. Raises BrokerUnavailable when none can be asked, KafkaRefused when none lets us in or a property
    cannot be used; all with `text`, `remedy` and `property` among their fields.
    """
    from kafka.errors import KafkaError

    servers = derive_servers(kafka)
    try:
        client = connect(kafka, timeout_s)
    except BrokerUnavailable as error:
        text = f"no broker answers at {servers} within {render_duration(int(timeout_s * 1000))}: {error.fields['text']}"
        raise _unavailable(text, error.fields["remedy"], error.fields["property"]) from error
    try:
        cluster = _read(client, plan, servers)
    except (KafkaError, OSError) as error:
        text = f"the broker at {servers} refused to answer: {error}"
        raise _unavailable(text, "see the broker's log", "bootstrap.servers") from error
    finally:
        client.close()
    return msgspec.structs.replace(cluster, may_transact=not plan.exactly_once or _may_transact(kafka, plan))


def _unavailable(text: str, remedy: object, name: object) -> BrokerUnavailable:
    return BrokerUnavailable(f"{text}; {remedy}", text=text, remedy=remedy, property=name)


def _may_transact(kafka: Mapping[str, str], plan: Plan) -> bool:
    """Asks to abort a transaction that cannot be: whether one may is answered before whether there is one."""
    sink = plan.operators(SinkOperator)[0].name
    slot, never = SlotIndex(0), Attempt(0)
    identity = TransactionalName(plan.pipeline, sink, slot, never, "none", 0).transactional_id
    nothing = Committable(sink, slot, never, CheckpointId(0), identity, 0, 0, (), 0, 0)
    client = TransactionClient(kafka, REQUEST_TIMEOUT_S)
    try:
        return (
            client.end_transaction(nothing, commit=False, timeout_s=REQUEST_TIMEOUT_S) is not EndAnswer.NOT_AUTHORIZED
        )
    except KafkaRefused:
        return False
    finally:
        client.close()


def _read(client: KafkaAdminClient, plan: Plan, servers: str) -> Cluster:
    refuse_old(read_versions(client), servers)
    nodes = read_nodes(client)
    wanted = sorted(_topics(plan))
    rows = {row["name"]: row for row in client.describe_topics([*wanted, TRANSACTION_LOG, OFFSETS_LOG])}
    settings = _read_settings(client, [name for name, row in rows.items() if not row["error_code"]])
    seen = {name: _seen(row, settings.get(name, {})) for name, row in rows.items()}
    topics = {name: seen[name] for name in wanted}
    return Cluster(
        cluster_id=nodes.cluster_id,
        topics=topics,
        max_transaction_timeout_ms=_read_max_timeout(client, nodes.brokers),
        offsets=_read_offsets(client, plan, topics),
        may_mirror=_may_mirror(client, plan.pipeline),
        brokers=len(nodes.brokers),
        internal={name: seen[name] for name in (TRANSACTION_LOG, OFFSETS_LOG) if not seen[name].error},
    )


def _seen(row: Any, settings: Mapping[str, str]) -> SeenTopic:
    from kafka.errors import for_code

    partitions, code = row["partitions"], row["error_code"]
    unclean = settings.get(UNCLEAN)
    return SeenTopic(
        for_code(code).__name__.removesuffix("Error") if code else "",
        None if code else TopicFacts(str(row["topic_id"]), len(partitions)),
        frozenset(row["authorized_operations"] or ()),
        tuple(part["partition_index"] for part in partitions if part["leader_id"] < 0),
        copies=min((len(part["replica_nodes"]) for part in partitions), default=0),
        min_in_sync=int(settings[MIN_IN_SYNC]) if MIN_IN_SYNC in settings else None,
        unclean=None if unclean is None else unclean == "true",
        compacted="compact" in settings[CLEANUP] if CLEANUP in settings else None,
        batch_bytes=int(settings[BATCH_BYTES]) if BATCH_BYTES in settings else None,
    )


def _read_settings(client: KafkaAdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Those that decide what an acknowledgement is worth, and what a topic takes; what this user may not see is left
    out.
    """
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    try:
        keys = dict.fromkeys((MIN_IN_SYNC, UNCLEAN, CLEANUP, BATCH_BYTES), "")
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, keys) for name in names]
        found = client.describe_configs(resources, config_filter="all").get("topic", {})
    except KafkaError:
        return {}
    return {name: {key: str(entry["value"]) for key, entry in entries.items()} for name, entries in found.items()}


def _may_mirror(client: KafkaAdminClient, group: str) -> bool:
    from kafka.errors import GroupAuthorizationFailedError, KafkaError

    try:
        client.describe_groups([group])
    except GroupAuthorizationFailedError:
        return False
    except KafkaError:
        return True  # there is no such group yet
    return True


def _read_max_timeout(client: KafkaAdminClient, brokers: Sequence[int]) -> int | None:
    """The least of the brokers' limits; None when this user may not see it."""
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    limits: list[int] = []
    for broker in brokers[:5]:  # brokers of one cluster agree; a few show a rolling change
        try:
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker), {MAX_TIMEOUT: ""})
            found = client.describe_configs([resource], config_filter="all")
        except KafkaError:
            return None
        seen = found["broker"].get(str(broker), {}).get(MAX_TIMEOUT)
        if seen is None:  # it needs DESCRIBE_CONFIGS on the cluster
            return None
        limits.append(int(seen["value"]))
    return min(limits, default=None)


def _read_offsets(
    client: KafkaAdminClient, plan: Plan, topics: Mapping[str, SeenTopic]
) -> dict[TopicPartition, tuple[int, int]]:
    import kafka
    from kafka.errors import KafkaError
    from kafka.protocol.consumer.offsets import IsolationLevel

    wanted: list[kafka.TopicPartition] = []
    for source in plan.operators(SourceOperator):
        if isinstance(source.start, dict):
            facts = topics[source.topics[0]].facts
            known = range(facts.partitions if facts else 0)
            wanted += [kafka.TopicPartition(source.topics[0], number) for number in source.start if number in known]
    if not wanted:
        return {}
    try:
        first = client.list_partition_offsets(dict.fromkeys(wanted, -2))
        after = client.list_partition_offsets(dict.fromkeys(wanted, -1), IsolationLevel.READ_COMMITTED)
    except KafkaError:
        return {}  # leaders are missing or reading is forbidden: both are problems of their own
    return {TopicPartition(*each): (first[each].offset, after[each].offset) for each in wanted}


def _topics(plan: Plan) -> set[str]:
    sources = {topic for source in plan.operators(SourceOperator) for topic in source.topics}
    return sources | {topic for sink in plan.operators(SinkOperator) for topic in sink.topics}
