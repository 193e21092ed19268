"""Reduces rows to results in ways that the data plane could take: batches, partial results, accumulators."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from typing import Any

import polars as pl

from tidegate.datatypes import BIGINT, DOUBLE, DataType
from tidegate.expressions.decimal_types import derive_average_type, derive_sum_type
from tidegate.expressions.expression import AggregateCall, ColumnReference, Expression, Literal
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateTooLarge,
    AggregateUse,
    Value,
    derive_accumulators,
    derive_columns,
)
from tidegate.operators.aggregates.registry import make_aggregate
from tidegate.operators.kinds.window.running.partial import reduce_parts, reduce_rows

Row = tuple[Any, ...]
"""Event time and value, and what min_by goes by."""

NAME = "total"


DOUBLES = ("avg", "stddev_samp", "stddev_pop", "var_samp", "var_pop")
BIGINTS = ("count", "count_distinct", "approx_count_distinct")


def make_call(function: str, kind: DataType, by: DataType = BIGINT, share: float = 0.5) -> AggregateCall:
    """A function of the column `x`; min_by and max_by go by the column `y`."""
    if function == "count(*)":
        return AggregateCall("count", None, BIGINT)
    result = DOUBLE if function in DOUBLES else BIGINT if function in BIGINTS else kind
    if kind.kind == "decimal" and function in ("sum", "avg"):
        result = derive_sum_type(kind) if function == "sum" else derive_average_type(kind)
    if function == "sum" and kind.kind in ("tinyint", "smallint", "int"):
        result = BIGINT
    if function in ("collect_list", "collect_set"):
        result = DataType("array", element=kind)
    others: tuple[Expression, ...] = (ColumnReference("y", by),) if function in ("min_by", "max_by") else ()
    if function == "percentile_approx":
        others = (Literal(share, DOUBLE),)
    return AggregateCall(function, ColumnReference("x", kind), result, others)


def make_mergeable(name: str, call: AggregateCall) -> Aggregate:
    """An aggregate of windows."""
    return make_aggregate(name, call, AggregateUse.WINDOW)


def make_rows(rows: Sequence[Row], kind: DataType, by: DataType = BIGINT) -> pl.DataFrame:
    """A batch of one key. Values are plain: dates and timestamps are numbers. A row may have a third value, `y`."""
    frame = pl.DataFrame(
        {"k": [7] * len(rows), "__tidegate_time": pl.Series([row[0] for row in rows], dtype=pl.Int64)},
    )
    columns = [make_column("x", kind, [row[1] for row in rows])]
    if rows and len(rows[0]) > 2:
        columns.append(make_column("y", by, [row[2] for row in rows]))
    return frame.with_columns(columns)


def reduce_in_one(aggregate: Aggregate, rows: pl.DataFrame) -> Value:
    """All rows in one batch."""
    (value,) = derive_accumulators(aggregate, reduce_rows(rows, ["k"], [aggregate]))
    return value


def fold_rows(aggregate: Aggregate, rows: pl.DataFrame) -> Value:
    """Rows one by one, from the zero."""
    values = [value for value in aggregate.read(rows) if value is not None or aggregate.takes_null]
    return reduce(aggregate.add, values, aggregate.zero)


def reduce_in_pieces(aggregate: Aggregate, rows: pl.DataFrame, seed: int) -> Value:
    """Rows in another order, cut into batches, which are joined by `from_parts` and `merge`, in no particular order."""
    choice = random.Random(seed)
    rows = rows[choice.sample(range(rows.height), rows.height)]
    cuts = sorted(choice.choices(range(rows.height + 1), k=choice.randrange(6)))
    pieces = [rows[start:end] for start, end in zip([0, *cuts], [*cuts, rows.height], strict=True) if end > start]
    values = [reduce_in_one(aggregate, piece) for piece in pieces]
    while len(values) > 1:
        taken = [values.pop(choice.randrange(len(values))) for _ in range(min(len(values), choice.choice([2, 2, 3])))]
        if len(taken) == 2 and choice.random() < 0.5:
            values.append(aggregate.merge(*taken))
        else:
            columns = derive_columns(aggregate, taken)
            frame = pl.DataFrame([pl.Series("k", [7] * len(taken)), *columns])
            (value,) = derive_accumulators(aggregate, reduce_parts(frame, ["k"], [aggregate]))
            values.append(value)
    return values[0]


def result_of(aggregate: Aggregate, value: Value) -> Any:
    """The result, or the error that it is; two results are the same when their texts are."""
    try:
        (result,) = aggregate.results([value])
    except (OverflowError, AggregateTooLarge) as error:
        return type(error).__name__
    (found,) = plain_values(make_column(NAME, aggregate.call.type, [result]))
    return list(found) if isinstance(found, tuple) else found
