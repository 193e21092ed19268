"""Where rows of a step can be copied: at its outputs; for a sink, at the outputs that it reads. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidegate.datatypes import is_reserved
from tidegate.ids import VertexId
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.spec import DEAD
from tidegate.plan.graph import RETRY_VERTEX, Node, OutputPath, Plan, Vertex


class TapPoint(msgspec.Struct, frozen=True):
    """An output of a node in every slot, and the columns to show of its rows."""

    vertex: VertexId
    node: int
    output: str
    """Empty for the main output."""
    columns: tuple[str, ...]


def find_tap_points(plan: Plan) -> Mapping[str, tuple[TapPoint, ...]]:
    """Returns the points of everything that can be tapped, in the order of the plan.

    These are the operators by their names, side outputs as `step.output`, and sinks. Outputs that nothing reads have no
    rows, and neither have outputs of dead letters. Rows of replayed dead letters are left out where they return.
    """
    found: defaultdict[str, list[TapPoint]] = defaultdict(list)
    for vertex in plan.vertices:
        if vertex.id == RETRY_VERTEX or any(isinstance(node.operator, DeadLetterOperator) for node in vertex.nodes):
            continue  # rows within bytes: no column could be masked
        for index, node in enumerate(vertex.nodes):
            for output, way in _outputs_of(node):
                columns = [name for name, _ in node.operator.pruned_columns(output)]
                name = f"{node.operator.name}.{output}" if output else str(node.operator.name)
                found[name].append(_point(vertex, index, output, columns))
                for sink in _sinks_of(plan, vertex, way):
                    reads = sink.reads()
                    found[sink.name].append(_point(vertex, index, output, [one for one in columns if one in reads]))
    return {name: tuple(points) for name, points in found.items()}


def _point(vertex: Vertex, node: int, output: str, columns: Iterable[str]) -> TapPoint:
    return TapPoint(vertex.id, node, output, tuple(name for name in columns if not is_reserved(name)))


def _outputs_of(node: Node) -> Iterator[tuple[str, OutputPath]]:
    """Yields the outputs that are read, except dead letters."""
    if node.children or node.edges:
        yield "", OutputPath(node.children, node.edges)
    yield from ((output, way) for output, way in node.sides.items() if output != DEAD)


def _sinks_of(plan: Plan, vertex: Vertex, way: OutputPath) -> Iterator[SinkOperator]:
    """Yields the sinks that read an output."""
    vertices = {one.id: one for one in plan.vertices}
    readers = [vertex.nodes[child] for child in way.children]
    readers += [vertices[edge.downstream].nodes[edge.node] for edge in (plan.edges[index] for index in way.edges)]
    yield from (node.operator for node in readers if isinstance(node.operator, SinkOperator))
