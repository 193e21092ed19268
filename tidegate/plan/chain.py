"""Cuts the graph: operators that can call each other directly become one vertex.

A vertex begins at a source, after an exchange, and where several inputs meet. Fan-out stays inside the vertex as a
tree, so that every operator of a vertex sees a record in one step.
"""

from __future__ import annotations

from collections import defaultdict

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.spec import DEAD, Columns
from tidegate.plan.graph import Edge, Node, OutputPath, Vertex
from tidegate.plan.logical import LogicalGraph, derive_carried, derive_crossing

Outgoing = dict[tuple[OperatorName, str], list[int]]
"""Edges by the output that they leave from."""


def derive_vertices(graph: LogicalGraph) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """Returns the vertices in topological order and the edges between them, by index."""
    head_of: dict[OperatorName, OperatorName] = {}
    for name, node in graph.items():
        head_of[name] = name if node.starts_vertex else head_of[node.inputs[0].upstream]
    edges: list[Edge] = []
    outgoing: Outgoing = defaultdict(list)
    for name, node in graph.items():
        if not node.starts_vertex:
            continue
        sent: dict[int, Columns] = {}  # all rows of a port have the same columns, in the same order
        dead: dict[OperatorName, int] = {}  # one edge for the dead letters of all operators of a vertex
        for one in node.inputs:
            upstream = head_of[one.upstream]
            if one.output == DEAD and upstream in dead:
                outgoing[one.upstream, DEAD].append(dead[upstream])
                continue
            if one.output == DEAD:
                dead[upstream] = len(edges)
            outgoing[one.upstream, one.output].append(len(edges))
            ends = (VertexId(upstream), VertexId(name))
            columns = sent.setdefault(one.port, derive_crossing(graph, one, node.operator))
            carries = derive_carried(node.operator, one.port)
            order = node.operator.input_order(one.port)
            edges.append(Edge(len(edges), *ends, one.keys, columns, one.port, carries, order, one.alias))
    heads = [name for name, node in graph.items() if node.starts_vertex]
    return tuple(Vertex(VertexId(head), _nodes(head, graph, outgoing)) for head in heads), tuple(edges)


def _nodes(head: OperatorName, graph: LogicalGraph, outgoing: Outgoing) -> tuple[Node, ...]:
    """Returns the tree below a head, depth first: the index of a child is greater than that of its parent."""
    below: defaultdict[OperatorName, list[tuple[str, OperatorName]]] = defaultdict(list)
    for name, node in graph.items():
        if not node.starts_vertex:
            below[node.inputs[0].upstream].append((node.inputs[0].output, name))
    order: list[OperatorName] = []
    waiting = [head]
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting += [child for _, child in reversed(below[name])]
    index = {name: place for place, name in enumerate(order)}

    def way(name: OperatorName, output: str) -> OutputPath:
        children = tuple(index[child] for of, child in below[name] if of == output)
        return OutputPath(children, tuple(outgoing.get((name, output), ())))

    nodes = []
    for name in order:
        operator, main = graph[name].operator, way(name, "")
        sides = {side: way(name, side) for side in (*operator.side_outputs(), DEAD)}
        nodes.append(
            Node(operator, main.children, main.edges, {side: one for side, one in sides.items() if one != OutputPath()})
        )
    return tuple(nodes)
