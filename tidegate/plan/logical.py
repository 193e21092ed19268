"""The graph before it is cut into vertices: one node per operator, with its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.formats.dead_letters import DEAD_LETTER_COLUMNS
from tidegate.ids import OperatorName
from tidegate.operators.spec import DEAD, Columns, Operator, Requirement


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
