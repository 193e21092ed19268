"""Names of edges, and the same plan under the names that its steps had before they were renamed. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.plan.graph import Edge, Plan, Vertex


def derive_edge_names(plan: Plan) -> dict[int, str]:
    """Every edge by its index: the operator whose rows it carries, or its side output, and where it leads to, with the
    port unless it is the first.
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
    """The plan as it would be if these steps (new name -> old name) had not been renamed, edges by the same indices.

    What a step is made of besides itself (`totals.input`) follows it. Only the names differ.
    """

    def former(name: str) -> OperatorName:
        step, dot, part = name.partition(".")
        return OperatorName(f"{renamed.get(OperatorName(step), step)}{dot}{part}")

    def former_vertex(vertex: Vertex) -> Vertex:
        nodes = tuple(
            msgspec.structs.replace(
                node, operator=msgspec.structs.replace(node.operator, name=former(node.operator.name))
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
