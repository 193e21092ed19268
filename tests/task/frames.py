"""Data frames for tests of the task room."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl

from tidegate.task.elements import Batch

ALL_TYPES: dict[str, Callable[[], pl.Series]] = {
    "boolean": lambda: pl.Series([True, None, False]),
    "tinyint": lambda: pl.Series([-128, None, 127], dtype=pl.Int8),
    "smallint": lambda: pl.Series([-32768, None, 32767], dtype=pl.Int16),
    "int": lambda: pl.Series([-(2**31), None, 2**31 - 1], dtype=pl.Int32),
    "bigint": lambda: pl.Series([-(2**63), None, 2**63 - 1], dtype=pl.Int64),
    "float": lambda: pl.Series([1.5, None, float("inf")], dtype=pl.Float32),
    "double": lambda: pl.Series([float("nan"), None, -0.0], dtype=pl.Float64),
    "string": lambda: pl.Series(["", None, "größer \U0001f600"]),
    "binary": lambda: pl.Series([b"", None, b"\x00\xff"]),
    "date": lambda: pl.Series([date(1969, 12, 31), None, date(9999, 12, 31)]),
    "timestamp": lambda: pl.Series([datetime(2026, 1, 1, tzinfo=UTC), None, datetime(1, 1, 1, tzinfo=UTC)]).cast(
        pl.Datetime("us", "UTC")
    ),
    "timestamp_ntz": lambda: pl.Series([0, None, -62_135_596_800_000_000]).cast(pl.Datetime("us")),
    "decimal": lambda: pl.Series(["-0.01", None, "9" * 36 + ".99"]).cast(pl.Decimal(38, 2)),
    "map": lambda: pl.Series(
        [[{"key": "a", "value": Decimal("1.50")}], None, []],
        dtype=pl.List(pl.Struct({"key": pl.String, "value": pl.Decimal(10, 2)})),
    ),
    "array": lambda: pl.Series([[1, None], None, []], dtype=pl.List(pl.Int64)),
    "nested": lambda: pl.Series([[["a"], []], None, [None]], dtype=pl.List(pl.List(pl.String))),
    "struct": lambda: pl.Series(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": None}], dtype=pl.Struct({"a": pl.Int32, "b": pl.String})
    ),
    "void": lambda: pl.Series([None, None, None], dtype=pl.Null),
}
"""One column per column type of a pipeline, NULL and extreme values included. Made when asked for: an import that
starts the threads of Polars leaves them dead in whatever is forked afterwards (`make mutants`)."""


def batch_of(frame: pl.DataFrame) -> Batch:
    """A batch as an edge makes it."""
    return Batch(frame, int(frame.estimated_size()))


def numbers(*values: int) -> pl.DataFrame:
    """One column `n`."""
    return pl.DataFrame({"n": pl.Series(values, dtype=pl.Int64)})


def ipc_bytes(frame: pl.DataFrame) -> bytes:
    """For comparing frames bit by bit, NaN and -0.0 included."""
    buffer = io.BytesIO()
    frame.rechunk().write_ipc_stream(buffer)
    return buffer.getvalue()
