"""The graph before it is cut into vertices: one node per operator, with its inputs. It is pruned, then cut.

Pruning: unused columns are neither computed nor sent, and event time and headers are carried only where needed. A
source validates unused columns nevertheless.

Cutting: operators that can call each other directly become one vertex. A vertex begins at a source, after an exchange,
and where several inputs meet. Fan-out stays inside the vertex as a tree, so that every operator of a vertex sees a
record in one step.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tidegate.formats.dead_letters import DEAD_LETTER_COLUMNS
from tidegate.ids import OperatorName, VertexId
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.spec import DEAD, Columns, Operator, Requirement
from tidegate.plan.graph import Edge, Node, OutputPath, Vertex


@dataclass(frozen=True, slots=True)
class Input:
    """An output that an operator reads (empty: the main one), re-partitioned by `keys` if there are any."""

    upstream: OperatorName
    output: str = ""
    port: int = 0
    keys: tuple[str, ...] = ()
    alias: str = ""
    """The name of the port in the file, if the step names its inputs."""


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """An operator and its inputs."""

    operator: Operator
    inputs: tuple[Input, ...] = ()

    def passing(self, output: str = "") -> tuple[Input, ...]:
        """Returns the inputs whose rows, or results of them, leave on an output: if it preserves records, port 0."""
        only_first = self.operator.preserves_record(output)
        return tuple(one for one in self.inputs if not (only_first and one.port))

    @property
    def starts_vertex(self) -> bool:
        """True if it heads a vertex: a source, after an exchange, with several inputs, or on its own request."""
        return len(self.inputs) != 1 or bool(self.inputs[0].keys) or self.operator.BEGINS_VERTEX


LogicalGraph = dict[OperatorName, LogicalNode]
"""Nodes in topological order."""


def upstream_of(graph: LogicalGraph, names: Iterable[OperatorName]) -> set[OperatorName]:
    """Returns these operators and everything upstream of them."""
    found = set(names)
    for name in reversed(graph):
        if name in found:
            found.update(one.upstream for one in graph[name].inputs)
    return found


def downstream_of(graph: LogicalGraph, names: Iterable[OperatorName]) -> set[OperatorName]:
    """Returns these operators and everything downstream of them."""
    found = set(names)
    for name, node in graph.items():
        if any(one.upstream in found for one in node.inputs):
            found.add(name)
    return found


def derive_crossing(graph: LogicalGraph, one: Input, reader: Operator) -> Columns:
    """Returns the columns that an edge carries from an operator to its reader, in order."""
    columns = DEAD_LETTER_COLUMNS if one.output == DEAD else graph[one.upstream].operator.output_columns(one.output)
    read = reader.reads(one.port)
    return tuple(column for column in columns if column[0] in read)


def derive_carried(operator: Operator, port: int) -> tuple[Requirement, ...]:
    """Returns what the rows of an input must have besides columns: what the operator requires and what it passes on.

    Headers are passed on only together with their record. Where a record is preserved, its event time is that of the
    results, and rows of other inputs need none.
    """
    passed = {*operator.planned.carries}
    if port and operator.preserves_record():
        passed.discard(Requirement.EVENT_TIME)
    if port or not any(map(operator.preserves_record, ("", *operator.side_outputs()))):
        passed.discard(Requirement.HEADERS)
    return order_requirements(passed | operator.requires(port))


def order_requirements(found: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Returns each requirement once, in the order of the enumeration, so that plans are serialized identically."""
    return tuple(sorted({*found}, key=list(Requirement).index))


def derive_reachable(graph: LogicalGraph) -> LogicalGraph:
    """Returns the part of the graph that leads to a sink."""
    needed = upstream_of(graph, (name for name, node in graph.items() if isinstance(node.operator, SinkOperator)))
    return {name: node for name, node in graph.items() if name in needed}


def derive_planned(graph: LogicalGraph) -> LogicalGraph:
    """Decides, for each operator, what its rows carry, which of its columns are read, and whether it declares when it
    has caught up.

    Works from the sinks upwards. Each operator declares what its ports require and read, given what is read of its own
    outputs. Columns are tracked per output, so two inputs may have columns of the same name.
    """
    carried: defaultdict[OperatorName, set[Requirement]] = defaultdict(set)
    read: defaultdict[OperatorName, dict[str, set[str]]] = defaultdict(dict)
    awaited: set[OperatorName] = set()
    planned: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = _decide(node.operator, carried[name], read[name], catches_up=name in awaited)
        planned[name] = replace(node, operator=operator)
        for one in node.inputs:
            if name in awaited or operator.input_order(one.port).comes_first:
                awaited.add(one.upstream)
            carried[one.upstream] |= {*derive_carried(operator, one.port)} - _GIVEN
            if one.output != DEAD:
                read[one.upstream].setdefault(one.output, set()).update(operator.reads(one.port))
    return {name: planned[name] for name in graph}


_GIVEN: Final = {Requirement.ROW_KIND}
"""Decided earlier, in `changes.py`, because not every row carries them."""


def _decide(
    operator: Operator, carried: set[Requirement], read: Mapping[str, set[str]], *, catches_up: bool
) -> Operator:
    outputs = {
        output: tuple(column for column, _ in operator.output_columns(output) if column in names)
        for output, names in read.items()
    }
    before = operator.planned
    carries = order_requirements({*before.carries, *carried})
    after = msgspec.structs.replace(before, outputs=outputs, carries=carries, catches_up=catches_up)
    return msgspec.structs.replace(operator, planned=after)


def find_loss(graph: LogicalGraph, inputs: Iterable[Input]) -> OperatorName | None:
    """Returns the nearest operator upstream of these inputs whose rows no longer have the headers of a record."""
    waiting = deque(inputs)
    while waiting:
        one = waiting.popleft()
        node = graph.get(one.upstream)
        if node is None:
            continue
        if not node.operator.preserves_record(one.output):
            return one.upstream
        waiting.extend(before for before in node.inputs if before.port == 0)
    return None


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
