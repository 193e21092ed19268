"""The graph before it is cut into vertices: one node per operator, with the names of those it reads."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.ids import OperatorName
from tidegate.plan.expression import Expression, can_fail
from tidegate.plan.graph import AggregateOperator, FilterOperator, Operator, SelectOperator, SinkOperator


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """An operator and its inputs. With `keys` the input is re-partitioned by them."""

    operator: Operator
    inputs: tuple[OperatorName, ...] = ()
    keys: tuple[str, ...] = ()


LogicalGraph = dict[OperatorName, LogicalNode]
"""Nodes in topological order."""

_EXACT_SUM = frozenset(["tinyint", "smallint", "int", "bigint"])


def expressions_of(operator: Operator) -> tuple[Expression, ...]:
    """What an operator evaluates for every record."""
    match operator:
        case FilterOperator(predicate=predicate):
            return (predicate,)
        case SelectOperator(columns=columns):
            return tuple(expression for _, expression in columns)
    return ()


def operator_can_fail(operator: Operator) -> bool:
    """Whether a record may fail in an operator (division by zero, overflow of a sum, a bad cast, a timestamp)."""
    if isinstance(operator, SinkOperator):
        return operator.timestamp is not None
    if isinstance(operator, AggregateOperator):
        return any(
            call.function == "sum" and call.argument is not None and call.argument.type.kind in _EXACT_SUM
            for _, call in operator.aggregates
        )
    return any(map(can_fail, expressions_of(operator)))


def consumers_of(graph: LogicalGraph) -> dict[OperatorName, list[OperatorName]]:
    """Who reads each operator, in topological order."""
    consumers: dict[OperatorName, list[OperatorName]] = {name: [] for name in graph}
    for name, node in graph.items():
        for upstream in node.inputs:
            consumers[upstream].append(name)
    return consumers
