"""`validate --connect`: asks the broker and the checkpoint directory what the pipeline file takes for granted.

`read_cluster` collects facts through kafka-python's public admin client; `derive_findings` judges them and is pure.
Nothing is changed by asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.secrets import reveal
from tidegate.config.units import render_duration
from tidegate.config.values import Path
from tidegate.coordinator.types import Committable
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, CheckpointId, SlotIndex, TopicPartition
from tidegate.plan.graph import Operator, Plan, SinkOperator, SourceOperator
from tidegate.sinks.client_properties import derive_login
from tidegate.sinks.connecting import connect
from tidegate.sinks.errors import BrokerUnavailable, SinkRefused
from tidegate.sinks.facts import EndAnswer, TopicFacts
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.transactions import TransactionClient
from tidegate.storage.base import StorageError
from tidegate.storage.open import open_storage

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

T = TypeVar("T", bound=Operator)

BOOTSTRAP_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_S = 15.0
MAX_TIMEOUT_PROPERTY = "transaction.max.timeout.ms"
_USER = "the user of `kafka:`"


class SeenTopic(msgspec.Struct, frozen=True):
    """A topic as the broker tells it; `error` is the name of Kafka's error, empty if there is none."""

    error: str
    facts: TopicFacts | None
    operations: frozenset[str]
    """What this user may do: READ, WRITE, DESCRIBE ...; empty when the broker does not say."""
    leaderless: tuple[int, ...] = ()


class Cluster(msgspec.Struct, frozen=True):
    """What a broker told. `offsets`: first and next offset of the partitions that a `start` names."""

    cluster_id: str
    topics: Mapping[str, SeenTopic]
    max_transaction_timeout_ms: int | None
    offsets: Mapping[TopicPartition, tuple[int, int]] = {}
    may_transact: bool = True
    """Write transactions under the pipeline's name."""
    may_mirror: bool = True
    """Write positions to the consumer group of the pipeline's name."""


class Connected(msgspec.Struct, frozen=True):
    """Findings, and the facts that a start of the daemon needs; `cluster` is None when no broker answered."""

    problems: tuple[Problem, ...]
    cluster: Cluster | None


def check_connected(loaded: LoadedPipeline, plan: Plan, timeout_ms: int = BOOTSTRAP_TIMEOUT_MS) -> Connected:
    """Every finding about the broker and the checkpoint directory, each with its place in the file."""
    problems = _storage_problems(loaded)
    try:
        cluster = read_cluster(reveal(loaded.settings.kafka), plan, timeout_ms)
    except (Unreachable, SinkRefused) as error:
        name = str(error.fields.get("property", ""))
        path = ("kafka", name) if name in loaded.settings.kafka else _server_path(loaded)
        message = str(error.fields.get("text", error.message))
        return Connected((*problems, loaded.problem(path, message, str(error.fields.get("remedy", "")))), None)
    problems += _other_logins(loaded, plan, timeout_ms)
    return Connected((*problems, *derive_findings(loaded, plan, cluster)), cluster)


def _other_logins(loaded: LoadedPipeline, plan: Plan, timeout_ms: int) -> tuple[Problem, ...]:
    """Sources and sinks that go in another way than `kafka:` at the top says."""
    top, problems = derive_login(reveal(loaded.settings.kafka)), []
    places = [("sources", one.name, one.kafka) for one in plan.operators(SourceOperator)]
    places += [("sinks", one.name, one.kafka) for one in plan.operators(SinkOperator)]
    for kind, name, kafka in places:
        login = derive_login(kafka)
        if login == top:
            continue
        try:
            connect(login, timeout_ms / 1000).close()
        except (BrokerUnavailable, SinkRefused) as error:
            path = (kind, name, "kafka", str(error.fields.get("property", "")))
            message = str(error.fields.get("text", error.message))
            problems.append(loaded.problem(path, message, str(error.fields.get("remedy", ""))))
    return tuple(problems)


class Unreachable(TidegateError):
    """No broker could be asked; `remedy` is among the fields."""

    code = "broker-unreachable"
    exit_code = 2
    retriable = True


# -- reading -----------------------------------------------------------------------------------------------------------


def read_cluster(kafka: Mapping[str, str], plan: Plan, timeout_ms: int) -> Cluster:
    """Ask a broker. Raises Unreachable when none can be asked, SinkRefused for properties that cannot be used."""
    from kafka.errors import KafkaError

    servers = str(kafka.get("bootstrap.servers", kafka.get("metadata.broker.list", "")))
    try:
        client = connect(kafka, timeout_ms / 1000)
    except BrokerUnavailable as error:
        text = f"no broker answers at {servers} within {render_duration(timeout_ms)}: {error.fields['text']}"
        raise Unreachable(text, remedy=error.fields["remedy"], property=error.fields["property"]) from error
    try:
        cluster = _read(client, plan)
    except (KafkaError, OSError) as error:
        raise Unreachable(
            f"the broker at {servers} refused to answer: {error}", remedy="see the broker's log"
        ) from error
    finally:
        client.close()
    return msgspec.structs.replace(cluster, may_transact=not plan.exactly_once or _may_transact(kafka, plan))


def _may_transact(kafka: Mapping[str, str], plan: Plan) -> bool:
    """Asks to abort a transaction that cannot be: whether one may is answered before whether there is one."""
    sink = plan.operators(SinkOperator)[0].name
    slot, never = SlotIndex(0), Attempt(0)
    identity = TransactionalName(plan.pipeline, sink, slot, never, 0).transactional_id
    nothing = Committable(sink, slot, never, CheckpointId(0), identity, 0, 0, (), 0, 0)
    client = TransactionClient(kafka, REQUEST_TIMEOUT_S)
    try:
        return (
            client.end_transaction(nothing, commit=False, timeout_s=REQUEST_TIMEOUT_S) is not EndAnswer.NOT_AUTHORIZED
        )
    except SinkRefused:
        return False
    finally:
        client.close()


def _read(client: KafkaAdminClient, plan: Plan) -> Cluster:
    from kafka.errors import for_code

    about = client.describe_cluster()
    topics: dict[str, SeenTopic] = {}
    for row in client.describe_topics(sorted(_topics(plan))):
        partitions = row["partitions"]
        leaderless = tuple(part["partition_index"] for part in partitions if part["leader_id"] < 0)
        facts = TopicFacts(str(row["topic_id"]), len(partitions)) if not row["error_code"] else None
        error = for_code(row["error_code"]).__name__.removesuffix("Error") if row["error_code"] else ""
        topics[row["name"]] = SeenTopic(error, facts, frozenset(row["authorized_operations"] or ()), leaderless)
    brokers = [broker["broker_id"] for broker in about["brokers"]]
    return Cluster(
        cluster_id=str(about["cluster_id"]),
        topics=topics,
        max_transaction_timeout_ms=_read_max_timeout(client, brokers),
        offsets=_read_offsets(client, plan, topics),
        may_mirror=_may_mirror(client, plan.pipeline),
    )


def _may_mirror(client: KafkaAdminClient, group: str) -> bool:
    from kafka.errors import GroupAuthorizationFailedError, KafkaError

    try:
        client.describe_groups([group])
    except GroupAuthorizationFailedError:
        return False
    except KafkaError:
        return True  # there is no such group yet
    return True


def _read_max_timeout(client: KafkaAdminClient, brokers: list[int]) -> int | None:
    """The least of the brokers' limits; None when this user may not see it."""
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import KafkaError

    limits: list[int] = []
    for broker in brokers[:5]:  # brokers of one cluster agree; a few show a rolling change
        try:
            resource = ConfigResource(ConfigResourceType.BROKER, str(broker))
            found = client.describe_configs([resource], config_filter="all")
        except KafkaError:
            return None
        seen = found["broker"].get(str(broker), {}).get(MAX_TIMEOUT_PROPERTY)
        if seen is None:  # it wants DESCRIBE_CONFIGS on the cluster
            return None
        limits.append(int(seen["value"]))
    return min(limits, default=None)


def _read_offsets(
    client: KafkaAdminClient, plan: Plan, topics: Mapping[str, SeenTopic]
) -> dict[TopicPartition, tuple[int, int]]:
    import kafka
    from kafka.errors import KafkaError

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
        after = client.list_partition_offsets(dict.fromkeys(wanted, -1))
    except KafkaError:
        return {}  # leaders are missing or reading is forbidden: both are findings of their own
    return {TopicPartition(*each): (first[each].offset, after[each].offset) for each in wanted}


# -- judging -----------------------------------------------------------------------------------------------------------


def derive_findings(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    """What is wrong with a pipeline on this cluster."""
    problems: list[Problem] = []
    for source in plan.operators(SourceOperator):
        for index, topic in enumerate(source.topics):
            words: Path = ("topics", index) if loaded.settings.sources[source.name].topics else ("topic",)
            path = ("sources", source.name, *words)
            problems += _topic_problems(loaded, path, topic, cluster.topics[topic], ("READ",))
        problems += _start_problems(loaded, source, cluster)
    for sink in plan.operators(SinkOperator):
        path = ("sinks", sink.name, "topic")
        needed = ("WRITE", "READ") if plan.exactly_once else ("WRITE",)
        problems += _topic_problems(loaded, path, sink.topic, cluster.topics[sink.topic], needed)
    limit, wanted = cluster.max_transaction_timeout_ms, loaded.settings.checkpoints.transaction_timeout_ms
    if plan.exactly_once and limit is not None and wanted > limit:
        message = (
            f"{render_duration(wanted)} is more than the broker's {MAX_TIMEOUT_PROPERTY} ({render_duration(limit)})"
        )
        remedy = f"set it to {render_duration(limit)} or less, or raise the broker's limit"
        problems.append(loaded.problem(("checkpoints", "transaction_timeout"), message, remedy))
    return [*problems, *_name_problems(loaded, plan, cluster), *_idle_slots(loaded, plan, cluster)]


def _name_problems(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    """What is named after the pipeline."""
    problems: list[Problem] = []
    if not cluster.may_transact:
        remedy = f"grant WRITE on transactional ids with the prefix `{plan.pipeline}.`"
        problems.append(loaded.problem(("name",), f"{_USER} may not write transactions under this name", remedy))
    if not cluster.may_mirror:
        message = f"{_USER} may not write positions to the consumer group `{plan.pipeline}`: lag tools will not see it"
        problem = loaded.problem(("name",), message, "grant READ on that group")
        problems.append(msgspec.structs.replace(problem, severity="warning"))
    return problems


def _idle_slots(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    read = [topic for source in plan.operators(SourceOperator) for topic in source.topics]
    counts = [facts.partitions for topic in read if (facts := cluster.topics[topic].facts) is not None]
    if len(counts) < len(read) or sum(counts) >= plan.parallelism:
        return []
    message = f"{plan.parallelism} slots are more than the {sum(counts)} partitions of all sources: some read nothing"
    problem = loaded.problem(("parallelism",), message, "lower it, or add partitions")
    return [msgspec.structs.replace(problem, severity="warning")]


def _topic_problems(
    loaded: LoadedPipeline, path: Path, topic: str, seen: SeenTopic, operations: tuple[str, ...]
) -> list[Problem]:
    if seen.error == "UnknownTopicOrPartition":
        return [loaded.problem(path, f"the topic `{topic}` does not exist", "create it, or correct the name")]
    if seen.error == "TopicAuthorizationFailed" or (seen.operations and "DESCRIBE" not in seen.operations):
        return [loaded.problem(path, f"{_USER} may not see the topic `{topic}`", "grant DESCRIBE on it")]
    if seen.error:
        return [loaded.problem(path, f"the broker says {seen.error} about the topic `{topic}`", "see the broker's log")]
    problems: list[Problem] = []
    for operation in operations if seen.operations else ():
        if operation not in seen.operations:
            message = f"{_USER} may not {operation.lower()} the topic `{topic}`"
            problems.append(loaded.problem(path, message, f"grant {operation} on it"))
    if seen.leaderless:
        numbers = ", ".join(map(str, seen.leaderless[:10]))
        problems.append(loaded.problem(path, f"no leader for partition {numbers} of `{topic}`", "start its broker"))
    return problems


def _start_problems(loaded: LoadedPipeline, source: SourceOperator, cluster: Cluster) -> list[Problem]:
    if not isinstance(source.start, dict):
        return []
    topic, problems = source.topics[0], []
    facts = cluster.topics[topic].facts
    for partition, offset in source.start.items():
        path = ("sources", source.name, "start", str(partition))
        if facts is not None and partition >= facts.partitions:
            message = f"the topic `{topic}` has no partition {partition}"
            problems.append(loaded.problem(path, message, f"partitions are 0 to {facts.partitions - 1}"))
        first, after = cluster.offsets.get(TopicPartition(topic, partition), (0, offset))
        if not first <= offset <= after:
            message = f"offset {offset} is not in partition {partition} of `{topic}`"
            problems.append(loaded.problem(path, message, f"use {first} to {after}"))
    return problems


def _storage_problems(loaded: LoadedPipeline) -> tuple[Problem, ...]:
    directory = loaded.settings.checkpoints.directory
    try:
        open_storage(directory).probe()
    except StorageError as error:
        return (loaded.problem(("checkpoints", "directory"), error.message),)
    return ()


def _server_path(loaded: LoadedPipeline) -> Path:
    given = [name for name in ("bootstrap.servers", "metadata.broker.list") if name in loaded.settings.kafka]
    return ("kafka", *given[:1])


def _topics(plan: Plan) -> set[str]:
    sources = {topic for source in plan.operators(SourceOperator) for topic in source.topics}
    return sources | {sink.topic for sink in plan.operators(SinkOperator)}
