"""Column types of a pipeline as Polars types: what a frame between operators looks like."""

from __future__ import annotations

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
