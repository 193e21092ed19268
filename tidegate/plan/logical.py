"""The graph before it is cut into vertices: one node per operator, with what it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.formats.dead_letters import DEAD_LETTER_COLUMNS
from tidegate.ids import OperatorName
from tidegate.operators.spec import DEAD, Columns, Operator, Requirement


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
    """The columns that go from an operator to one that reads it over an edge, in their order."""
    columns = DEAD_LETTER_COLUMNS if one.output == DEAD else graph[one.upstream].operator.output_columns(one.output)
    read = reader.reads(one.port)
    return tuple(column for column in columns if column[0] in read)


def derive_carried(operator: Operator, port: int) -> tuple[Requirement, ...]:
    """What the rows of an input must have besides columns: what the operator requires, and what it passes on.

    Headers pass only with the record that they are of.
    """
    passed = {*operator.planned.carries}
    if port or not any(map(operator.preserves_record, ("", *operator.side_outputs()))):
        passed.discard(Requirement.HEADERS)
    return order_requirements(passed | operator.requires(port))


def order_requirements(found: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Each once, in the order of the enumeration: a plan is written the same way every time."""
    return tuple(sorted({*found}, key=list(Requirement).index))
