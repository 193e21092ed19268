"""Column types of a pipeline as Polars types: what a frame between operators looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidegate.datatypes import DataType

TIMESTAMP = pl.Datetime("us", "UTC")
_POLARS: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "tinyint": pl.Int8(),
    "smallint": pl.Int16(),
    "int": pl.Int32(),
    "bigint": pl.Int64(),
    "float": pl.Float32(),
    "double": pl.Float64(),
    "string": pl.String(),
    "binary": pl.Binary(),
    "date": pl.Date(),
    "timestamp": TIMESTAMP,
    "interval": pl.Duration("us"),
    "void": pl.Null(),
}

_PHYSICAL: dict[str, pl.DataType] = {"date": pl.Int32(), "timestamp": pl.Int64()}


def polars_type(kind: DataType) -> pl.DataType:
    """The Polars type of a column; `interval` and `void` exist only inside expressions."""
    if kind.kind == "array" and kind.element is not None:
        return pl.List(polars_type(kind.element))
    if kind.kind == "struct":
        return pl.Struct([pl.Field(name, polars_type(field)) for name, field in kind.fields])
    return _POLARS[kind.kind]


def type_instance(kind: object) -> pl.DataType:
    """Polars allows a class where it means an instance of it."""
    return kind() if isinstance(kind, type) else kind  # type: ignore[return-value]  # DataTypeClass or DataType


def plain_values(column: pl.Series) -> list[Any]:
    """Values as they are kept in a state: dates as days, timestamps as microseconds since 1970."""
    values: list[Any] = (column.to_physical() if column.dtype.is_temporal() else column).to_list()
    return values


def make_column(name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
    """The opposite of `plain_values`. Raises TypeError for values that the type does not hold."""
    physical = _PHYSICAL.get(kind.kind)
    if physical is None:
        return pl.Series(name, values, dtype=polars_type(kind))
    return pl.Series(name, values, dtype=physical).cast(polars_type(kind))
