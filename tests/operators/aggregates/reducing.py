"""Aggregates as a pipeline file has them, over whole groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.parse import parse_aggregate
from tidegate.operators.kinds.aggregate import derive_inputs
from tidegate.operators.kinds.window.running.partial import Aggregates


def reduce_text(frame: pl.DataFrame, schema: Mapping[str, DataType], texts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Key and results of each group. Rows have the key `k` and the event time `at`."""
    calls = {f"r{index}": parse_aggregate(text, schema, windowed=True) for index, text in enumerate(texts)}
    inputs, plain = derive_inputs(("k",), calls, schema)
    times = frame["at"].cast(pl.Int64).alias("__tidegate_time")
    rows, failures = compile_projection(list(inputs.items())).apply(frame.with_columns(times), keep=["__tidegate_time"])
    assert not failures
    aggregates = Aggregates(list(plain.items()))
    parts = aggregates.reduce_rows(rows, ["k"])
    return pl.DataFrame([parts["k"], *aggregates.results_of(parts)]).rows()
