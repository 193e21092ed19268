"""Which Kafka cluster each source and sink of a plan uses. Pure."""

from __future__ import annotations

from tidegate.ids import ClusterName, OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan


def derive_source_clusters(plan: Plan) -> dict[OperatorName, ClusterName]:
    """Returns the cluster of every source."""
    return {one.name: one.cluster for one in plan.operators(SourceOperator)}


def derive_sink_clusters(plan: Plan) -> dict[OperatorName, ClusterName]:
    """Returns the cluster of every sink."""
    return {one.name: one.cluster for one in plan.operators(SinkOperator)}


def derive_sink_topics(plan: Plan) -> dict[ClusterName, list[str]]:
    """Returns the topics that sinks may write in each cluster with sinks, sorted."""
    found: dict[ClusterName, set[str]] = {}
    for sink in plan.operators(SinkOperator):
        found.setdefault(sink.cluster, set()).update(sink.topics)
    return {cluster: sorted(topics) for cluster, topics in found.items()}
