"""Gates and leads: inputs of a plan that hold back the sources of other inputs. Pure.

Applied by `coordinator/gating.py`. A source that feeds both sides of a gate or lead is never held by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.spec import Requirement
from tidegate.plan.graph import Edge, Node, Plan, Vertex


class Gate(msgspec.Struct, frozen=True):
    """An input of a vertex that must catch up, and the sources that are held until it has."""

    vertex: VertexId
    port: int
    alias: str
    """The input as the step names it."""
    awaited: frozenset[OperatorName]
    """Sources that feed the input."""
    held: frozenset[OperatorName]


class Lead(msgspec.Struct, frozen=True):
    """A limit on how far the sources of an input may be ahead of those of the other inputs."""

    vertex: VertexId
    sources: frozenset[OperatorName]
    others: frozenset[OperatorName]
    ahead_ms: int


def derive_gates(plan: Plan) -> tuple[Gate, ...]:
    """Returns the gates of a plan."""
    gates: dict[tuple[VertexId, int], Gate] = {}  # several edges may feed one port
    for edge in plan.edges:
        if edge.order.comes_first:
            own, _ = _sides(plan, edge)
            others = (one for one in plan.inputs_of(edge.downstream) if one.port != edge.port)
            held = frozenset[OperatorName]().union(*(_streams(plan, one) for one in others)) - own
            gate = Gate(edge.downstream, edge.port, edge.alias or edge.upstream, own, held)
            gates.setdefault((gate.vertex, gate.port), gate)
    return tuple(gates.values())


def find_deadlock(gates: Iterable[Gate]) -> tuple[Gate, ...]:
    """Returns gates that could never open, since what each waits for is held by another."""
    closed = tuple(gates)
    while closed:
        held = frozenset[OperatorName]().union(*(gate.held for gate in closed))
        still = tuple(gate for gate in closed if gate.awaited & held)
        if len(still) == len(closed):
            break
        closed = still
    return closed


def derive_turns(plan: Plan) -> dict[OperatorName, int]:
    """Returns, for each source behind gates, how many of them open one after the other before it begins."""
    gates, turns = derive_gates(plan), dict[OperatorName, int]()
    for _ in gates:  # as many rounds as the longest chain may have
        for gate in gates:
            turn = 1 + max((turns.get(source, 0) for source in gate.awaited), default=0)
            turns |= {source: max(turns.get(source, 0), turn) for source in gate.held}
    return turns


def derive_leads(plan: Plan) -> tuple[Lead, ...]:
    """Returns how far sources may be ahead of one another. Sources whose event time a step replaces are left out."""
    leads: list[Lead] = []
    for edge in plan.edges:
        if edge.order.ahead_ms is not None:
            own, others = _sides(plan, edge, timed=True)
            leads.append(Lead(edge.downstream, own - others, others - own, edge.order.ahead_ms))
    return tuple(dict.fromkeys(leads))  # several edges may feed one port


def _sides(plan: Plan, edge: Edge, *, timed: bool = False) -> tuple[frozenset[OperatorName], frozenset[OperatorName]]:
    """Returns the sources that feed the port of an edge, and those that feed the other ports.

    `timed`: only those whose event time rows still have.
    """
    inputs = [one for one in plan.inputs_of(edge.downstream) if not one.retries]
    own = [_upstream(plan, one, timed=timed) for one in inputs if one.port == edge.port]
    others = [_upstream(plan, one, timed=timed) for one in inputs if one.port != edge.port]
    return frozenset[OperatorName]().union(*own), frozenset[OperatorName]().union(*others)


def _upstream(plan: Plan, edge: Edge, *, timed: bool) -> frozenset[OperatorName]:
    (vertex,) = (one for one in plan.vertices if one.id == edge.upstream)
    if timed and any(node.operator.ASSIGNS_TIME for node in _path_to(vertex, edge)):
        return frozenset()
    head = vertex.nodes[0].operator
    if isinstance(head, SourceOperator):
        return frozenset([head.name])
    inputs = tuple(one for one in plan.inputs_of(vertex.id) if not one.retries)
    if timed:  # the event time of a lookup is that of its stream
        inputs = tuple(one for one in inputs if Requirement.EVENT_TIME in one.carries) or inputs
    return frozenset[OperatorName]().union(*(_upstream(plan, one, timed=timed) for one in inputs))


def _streams(plan: Plan, edge: Edge) -> frozenset[OperatorName]:
    """Returns the sources that feed an edge, but not through inputs that come first: the tables of several lookups in a
    row are read at once. The retry topic is one of the sources: it is held, and nothing waits for it.
    """
    (vertex,) = (one for one in plan.vertices if one.id == edge.upstream)
    head = vertex.nodes[0].operator
    if isinstance(head, SourceOperator):
        return frozenset([head.name])
    inputs = (one for one in plan.inputs_of(vertex.id) if not one.order.comes_first)
    return frozenset[OperatorName]().union(*(_streams(plan, one) for one in inputs))


def _path_to(vertex: Vertex, edge: Edge) -> Iterator[Node]:
    """Yields the nodes of a vertex that rows of an edge have passed, the last one first."""
    parents = {child: index for index, node in enumerate(vertex.nodes) for child in node.all_children}
    place = next((index for index, node in enumerate(vertex.nodes) if edge.index in node.all_edges), None)
    while place is not None:
        yield vertex.nodes[place]
        place = parents.get(place)
