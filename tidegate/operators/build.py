"""From the plan's description of an operator to the thing that runs it."""

from __future__ import annotations

from tidegate.operators.aggregate import AggregateRuntime
from tidegate.operators.base import OperatorRuntime
from tidegate.operators.filter import FilterRuntime
from tidegate.operators.select import SelectRuntime
from tidegate.operators.union import UnionRuntime
from tidegate.plan.graph import AggregateOperator, FilterOperator, Operator, SelectOperator, UnionOperator


def build_operator(operator: Operator, max_parallelism: int) -> OperatorRuntime:
    """The runtime of a filter, select, union or aggregate; sources and sinks are built by their own rooms."""
    match operator:
        case FilterOperator():
            return FilterRuntime(operator)
        case SelectOperator():
            return SelectRuntime(operator)
        case UnionOperator():
            return UnionRuntime(operator)
        case AggregateOperator():
            return AggregateRuntime(operator, max_parallelism)
        case _:
            raise TypeError(f"{operator.name}: {type(operator).__name__} does not process rows")
