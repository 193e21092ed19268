"""Names of edges, and the plan under the former names of renamed steps. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.plan.graph import RETRY_VERTEX, Edge, OutputPath, Plan, Vertex


def derive_edge_names(plan: Plan) -> dict[int, str]:
    """Returns edge names by index: the operator or side output, and the destination.

    The destination includes the port unless it is the first.
    """
    names: dict[int, str] = {}
    for node in (node for vertex in plan.vertices for node in vertex.nodes):
        outputs = {str(node.operator.name): node.edges}
        outputs |= {f"{node.operator.name}.{side}": way.edges for side, way in node.sides.items()}
        for output, edges in outputs.items():
            names |= {index: f"{output} -> {_end_of(plan.edges[index])}" for index in edges}
    return names


def _end_of(edge: Edge) -> str:
    return f"{edge.downstream}.{edge.port}" if edge.port else edge.downstream


def derive_former_plan(plan: Plan, renamed: Mapping[OperatorName, OperatorName]) -> Plan:
    """Returns the plan as if these steps (new name -> old name) had not been renamed; edge indices are unchanged.

    Names of generated operators (`totals.input`) follow those of their steps. Only names differ.
    """

    def former(name: str) -> OperatorName:
        step, dot, part = name.partition(".")
        return OperatorName(f"{renamed.get(OperatorName(step), step)}{dot}{part}")

    def former_sides(vertex: Vertex, sides: Mapping[str, OutputPath]) -> dict[str, OutputPath]:
        """Returns side outputs; those of the retry source are named after steps."""
        return {former(side) if vertex.id == RETRY_VERTEX else side: way for side, way in sides.items()}

    def former_vertex(vertex: Vertex) -> Vertex:
        nodes = tuple(
            msgspec.structs.replace(
                node,
                operator=msgspec.structs.replace(node.operator, name=former(node.operator.name)),
                sides=former_sides(vertex, node.sides),
            )
            for node in vertex.nodes
        )
        return Vertex(VertexId(former(vertex.id)), nodes)

    edges = tuple(
        msgspec.structs.replace(
            edge, upstream=VertexId(former(edge.upstream)), downstream=VertexId(former(edge.downstream))
        )
        for edge in plan.edges
    )
    return msgspec.structs.replace(plan, vertices=tuple(map(former_vertex, plan.vertices)), edges=edges)
