"""The column types of a pipeline, named as in Spark SQL.

Values on the data plane are Polars columns. This module uses neither Polars nor Arrow, so that the daemon can reason
about schemas without importing either.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from decimal import Context, Decimal
from typing import Final

import msgspec

Kind = str
"""`boolean tinyint smallint int bigint float double decimal string binary date timestamp timestamp_ntz array struct map
void interval months`."""

NESTED: Final = frozenset({"array", "map", "struct"})
"""Kinds of types that hold other types."""
RESERVED: Final = "__tidegate"
"""Prefix of the engine's own column names; user columns may not have it."""
MAX_PRECISION = 38
"""Digits of a decimal, as in Spark."""


class DataType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Spark SQL type.

    `element` is set for arrays and maps (the values), `key` for maps, `fields` for structs, `precision` and `scale` for
    decimals. Every type is nullable, except the keys of a map.

    `timestamp` is an instant in UTC with microseconds, `timestamp_ntz` a date and a time of day without zone, `date` a
    day, `void` the type of a bare NULL. Intervals (`INTERVALS`) exist only inside expressions.
    """

    kind: Kind
    element: DataType | None = None
    fields: tuple[tuple[str, DataType], ...] = ()
    key: DataType | None = None
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind == "array":
            return f"array<{self.element}>"
        if self.kind == "struct":
            return "struct<" + ", ".join(f"{name}: {kind}" for name, kind in self.fields) + ">"
        if self.kind == "map":
            return f"map<{self.key}, {self.element}>"
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.kind


def is_pattern(name: str) -> bool:
    """Returns whether Polars takes the column name as a pattern: `*`, or a regular expression from `^` to `$`."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def decimal_of(precision: int, scale: int = 0) -> DataType:
    """Returns `decimal(precision, scale)`: `precision` digits, `scale` of them after the point."""
    return DataType("decimal", precision=precision, scale=scale)


def units_of(value: Decimal, scale: int) -> int:
    """Returns the number without its point: 12.50 of scale 2 is 1250."""
    return int(EXACT.scaleb(value, scale))


def decimal_of_units(units: int, scale: int) -> Decimal:
    """Returns the inverse of `units_of`, with all digits of the scale."""
    return EXACT.scaleb(Decimal(units), -scale)


def map_of(key: DataType, value: DataType) -> DataType:
    """Returns `map<key, value>`."""
    return DataType("map", element=value, key=key)


def entry_of(kind: DataType) -> DataType:
    """Returns the struct of `key` and `value` that represents an entry of a map."""
    assert kind.key is not None
    assert kind.element is not None
    return DataType("struct", fields=(("key", kind.key), ("value", kind.element)))


def is_reserved(column: str) -> bool:
    """Returns whether a column name is reserved for the engine, ignoring case."""
    return column.lower().startswith(RESERVED)


def parts_of(kind: DataType) -> tuple[DataType, ...]:
    """Returns the types directly within an array, a map (its entries) or a struct; empty for any other type."""
    if kind.kind == "map":
        return (entry_of(kind),)
    return (*(() if kind.element is None else (kind.element,)), *(part for _, part in kind.fields))


def holds_kind(kind: DataType, wanted: Collection[Kind]) -> bool:
    """Returns whether a type, or one nested at any depth in it, is of one of these kinds."""
    return kind.kind in wanted or any(holds_kind(part, wanted) for part in parts_of(kind))


BOOLEAN = DataType("boolean")
TINYINT = DataType("tinyint")
SMALLINT = DataType("smallint")
INT = DataType("int")
BIGINT = DataType("bigint")
FLOAT = DataType("float")
DOUBLE = DataType("double")
STRING = DataType("string")
BINARY = DataType("binary")
DATE = DataType("date")
TIMESTAMP = DataType("timestamp")
TIMESTAMP_NTZ = DataType("timestamp_ntz")
VOID = DataType("void")
INTERVAL = DataType("interval")
INTERVALS: Final = frozenset({"interval", "months"})
"""Kinds of intervals: of microseconds, and of months."""

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970. All dates and timestamps lie within these days."""
FIRST_MOMENT, LAST_MOMENT = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
"""The same for timestamps, in microseconds since 1970, both inclusive."""

FLOAT_BOUND: Final = math.nextafter(2.0**128 - 2.0**103, 0)
"""The last double whose nearest float is finite.

The shortest text of the largest float, `3.4028235E38` as Java and Polars write it, is a double beyond that float.
"""

EXACT: Final = Context(prec=1000)
"""Decimal arithmetic without rounding; a thread's default context keeps only 28 digits."""

Schema = Mapping[str, DataType]
"""Column name -> type, in column order."""
