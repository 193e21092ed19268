"""Converts frames of user code to the columns of an output: by column, and only where no value changes.

The type of a column decides whether it can be converted: `Int32` to bigint, any time zone to `timestamp`, categories to
string. Decimals and nanoseconds are also checked value by value, as are the limits that Polars does not know: the years
1 to 9999, and the keys of maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import and_
from typing import Final

import polars as pl

from tidegate.datatypes import (
    FIRST_DAY,
    FIRST_MOMENT,
    LAST_DAY,
    LAST_MOMENT,
    DataType,
    Kind,
    entry_of,
    holds_kind,
    parts_of,
)
from tidegate.formats.columns import polars_type, type_instance
from tidegate.operators.spec import Columns
from tidegate.user_code.failure import show_value

_SHOWN_MAX: Final = 60
_COLUMNS_SHOWN_MAX: Final = 8
_WIDENS: Final[Mapping[Kind, tuple[type[pl.DataType], ...]]] = {
    "smallint": (pl.Int8, pl.UInt8),
    "int": (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16),
    "bigint": (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32),
    "float": (pl.Int8, pl.Int16, pl.UInt8, pl.UInt16),
    "double": (pl.Float32, pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32),
    "string": (pl.Categorical, pl.Enum),
}
"""Polars types that each type can hold without loss, besides its own."""
_CHECKED_BY_VALUE: Final = frozenset({"decimal", "timestamp", "timestamp_ntz"})

Unfit = Mapping[int, str]
"""Rows whose values do not fit, and why."""


class FrameConverter:
    """Converts frames to the columns of one output, or of a state."""

    def __init__(self, columns: Columns, otherwise: str = "or change `output`") -> None:
        """`otherwise`: what a user may do instead of emitting another column, for messages."""
        self._columns = dict(columns)
        self._otherwise = otherwise
        self._checks = {
            name: check for name, kind in columns if (check := _derive_check(pl.col(name), kind)) is not None
        }

    def convert(self, frame: object) -> tuple[pl.DataFrame, Unfit]:
        """Returns all declared columns of a frame and no others, and the rows whose values do not fit.

        Raises TypeError for a frame that lacks a column or has one of another type.
        """
        if not isinstance(frame, pl.DataFrame):
            raise TypeError(_describe_no_frame(frame))
        missing = [name for name in self._columns if name not in frame.columns]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise TypeError(f"the frame has no {names}, only {_names(frame.columns)}: add it, {self._otherwise}")
        lost: list[tuple[str, pl.Series]] = []
        made: list[pl.Series] = []
        for name, kind in self._columns.items():
            column = frame.get_column(name)
            converted, kept = _convert(name, column, kind, self._otherwise)
            made.append(converted)
            if kept is not None:
                lost.append((name, kept))
        result = pl.DataFrame(made)
        if self._checks:
            fits = result.select(check.alias(name) for name, check in self._checks.items())
            lost += [(name, column) for name, column in fits.to_dict().items()]
        return result, dict(self._describe(frame, lost))

    def _describe(self, frame: pl.DataFrame, lost: list[tuple[str, pl.Series]]) -> Iterator[tuple[int, str]]:
        for name, fits in lost:
            if not fits.all():
                for row in (~fits.fill_null(value=True)).arg_true():
                    value = _shown_value(frame.get_column(name)[row : row + 1])
                    yield row, f"`{name}` is {value}, which does not fit {self._columns[name]}"


def _convert(name: str, column: pl.Series, kind: DataType, otherwise: str) -> tuple[pl.Series, pl.Series | None]:
    """Returns a column as the Polars type of a declared type and, if values may have been lost, which ones are kept.

    Raises TypeError for a column whose type has values that the declared type does not have.
    """
    wanted = polars_type(kind)
    found = column.dtype
    if found == wanted:
        return column, None
    if not _holds(found, kind):
        raise TypeError(
            f"`{name}` is {_type_name(found)}, and {kind} is declared: {_derive_remedy(found, kind, otherwise)}"
        )
    converted = column.cast(wanted, strict=False)
    if not holds_kind(kind, _CHECKED_BY_VALUE) or isinstance(found, pl.Null):
        return converted, None
    return converted, converted.cast(found, strict=False).eq_missing(column)


def _holds(found: pl.DataType, kind: DataType) -> bool:
    """Returns whether a declared type has all values of a Polars type, apart from those that are checked by value."""
    if isinstance(found, pl.Null) or found == polars_type(kind):
        return True
    if kind.kind in ("array", "map"):
        (element,) = parts_of(kind)
        return isinstance(found, (pl.List, pl.Array)) and _holds(type_instance(found.inner), element)
    if kind.kind == "struct":
        return (
            isinstance(found, pl.Struct)
            and [part.name for part in found.fields] == [name for name, _ in kind.fields]
            and all(
                _holds(type_instance(part.dtype), field)
                for part, (_, field) in zip(found.fields, kind.fields, strict=True)
            )
        )
    if kind.kind == "decimal":
        return isinstance(found, pl.Decimal) and found.scale <= kind.scale
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return isinstance(found, pl.Datetime) and (found.time_zone is not None) == (kind.kind == "timestamp")
    return isinstance(found, _WIDENS.get(kind.kind, ()))


def _derive_check(value: pl.Expr, kind: DataType) -> pl.Expr | None:
    """Returns whether values are within the limits of their type that Polars does not have; None without such limits.

    NULL, which has none, may give NULL.
    """
    if kind.kind == "date":
        return value.to_physical().is_between(FIRST_DAY, LAST_DAY)
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return value.to_physical().is_between(FIRST_MOMENT, LAST_MOMENT)
    if kind.kind == "map":
        keys = value.list.eval(pl.element().struct.field("key"))
        unique = (keys.list.n_unique() == keys.list.len()) & ~keys.list.eval(pl.element().is_null()).list.any()
        below = _derive_check(pl.element(), entry_of(kind))
        return unique if below is None else unique & value.list.eval(below).list.all()
    if kind.kind == "array" and kind.element is not None:
        below = _derive_check(pl.element(), kind.element)
        return None if below is None else value.list.eval(below).list.all()
    if kind.kind == "struct":
        parts = [
            check.fill_null(value=True)
            for name, part in kind.fields
            if (check := _derive_check(value.struct.field(name), part)) is not None
        ]
        return reduce(and_, parts) if parts else None
    return None


def _describe_no_frame(value: object) -> str:
    if isinstance(value, pl.LazyFrame):
        return "got a LazyFrame: return `frame.collect()`"
    remedy = "return a polars.DataFrame (`polars.from_pandas` and `polars.from_arrow` make one)"
    return f"got {show_value(value)} of type {type(value).__name__}: {remedy}"


def _derive_remedy(found: pl.DataType, kind: DataType, otherwise: str) -> str:
    """Returns how a user makes the column one of the declared type."""
    if kind.kind == "timestamp" and isinstance(found, pl.Datetime):
        return '`.dt.replace_time_zone("UTC")` declares it to be in UTC'
    if kind.kind == "timestamp_ntz" and isinstance(found, pl.Datetime):
        return "`.dt.replace_time_zone(None)` removes its time zone"
    if kind.kind == "decimal" and isinstance(found, pl.Decimal):
        return f"`.round({kind.scale}).cast({_type_name(polars_type(kind))})` rounds it"
    return f"add `.cast({_type_name(polars_type(kind))})`, {otherwise}"


def _type_name(kind: pl.DataType) -> str:
    """Returns a Polars type as users write it."""
    text = repr(kind)
    return f"pl.{text}" if text[:1].isupper() else text


def _names(columns: list[str]) -> str:
    shown = ", ".join(f"`{name[:_SHOWN_MAX]}`" for name in columns[:_COLUMNS_SHOWN_MAX])
    return (shown or "no column") + (", ..." if len(columns) > _COLUMNS_SHOWN_MAX else "")


def _shown_value(one: pl.Series) -> str:
    """Returns the only value of a column as text. Python has no objects for some of those that do not fit."""
    return "a value" if one.dtype.is_nested() else _cut(one.cast(pl.String)[0])


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
