"""The graph before it is cut into vertices: one node per operator, with what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.ids import OperatorName
from tidegate.operators.spec import Columns, Operator


@dataclass(frozen=True, slots=True)
class Input:
    """What an operator reads: an output of another (empty: its main one). With `keys` it is re-partitioned by them."""

    upstream: OperatorName
    output: str = ""
    port: int = 0
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """An operator and its inputs."""

    operator: Operator
    inputs: tuple[Input, ...] = ()
    headers: bool = False
    """It, or an operator downstream, needs the headers of records."""

    @property
    def starts_vertex(self) -> bool:
        """Whether it is the head of a vertex: a source, after an exchange, with several inputs, or by itself."""
        return len(self.inputs) != 1 or bool(self.inputs[0].keys) or self.operator.BEGINS_VERTEX


LogicalGraph = dict[OperatorName, LogicalNode]
"""Nodes in topological order."""


def upstream_of(graph: LogicalGraph, names: Iterable[OperatorName]) -> set[OperatorName]:
    """These and everything that leads to them."""
    found = set(names)
    for name in reversed(graph):
        if name in found:
            found.update(one.upstream for one in graph[name].inputs)
    return found


def downstream_of(graph: LogicalGraph, names: Iterable[OperatorName]) -> set[OperatorName]:
    """These and everything after them."""
    found = set(names)
    for name, node in graph.items():
        if any(one.upstream in found for one in node.inputs):
            found.add(name)
    return found


def derive_crossing(graph: LogicalGraph, one: Input, reader: Operator) -> Columns:
    """What goes from an operator to one that reads it over an exchange."""
    return reader.accepts(graph[one.upstream].operator.produces_at(one.output))
