"""The physical plan: what the slots run. Plain values, made by `build.py`, shipped to the slots as JSON.

A pipeline becomes a graph of *vertices*; a vertex is a tree of chained *operators* that runs in one piece in every
slot. Vertices are joined by *edges*: `forward` stays inside the slot, `hash` re-partitions by key group. A vertex
with several input channels aligns barriers (F21); everything inside a vertex is a direct call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidegate.ids import OperatorName, VertexId
from tidegate.operators.registry import operator_union
from tidegate.operators.spec import ANY_ORDER, Columns, InputOrder, Requirement

T = TypeVar("T")

if TYPE_CHECKING:
    from tidegate.operators.spec import Operator as AnyOperator
else:
    AnyOperator = operator_union()  # what a plan is decoded as: the kinds that there are, told apart by their tags


class OutputPath(msgspec.Struct, frozen=True):
    """Where the rows of one output go: other nodes of the same vertex, then edges that leave it."""

    children: tuple[int, ...] = ()
    edges: tuple[int, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """An operator and where its rows go: other nodes of the same vertex, then edges that leave it."""

    operator: AnyOperator
    children: tuple[int, ...] = ()  # indices into Vertex.nodes; always greater than the own index
    edges: tuple[int, ...] = ()  # indices into Plan.edges
    sides: dict[str, OutputPath] = {}  # of its side outputs that are read

    @property
    def all_children(self) -> tuple[int, ...]:
        """Those of side outputs included."""
        return (*self.children, *(child for way in self.sides.values() for child in way.children))

    @property
    def all_edges(self) -> tuple[int, ...]:
        """Those of side outputs included."""
        return (*self.edges, *(edge for way in self.sides.values() for edge in way.edges))


class Vertex(msgspec.Struct, frozen=True):
    """A chain (tree) of operators; `nodes[0]` is its head, and only the head receives from edges."""

    id: VertexId
    nodes: tuple[Node, ...]


class Edge(msgspec.Struct, frozen=True):
    """From a node of one vertex to the head of another. `keys` is empty for a forward edge."""

    index: int
    upstream: VertexId
    downstream: VertexId
    keys: tuple[str, ...]
    columns: Columns
    port: int = 0  # which input of the head it feeds
    carries: tuple[Requirement, ...] = ()  # what its rows have besides columns
    order: InputOrder = ANY_ORDER  # which sources are on hold because of this port


class UpgradeDirective(msgspec.Struct, frozen=True):
    """What the file says about state that an older definition of a step, or of a source, has made (ADR 53)."""

    was: OperatorName = OperatorName("")
    """Its former name."""
    columns: dict[str, str] = {}
    """Columns of its state: name of now -> former name."""
    verb: str = ""
    """`keep`, `reset`, or nothing."""
    note: str = ""
    drop: tuple[str, ...] = ()
    """Columns of its state that are given up."""
    defaults: dict[str, Any] = {}
    """Values of new columns, as the file has them."""


class Plan(msgspec.Struct, frozen=True):
    """The whole graph, vertices in topological order."""

    pipeline: str
    parallelism: int
    max_parallelism: int
    exactly_once: bool
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    modules: dict[str, str] = {}
    """Source texts of the user's modules, see `operators/calls/user_code.py`. Not part of what a plan means."""
    secrets: dict[str, str] = {}
    """Keys of `secret(...)` in expressions, by name. Not part of what a plan means, and never shown."""
    masked: tuple[str, ...] = ()
    """What dead letters must not have, where there are any: all secrets of the file. As `secrets`."""
    words: dict[OperatorName, UpgradeDirective] = {}
    """By the names of now. Not part of what a plan means either."""

    def inputs_of(self, vertex: VertexId) -> tuple[Edge, ...]:
        """The edges that end in a vertex, in index order."""
        return tuple(edge for edge in self.edges if edge.downstream == vertex)

    def operators(self, kind: type[T]) -> list[T]:
        """All operators of a kind, in the order of the vertices."""
        return [node.operator for node in self.nodes if isinstance(node.operator, kind)]

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, in the order of the vertices."""
        return (node for vertex in self.vertices for node in vertex.nodes)
