"""Only what is needed: columns that nobody reads are neither computed nor sent (a source checks them all the same)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tidegate.expressions.expression import can_fail, columns_of
from tidegate.ids import OperatorName
from tidegate.plan.graph import (
    AggregateOperator,
    Columns,
    FilterOperator,
    Operator,
    SelectOperator,
    SinkOperator,
    SourceOperator,
    UnionOperator,
)
from tidegate.plan.logical import LogicalGraph, LogicalNode


def derive_reachable(graph: LogicalGraph) -> LogicalGraph:
    """The part of the graph that leads to a sink."""
    needed: set[OperatorName] = set()
    for name in reversed(graph):
        if name in needed or isinstance(graph[name].operator, SinkOperator):
            needed.add(name)
            needed.update(graph[name].inputs)
    return {name: node for name, node in graph.items() if name in needed}


def derive_pruned(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with narrow outputs."""
    needed: dict[OperatorName, set[str]] = {name: set() for name in graph}
    narrowed: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = _narrow(node.operator, needed[name])
        narrowed[name] = LogicalNode(operator, node.inputs, node.keys)
        for upstream in node.inputs:
            needed[upstream] |= reads_of(operator)
    return {name: narrowed[name] for name in graph}


def reads_of(operator: Operator) -> set[str]:
    """The columns of its input that an operator needs, for itself or to pass them on."""
    match operator:
        case FilterOperator(predicate=predicate, output=output):
            return {name for name, _ in output} | columns_of(predicate)
        case SelectOperator(columns=columns):
            return {name for _, expression in columns for name in columns_of(expression)}
        case AggregateOperator(keys=keys, aggregates=aggregates):
            return {*keys, *(name for _, call in aggregates for name in columns_of(call.argument))}
        case SinkOperator(columns=written, key=key, timestamp=timestamp):
            return {name for name, _ in written} | {name for name in (key, timestamp) if name is not None}
        case UnionOperator(output=output):
            return {name for name, _ in output}
    return set()


def _keep(columns: Columns, needed: Iterable[str]) -> Columns:
    # A frame without columns has no rows: the first column stays when nothing is needed (`select: {one: 1}`).
    wanted = set(needed)
    return tuple(column for column in columns if column[0] in wanted) or columns[:1]


def _narrow(operator: Operator, needed: set[str]) -> Operator:
    if isinstance(operator, SelectOperator):
        # What can fail is kept: a record's fate must not depend on what happens to be read further down.
        fallible = {name for name, expression in operator.columns if can_fail(expression)}
        output = _keep(operator.output, needed | fallible)
        kept = {name for name, _ in output}
        columns = tuple(column for column in operator.columns if column[0] in kept)
        return msgspec.structs.replace(operator, columns=columns, output=output)
    if isinstance(operator, SourceOperator | FilterOperator | UnionOperator):
        return msgspec.structs.replace(operator, output=_keep(operator.output, needed))
    return operator
