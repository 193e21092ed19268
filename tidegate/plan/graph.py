"""The physical plan that the slots run: plain values, created by `build.py` and sent to the slots as JSON.

A pipeline becomes a graph of *vertices*. A vertex is a tree of chained *operators* that runs as a unit in every slot.
Vertices are connected by *edges*: `forward` stays inside the slot, `hash` re-partitions by key group. A vertex with
several input channels aligns barriers (F21); everything inside a vertex is a direct call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.builtin.retry import RETRY
from tidegate.operators.registry import operator_union
from tidegate.operators.spec import ANY_ORDER, Columns, InputOrder, Requirement
from tidegate.user_code.describe import CodeMark
from tidegate.user_code.files import CodeFile

T = TypeVar("T")

RETRY_VERTEX: Final = VertexId(RETRY)
"""The vertex of the source of replayed dead letters."""

if TYPE_CHECKING:
    from tidegate.operators.spec import Operator as AnyOperator
else:
    AnyOperator = operator_union()  # for decoding: all operator kinds, distinguished by their tags


class OutputPath(msgspec.Struct, frozen=True):
    """The destinations of one output: other nodes of the same vertex, then edges that leave it."""

    children: tuple[int, ...] = ()
    edges: tuple[int, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """An operator and the destinations of its rows: other nodes of the same vertex, then edges that leave it."""

    operator: AnyOperator
    children: tuple[int, ...] = ()  # indices into Vertex.nodes; always greater than its own index
    edges: tuple[int, ...] = ()  # indices into Plan.edges
    sides: dict[str, OutputPath] = {}  # side outputs that are read

    @property
    def outputs(self) -> dict[str, OutputPath]:
        """The destinations of the outputs that are read, by name; that of the main one is empty."""
        main = {"": OutputPath(self.children, self.edges)} if self.children or self.edges else {}
        return main | self.sides

    @property
    def all_children(self) -> tuple[int, ...]:
        """Child nodes, including those of side outputs."""
        return tuple(child for way in self.outputs.values() for child in way.children)

    @property
    def all_edges(self) -> tuple[int, ...]:
        """Outgoing edges, including those of side outputs."""
        return tuple(edge for way in self.outputs.values() for edge in way.edges)


class Vertex(msgspec.Struct, frozen=True):
    """A chain (tree) of operators; `nodes[0]` is its head, and only the head receives rows from edges,
    apart from rows of replayed dead letters.
    """

    id: VertexId
    nodes: tuple[Node, ...]


class Edge(msgspec.Struct, frozen=True):
    """An edge from a node of one vertex to another vertex; `keys` is empty for a forward edge."""

    index: int
    upstream: VertexId
    downstream: VertexId
    keys: tuple[str, ...]
    columns: Columns
    port: int = 0  # the input of the head that it feeds
    carries: tuple[Requirement, ...] = ()  # what its rows have in addition to columns
    order: InputOrder = ANY_ORDER  # which sources are on hold because of this port
    alias: str = ""  # the name of the port in the file, if the step names its inputs
    retries: bool = False  # it leads rows of replayed dead letters to an input, and no event time
    node: int = 0  # the node of the downstream vertex that takes the rows; other edges than these lead to the head


class UpgradeDirective(msgspec.Struct, frozen=True):
    """The file's directives about state of an older definition of a step or source (ADR 53)."""

    was: OperatorName = OperatorName("")
    """Its former name."""
    columns: dict[str, str] = {}
    """Columns of its state: current name -> former name."""
    verb: str = ""
    """`keep`, `reset`, or empty."""
    note: str = ""
    drop: tuple[str, ...] = ()
    """Columns of its state to drop."""
    defaults: dict[str, Any] = {}
    """Values of new columns, as written in the file."""


class Plan(msgspec.Struct, frozen=True):
    """The whole graph, vertices in topological order."""

    pipeline: str
    parallelism: int
    max_parallelism: int
    exactly_once: bool
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    modules: dict[str, str] = {}
    """Source texts of the user's modules, see `user_code/modules.py`; not part of the fingerprint."""
    files: tuple[CodeFile, ...] = ()
    """Wheels and data files that user code needs, without their content; not part of the fingerprint."""
    secrets: dict[str, str] = {}
    """Keys of `secret(...)` in expressions, by name; never shown, and not part of the fingerprint."""
    masked: tuple[str, ...] = ()
    """All secrets of the file, if dead letters are written, which must not contain them. Never shown either."""
    directives: dict[OperatorName, UpgradeDirective] = {}
    """Directives by current name; not part of the fingerprint."""

    def inputs_of(self, vertex: VertexId) -> tuple[Edge, ...]:
        """Returns the edges that end in a vertex, in index order."""
        return tuple(edge for edge in self.edges if edge.downstream == vertex)

    def operators(self, kind: type[T]) -> list[T]:
        """Returns all operators of a kind, in the order of the vertices."""
        return [node.operator for node in self.nodes if isinstance(node.operator, kind)]

    @property
    def code(self) -> dict[OperatorName, CodeMark]:
        """The user code of each operator that runs some."""
        described = ((node.operator.name, node.operator.user_code()) for node in self.nodes)
        return {name: code.mark for name, code in described if code is not None}

    @property
    def digests(self) -> dict[str, str]:
        """The files of `code:` by name, with the SHA-256 of their content."""
        return {file.name: file.sha256 for file in self.files}

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, in the order of the vertices."""
        return (node for vertex in self.vertices for node in vertex.nodes)


# -- names -------------------------------------------------------------------------------------------------------------


def derive_edge_names(plan: Plan) -> dict[int, str]:
    """Returns edge names by index: the operator or side output, and the destination.

    The destination includes the port unless it is the first.
    """
    names: dict[int, str] = {}
    for node in plan.nodes:
        for output, way in node.outputs.items():
            name = f"{node.operator.name}.{output}" if output else node.operator.name
            names |= {index: f"{name} -> {_end_of(plan.edges[index])}" for index in way.edges}
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
