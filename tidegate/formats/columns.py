"""How a data type of a pipeline looks as a Polars column."""

from __future__ import annotations

import polars as pl

from tidegate.datatypes import DataType

_SCALARS: dict[str, pl.DataType] = {
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
    "timestamp": pl.Datetime("us", "UTC"),
    "interval": pl.Duration("us"),
    "void": pl.Null(),
}


def polars_type(kind: DataType) -> pl.DataType:
    """The Polars type that holds every value of `kind`."""
    if kind.kind == "array":
        assert kind.element is not None
        return pl.List(polars_type(kind.element))
    if kind.kind == "struct":
        return pl.Struct({name: polars_type(part) for name, part in kind.fields})
    return _SCALARS[kind.kind]
