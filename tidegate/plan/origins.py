"""The source topics that the rows of an operator may come from, for messages about failed rows. Pure."""

from __future__ import annotations

from tidegate.ids import OperatorName, SourceTopic, VertexId
from tidegate.plan.graph import Plan, Vertex


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
