"""Builds aggregate operators and frames for the tests of operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tests.operators.driven import Driven, drive
from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, DataType
from tidegate.expressions.decimal_types import derive_average_type, derive_sum_type
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator

FUNCTIONS = ("count(*)", "count", "sum", "min", "max", "avg", "first", "last")


def result_type(function: str, argument: DataType) -> DataType:
    """Spark's type of an aggregate."""
    if argument.kind == "decimal" and function in ("sum", "avg"):
        return derive_sum_type(argument) if function == "sum" else derive_average_type(argument)
    if function.startswith("count"):
        return BIGINT
    if function in ("avg", "var_pop", "stddev_samp"):
        return DOUBLE
    if function == "sum":
        return DOUBLE if argument.kind in ("float", "double") else BIGINT
    return argument


def make_aggregate(
    functions: Sequence[str],
    argument: DataType = BIGINT,
    keys: Mapping[str, DataType] | None = None,
    emit: str = "each",
    backend: str = "memory",
    *,
    condition: str = "",
    ignore_nulls: bool = False,
) -> Driven:
    """Keys are `k: bigint` unless given; each function of column `x` gives a column named after it.

    `condition`: the column of FILTER.
    """
    keys = {"k": BIGINT} if keys is None else keys
    column = ColumnReference("x", argument)
    calls = tuple(
        (
            f,
            AggregateCall(
                f.removesuffix("(*)"),
                None if f == "count(*)" else column,
                result_type(f, argument),
                condition=ColumnReference(condition, BOOLEAN) if condition else None,
                ignore_nulls=ignore_nulls,
            ),
        )
        for f in functions
    )
    operator = AggregateOperator(
        name=OperatorName("totals"),
        keys=tuple(keys),
        aggregates=calls,
        emit=emit,
        output=(*keys.items(), *((name, call.type) for name, call in calls)),
        bad_records=BadRecordPolicy.SKIP,
    )
    return drive(operator, backend)


def make_frame(schema: Mapping[str, DataType], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    """Rows as a frame."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pl.DataFrame(
        [
            pl.Series(name, values, dtype=polars_type(kind))
            for (name, kind), values in zip(schema.items(), columns, strict=True)
        ]
    )
