"""Aggregates as a pipeline file has them, over whole groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import AggregateCall, Column, Expression, Literal
from tidegate.expressions.parse import parse_aggregate
from tidegate.operators.aggregation.contract import derive_accumulators
from tidegate.operators.aggregation.reduction import reduce_rows
from tidegate.operators.aggregation.registry import make_mergeable


def reduce_text(frame: pl.DataFrame, schema: Mapping[str, DataType], texts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Key and results of each group. Rows have the key `k` and the event time `at`."""
    inputs: dict[str, Expression] = {}
    aggregates = []
    for index, text in enumerate(texts):
        call = parse_aggregate(text, schema, windowed=True)
        plain: list[Expression] = []
        for position, argument in enumerate(call.arguments):
            name = f"a{index}.{position}"
            if isinstance(argument, Literal) and position:
                plain.append(argument)
            else:
                inputs[name] = argument
                plain.append(Column(name, argument.type))
        made = AggregateCall(call.function, plain[0] if plain else None, call.type, tuple(plain[1:]))
        aggregates.append((f"r{index}", make_mergeable(f"r{index}", made)))
    rows, failures = compile_projection(list(inputs.items())).apply(frame, keep=["k", "at"])
    assert not failures
    parts = reduce_rows(rows.rename({"at": "__time"}), ["k"], [aggregate for _, aggregate in aggregates])
    results = [one.results(derive_accumulators(name, one.parts, parts)) for name, one in aggregates]
    return pl.DataFrame([parts["k"], *results]).rows()
