"""The physical plan: what the slots run. Plain values, made by `build.py`, shipped to the slots as JSON.

A pipeline becomes a graph of *vertices*; a vertex is a tree of chained *operators* that runs in one piece in every
slot. Vertices are joined by *edges*: `forward` stays inside the slot, `hash` re-partitions by key group. A vertex
with several input channels aligns barriers (F21); everything inside a vertex is a direct call.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.expression import AggregateCall, Expression
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, VertexId

Columns = tuple[tuple[str, DataType], ...]

T = TypeVar("T")


class SourceOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="source"):
    """Reads Kafka partitions, decodes `schema`, emits `output` (only the columns that anything downstream reads).

    Its rows carry `__partition` and `__offset`: wherever one fails further down, it is reported by them.
    """

    name: OperatorName
    topics: tuple[str, ...]
    format: str  # "json" | "raw"
    schema: Columns  # as declared
    output: Columns  # what is decoded and emitted
    start: str | dict[int, int]  # "earliest" | "latest" | ISO-8601 timestamp | {partition: offset}
    until: str  # "never" | "latest" | ISO-8601 timestamp
    bad_records: BadRecordPolicy
    kafka: dict[str, str]  # librdkafka properties without secrets resolved away: complete, engine defaults included


class UnionOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="union"):
    """Passes on whatever arrives on any input; the schemas are equal."""

    name: OperatorName
    output: Columns
    bad_records: BadRecordPolicy


class FilterOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="filter"):
    """Keeps the rows for which the predicate is true (NULL drops, as in SQL)."""

    name: OperatorName
    predicate: Expression
    output: Columns
    bad_records: BadRecordPolicy


class SelectOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="select"):
    """Computes new columns from old ones, all at once."""

    name: OperatorName
    columns: tuple[tuple[str, Expression], ...]
    output: Columns
    bad_records: BadRecordPolicy


class AggregateOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="aggregate"):
    """Running totals per key. Inputs of the aggregates are plain columns: `build.py` puts a select in front."""

    name: OperatorName
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]  # argument is a Column or None
    emit: str  # "each" | "latest"
    output: Columns
    bad_records: BadRecordPolicy


class SinkOperator(msgspec.Struct, frozen=True, tag_field="operator", tag="sink"):
    """Writes Kafka records inside the transaction of the current checkpoint interval."""

    name: OperatorName
    topic: str
    format: str  # "json" | "raw"
    columns: Columns  # what is written, in order (json: the fields of the object)
    key: str | None  # column whose text is the record key
    timestamp: str | None  # column that becomes the record timestamp; rows whose value Kafka cannot store are bad
    bad_records: BadRecordPolicy
    kafka: dict[str, str]


Operator = SourceOperator | UnionOperator | FilterOperator | SelectOperator | AggregateOperator | SinkOperator


class Node(msgspec.Struct, frozen=True):
    """An operator and where its rows go: other nodes of the same vertex, then edges that leave it."""

    operator: Operator
    children: tuple[int, ...] = ()  # indices into Vertex.nodes; always greater than the own index
    edges: tuple[int, ...] = ()  # indices into Plan.edges


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


class Plan(msgspec.Struct, frozen=True):
    """The whole graph, vertices in topological order."""

    pipeline: str
    parallelism: int
    max_parallelism: int
    exactly_once: bool
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def inputs_of(self, vertex: VertexId) -> tuple[Edge, ...]:
        """The edges that end in a vertex, in index order."""
        return tuple(edge for edge in self.edges if edge.downstream == vertex)

    def operators(self, kind: type[T]) -> list[T]:
        """All operators of a kind, in the order of the vertices."""
        return [node.operator for vertex in self.vertices for node in vertex.nodes if isinstance(node.operator, kind)]
