"""Where the graph is cut: operators that can call each other directly become one vertex.

A vertex begins at a source, behind an exchange by key, and at a union of several inputs; fan-out stays inside the
vertex as a tree, so that every operator of a vertex sees a record in one step.
"""

from __future__ import annotations

from tidegate.ids import OperatorName, VertexId
from tidegate.plan.graph import Columns, Edge, Node, UnionOperator, Vertex
from tidegate.plan.logical import LogicalGraph, LogicalNode, consumers_of
from tidegate.plan.prune import reads_of


def derive_vertices(graph: LogicalGraph) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """Vertices in topological order and the edges between them, by index."""
    consumers = consumers_of(graph)
    head_of: dict[OperatorName, OperatorName] = {}
    for name, node in graph.items():
        head_of[name] = name if starts_vertex(node) else head_of[node.inputs[0]]
    edges: list[Edge] = []
    leaving: dict[OperatorName, list[int]] = {name: [] for name in graph}
    for name, node in graph.items():
        if not starts_vertex(node):
            continue
        for upstream in node.inputs:
            leaving[upstream].append(len(edges))
            ends = (VertexId(head_of[upstream]), VertexId(name))
            edges.append(Edge(len(edges), *ends, node.keys, _crossing(graph[upstream], node)))
    vertices = tuple(
        Vertex(VertexId(head), _nodes(head, graph, consumers, leaving))
        for head, node in graph.items()
        if starts_vertex(node)
    )
    return vertices, tuple(edges)


def starts_vertex(node: LogicalNode) -> bool:
    """Whether an operator is the head of a vertex."""
    return not node.inputs or bool(node.keys) or (isinstance(node.operator, UnionOperator) and len(node.inputs) > 1)


def _nodes(
    head: OperatorName,
    graph: LogicalGraph,
    consumers: dict[OperatorName, list[OperatorName]],
    leaving: dict[OperatorName, list[int]],
) -> tuple[Node, ...]:
    """The tree below a head, depth first: a child's index is greater than its parent's."""
    order: list[OperatorName] = []
    waiting = [head]
    below: dict[OperatorName, list[OperatorName]] = {}
    while waiting:
        name = waiting.pop()
        order.append(name)
        below[name] = [child for child in consumers[name] if not starts_vertex(graph[child])]
        waiting += reversed(below[name])
    index = {name: place for place, name in enumerate(order)}
    return tuple(
        Node(graph[name].operator, tuple(index[child] for child in below[name]), tuple(leaving[name])) for name in order
    )


def _crossing(upstream: LogicalNode, downstream: LogicalNode) -> Columns:
    """What goes over an edge: what the reader needs; a union's inputs all in the order of its output."""
    if isinstance(downstream.operator, UnionOperator):
        return downstream.operator.output
    wanted = reads_of(downstream.operator)
    output: Columns = getattr(upstream.operator, "output", ())
    return tuple(column for column in output if column[0] in wanted)
