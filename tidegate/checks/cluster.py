"""Asks the brokers of a cluster about everything that a pipeline depends on, before anything runs. Changes nothing.

Slower requests, which no start waits for, are in `details.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.checks.facts import (
    BROKER_SETTINGS,
    OFFSETS_LOG,
    TOPIC_SETTINGS,
    ClusterFacts,
    Need,
    SeenTopic,
    derive_needs,
    derive_uses,
)
from tidegate.checks.findings import Severity
from tidegate.config.clusters import derive_clusters
from tidegate.config.fields.units import render_duration
from tidegate.config.load import LoadedPipeline
from tidegate.ids import Attempt, ClusterName, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import TRANSACTION_LOG, TopicFacts
from tidegate.kafka.inspection import Inspector, read_nodes
from tidegate.kafka.properties import derive_servers
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.naming import TransactionalName

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


def read_cluster(loaded: LoadedPipeline, plan: Plan, cluster: ClusterName, timeout_s: float) -> ClusterFacts:
    """Ask a broker of the cluster for the facts. If any broker lacks requests, read only the versions.

    Raises BrokerUnavailable if no broker can be asked, KafkaRefused if none accepts the login or a property cannot be
    used. Both have the fields `text`, `remedy` and `property`.
    """
    from kafka.errors import KafkaError

    kafka = derive_clusters(loaded.settings)[cluster]
    servers = derive_servers(kafka)
    try:
        inspector = Inspector(kafka, timeout_s)
    except BrokerUnavailable as error:
        text = f"no broker answers at {servers} within {render_duration(int(timeout_s * 1000))}: {error.fields['text']}"
        raise _unavailable(text, error.fields["remedy"], error.fields["property"]) from error
    try:
        return _read(inspector, loaded, plan, cluster)
    except (KafkaError, OSError) as error:
        text = f"the broker at {servers} refused the request: {error}"
        raise _unavailable(text, "see the broker's log", "bootstrap.servers") from error
    finally:
        inspector.close()


def _unavailable(text: str, remedy: object, name: object) -> BrokerUnavailable:
    return BrokerUnavailable(f"{text}; {remedy}", text=text, remedy=remedy, property=name)


def _read(inspector: Inspector, loaded: LoadedPipeline, plan: Plan, cluster: ClusterName) -> ClusterFacts:
    versions = tuple(inspector.versions())
    if any(one.lacking for one in versions):
        return ClusterFacts({}, brokers=len(versions), versions=versions, name=cluster)
    sources = [source for source in plan.operators(SourceOperator) if source.cluster == cluster]
    uses = [use for use in derive_uses(loaded, plan) if use.cluster == cluster]
    is_written = any(use.written for use in uses)
    logs = [TRANSACTION_LOG] * is_written + [OFFSETS_LOG] * bool(sources)
    wanted = sorted({use.topic for use in uses})
    rows = {row["name"]: row for row in inspector.client.describe_topics([*wanted, *logs])}
    settings = inspector.topic_settings([name for name, row in rows.items() if not row["error_code"]], TOPIC_SETTINGS)
    seen = {name: _seen(row, settings.get(name, {})) for name, row in rows.items()}
    topics = {name: seen[name] for name in wanted}
    return ClusterFacts(
        topics,
        {name: seen[name] for name in logs if not seen[name].error},
        len(versions),
        versions,
        inspector.broker_settings(BROKER_SETTINGS),
        _read_offsets(inspector.client, sources, topics),
        tuple(_look_rights_up(inspector, derive_needs(loaded, plan, cluster), plan, topics)),
        cluster,
        read_nodes(inspector.client).cluster_id,
        is_written,
    )


def _seen(row: Any, settings: Mapping[str, str]) -> SeenTopic:
    from kafka.errors import for_code

    partitions, code = row["partitions"], row["error_code"]
    return SeenTopic(
        for_code(code).__name__.removesuffix("Error") if code else "",
        None if code else TopicFacts(str(row["topic_id"]), len(partitions)),
        frozenset(row["authorized_operations"] or ()),
        tuple(part["partition_index"] for part in partitions if part["leader_id"] < 0),
        min((len(part["replica_nodes"]) for part in partitions), default=0),
        settings,
    )


def _look_rights_up(
    inspector: Inspector, needs: Sequence[Need], plan: Plan, topics: Mapping[str, SeenTopic]
) -> Iterator[tuple[Need, bool]]:
    """Look up the rights that a start needs for the cluster's user; those on topics are in the topic descriptions."""
    for need in needs:
        match need.resource, need.operation:
            case _ if need.login:
                continue
            case "topic", "Read" | "Write" if need.name in topics and need.severity is Severity.PROBLEM:
                seen = topics[need.name]
                if seen.operations or seen.error == "TopicAuthorizationFailed":
                    yield need, need.operation.upper() in seen.operations
            case "transactional-id", _:
                yield need, inspector.may_transact(derive_unused_id(plan))
            case "group", _:
                yield need, inspector.may_mirror(need.name, next(iter(topics), OFFSETS_LOG))


def derive_unused_id(plan: Plan) -> TransactionalId:
    """Derive a transactional id of the pipeline that no attempt and no journal uses."""
    sink = next((one.name for one in plan.operators(SinkOperator)), OperatorName("none"))
    return TransactionalName(plan.pipeline, sink, SlotIndex(0), Attempt(0), "none", 0).transactional_id


def _read_offsets(
    client: KafkaAdminClient, sources: Sequence[SourceOperator], topics: Mapping[str, SeenTopic]
) -> dict[TopicPartition, tuple[int, int]]:
    import kafka
    from kafka.errors import KafkaError
    from kafka.protocol.consumer.offsets import IsolationLevel

    wanted: list[kafka.TopicPartition] = []
    for source in sources:
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
        return {}  # leaders are missing or reading is forbidden: both are separate findings
    return {TopicPartition(*each): (first[each].offset, after[each].offset) for each in wanted}
