"""The Kafka clusters of the sources and sinks of a plan, and the topics that the rows of an operator may come from.
Pure.
"""

from __future__ import annotations

from tidegate.ids import ClusterName, OperatorName, SourceTopic, VertexId
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan, Vertex


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


def derive_origins(plan: Plan) -> dict[OperatorName, tuple[SourceTopic, ...]]:
    """Returns the topics upstream of every operator, sorted."""
    heads: dict[VertexId, set[SourceTopic]] = {}
    found: dict[OperatorName, tuple[SourceTopic, ...]] = {}
    for vertex in plan.vertices:  # topological, so that what an edge carries is known here
        for node, topics in zip(vertex.nodes, _node_topics(vertex, heads.get(vertex.id, set())), strict=True):
            found[node.operator.name] = tuple(sorted(topics))
            for index in (one for one in node.all_edges if not plan.edges[one].retries):
                heads.setdefault(plan.edges[index].downstream, set()).update(topics)
    return found


def _node_topics(vertex: Vertex, incoming: set[SourceTopic]) -> list[set[SourceTopic]]:
    topics: list[set[SourceTopic]] = [set() for _ in vertex.nodes]
    topics[0] |= incoming
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        topics[index].update(node.operator.origins())
        for child in node.all_children:
            topics[child] |= topics[index]
    return topics
