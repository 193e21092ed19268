"""The column types of a pipeline, named as in Spark SQL.

Values on the data plane are Polars columns; this module knows neither Polars nor Arrow, so that the daemon can reason
about schemas without importing either.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Kind = str
"""`boolean tinyint smallint int bigint float double string binary date timestamp array struct void interval`."""


class DataType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Spark SQL type. `element` is set for arrays, `fields` for structs; every type is nullable.

    `timestamp` is an instant in UTC with microseconds, `date` a day, `void` the type of a bare NULL and `interval` a
    day-time interval that exists only inside expressions.
    """

    kind: Kind
    element: DataType | None = None
    fields: tuple[tuple[str, DataType], ...] = ()

    def __str__(self) -> str:
        if self.kind == "array":
            return f"array<{self.element}>"
        if self.kind == "struct":
            return "struct<" + ", ".join(f"{name}: {kind}" for name, kind in self.fields) + ">"
        return self.kind


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
VOID = DataType("void")
INTERVAL = DataType("interval")

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970: no date is outside, and no timestamp but those of these days."""
FIRST_MOMENT, LAST_MOMENT = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
"""The same for timestamps, in microseconds since 1970, both inclusive."""

Schema = Mapping[str, DataType]
"""Column name -> type, in column order."""
