"""The aggregate of a call."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.datatypes import DataType
from tidegate.expressions.expression import AggregateCall, Column, Expression, Literal
from tidegate.operators.aggregation.collecting import Distinct, Listed
from tidegate.operators.aggregation.contract import MergeableAggregate
from tidegate.operators.aggregation.counting import Count
from tidegate.operators.aggregation.decimals import DecimalAverage, DecimalSum
from tidegate.operators.aggregation.doubles import Average, DoubleSum
from tidegate.operators.aggregation.extremes import Extreme
from tidegate.operators.aggregation.integer_sum import IntegerSum
from tidegate.operators.aggregation.moments import Moments
from tidegate.operators.aggregation.parts import TIME, Part, derive_parts
from tidegate.operators.aggregation.percentiles import Percentile
from tidegate.operators.aggregation.picking import Picked


def make_mergeable(name: str, call: AggregateCall) -> MergeableAggregate:
    """The aggregate of a call whose arguments are plain columns. `name` begins the names of its parts."""
    if call.function == "count":
        return Count(name, None if call.argument is None else _name_of(call.argument))
    argument = _name_of(call.argument)
    parts = derive_parts(call)
    match call.function:
        case "sum":
            return _make_sum(name, argument, call.type)
        case "avg" if call.type.kind == "decimal":
            return DecimalAverage(name, argument, _type_of(call.argument), call.type)
        case "avg":
            return Average(name, argument)
        case "min" | "max" | "bool_and" | "bool_or":
            return Extreme(name, argument, call.type, parts, greatest=call.function in ("max", "bool_or"))
        case "first" | "last":
            return Picked(name, argument, TIME, parts, last=call.function == "last")
        case "min_by" | "max_by":
            return Picked(name, argument, _name_of(call.others[0]), parts, last=call.function == "max_by")
        case "stddev_samp" | "stddev_pop" | "var_samp" | "var_pop":
            sample, root = call.function.endswith("_samp"), call.function.startswith("stddev")
            return Moments(name, argument, sample=sample, root=root)
    return _make_keeping(name, call, argument, parts)


def _make_sum(name: str, argument: str, kind: DataType) -> MergeableAggregate:
    if kind.kind == "decimal":
        return DecimalSum(name, argument, kind)
    return DoubleSum(name, argument) if kind.kind == "double" else IntegerSum(name, argument)


def _make_keeping(name: str, call: AggregateCall, argument: str, parts: Sequence[Part]) -> MergeableAggregate:
    """The functions whose accumulators grow with the group."""
    assert call.argument is not None
    kind = call.argument.type
    match call.function:
        case "count_distinct" | "collect_set":
            return Distinct(name, argument, kind, parts, collect=call.function == "collect_set")
        case "collect_list":
            return Listed(name, argument, kind, parts)
        case "approx_count_distinct":
            from tidegate.operators.aggregation.sketches import ApproximateCount  # it imports numpy

            return ApproximateCount(name, argument, kind, parts)
        case "percentile_approx":
            (share,) = call.others
            assert isinstance(share, Literal)
            return Percentile(name, argument, kind, float(share.value or 0), parts)
    raise ValueError(f"unknown aggregate function {call.function!r}")


def _type_of(argument: Expression | None) -> DataType:
    assert argument is not None
    return argument.type


def _name_of(argument: Expression | None) -> str:
    if not isinstance(argument, Column):
        raise TypeError(f"{argument} is no plain column")
    return argument.name
