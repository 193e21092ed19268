"""Column types of a pipeline as Polars types, which define the layout of a frame between operators.

Columns of arrays, maps and structs are built level by level: all values of one level become one column. Polars can
build them from dicts and lists value by value, in ten times the time. Slicing a flat column likewise takes a tenth of
the time of `group_by`, `concat_list` or Python lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import Any, Final, Protocol

import polars as pl
from typing_extensions import override

from tidegate.datatypes import NESTED, DataType, decimal_of, entry_of

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
    "timestamp_ntz": pl.Datetime("us"),
    "void": pl.Null(),
}

_INTERVALS: Final[dict[str, pl.DataType]] = {
    "interval": pl.Duration("us"),
    "months": pl.Int32(),
}
"""Types that exist only inside expressions."""

Part = tuple[Sequence[int], pl.DataFrame]
"""Indexes of rows in a batch, and the frame of results for these rows."""

_NAMES: Final = {kind: name for name, kind in _POLARS.items()}
_PLAIN_SCALE: Final = 6
"""With more digits after the decimal point, Polars writes small numbers with an exponent."""


def polars_type(kind: DataType) -> pl.DataType:
    """Returns the Polars type of a column. Intervals and `void` exist only inside expressions.

    A map is a list of structs with the fields `key` and `value`; each key occurs once.
    """
    if kind.kind == "array" and kind.element is not None:
        return pl.List(polars_type(kind.element))
    if kind.kind == "struct":
        return pl.Struct([pl.Field(name, polars_type(field)) for name, field in kind.fields])
    if kind.kind == "map":
        return pl.List(polars_type(entry_of(kind)))
    if kind.kind == "decimal":
        return pl.Decimal(kind.precision, kind.scale)
    return _INTERVALS.get(kind.kind) or _POLARS[kind.kind]


def type_of(kind: pl.DataType) -> DataType:
    """Returns the column type of a Polars type. A map becomes an array of structs."""
    if isinstance(kind, pl.List):
        return DataType("array", element=type_of(type_instance(kind.inner)))
    if isinstance(kind, pl.Struct):
        fields = tuple((part.name, type_of(type_instance(part.dtype))) for part in kind.fields)
        return DataType("struct", fields=fields)
    if isinstance(kind, pl.Decimal):
        return decimal_of(kind.precision, kind.scale)
    return DataType(_NAMES[kind])


def type_instance(kind: object) -> pl.DataType:
    """Returns an instance of a Polars type, which Polars also accepts and returns as a class."""
    return kind() if isinstance(kind, type) else kind  # type: ignore[return-value]  # DataTypeClass or DataType


def physical_type(kind: pl.DataType) -> pl.DataType:
    """Replaces dates, times and intervals by their integer types: Polars converts Python's objects for them slowly."""
    if isinstance(kind, pl.Date):
        return pl.Int32()
    if isinstance(kind, (pl.Datetime, pl.Duration)):
        return pl.Int64()
    if isinstance(kind, pl.List):
        return pl.List(physical_type(type_instance(kind.inner)))
    if isinstance(kind, pl.Struct):
        return pl.Struct([pl.Field(field.name, physical_type(type_instance(field.dtype))) for field in kind.fields])
    return kind


def make_series(name: str, kind: pl.DataType, values: Sequence[Any]) -> pl.Series:
    """Builds a column of any Polars type from values; dates, times and intervals are numbers."""
    return pl.Series(name, values, dtype=physical_type(kind)).cast(kind)


def plain_values(column: pl.Series) -> list[Any]:
    """Returns values in the form in which state stores them.

    Dates are days and timestamps microseconds since 1970. Decimals are unchanged, arrays and structs are tuples, and
    maps are tuples of pairs.
    """
    kind = column.dtype
    if kind.is_nested():
        return _plain_nested(column)
    values: list[Any] = (column.to_physical() if kind.is_temporal() else column).to_list()
    return values


def _plain_nested(column: pl.Series) -> list[Any]:
    """Converts level by level, as columns are built."""
    kind = column.dtype
    known = column.drop_nulls() if column.null_count() else column
    if isinstance(kind, pl.Struct):
        parts = [plain_values(known.struct.field(part.name)) for part in kind.fields]
        found: list[Any] = list(zip(*parts, strict=True))
    else:
        lengths = known.list.len()
        items = iter(plain_values(known.filter(lengths > 0).explode()))
        found = [tuple(islice(items, length)) for length in lengths.to_list()]
    if len(found) == len(column):
        return found
    rest = iter(found)
    return [next(rest) if there else None for there in column.is_not_null().to_list()]


class Parts(Protocol):
    """Takes apart the values of one representation. Values passed in are never None."""

    def fields(self, kind: DataType, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the values of each field of a struct type."""

    def entries(self, kind: DataType, maps: Sequence[Any]) -> tuple[Sequence[int], Sequence[Any], Sequence[Any]]:
        """Returns the number of entries of each map, and the keys and values of all maps."""

    def leaves(self, name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
        """Builds a column of a type that is not nested."""


def read_utf8(column: pl.Series) -> tuple[pl.Series, dict[int, UnicodeDecodeError]]:
    """Returns bytes as text, and what is wrong with those that are not UTF-8, which become NULL, by row."""
    try:
        return column.cast(pl.String), {}
    except pl.exceptions.ComputeError:  # one is not UTF-8; Polars does not report which
        texts: list[str | None] = []
    errors: dict[int, UnicodeDecodeError] = {}
    for row, data in enumerate(column):
        try:
            texts.append(None if data is None else data.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            errors[row] = error
    return pl.Series(column.name, texts, dtype=pl.String), errors


def make_column(name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
    """Builds a column from the output of `plain_values`. Raises TypeError for values that do not fit the type, and
    OverflowError for decimals with too many digits.
    """
    if kind.kind in NESTED:
        return make_nested(name, kind, values, _PLAIN_PARTS)
    if kind.kind == "decimal":
        return make_decimals(name, kind, values)
    return make_series(name, polars_type(kind), values)


class _PlainParts(Parts):
    """Takes apart plain values: structs are tuples, maps are tuples of pairs."""

    @override
    def fields(self, kind: DataType, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return list(zip(*structs, strict=True)) if structs else [()] * len(kind.fields)

    @override
    def entries(self, kind: DataType, maps: Sequence[Any]) -> tuple[Sequence[int], Sequence[Any], Sequence[Any]]:
        keys, values = zip(*chain.from_iterable(maps), strict=True) if any(maps) else ((), ())
        return list(map(len, maps)), keys, values

    @override
    def leaves(self, name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
        return make_column(name, kind, values)


_PLAIN_PARTS: Final = _PlainParts()


def make_decimals(name: str, kind: DataType, values: Sequence[Decimal | None]) -> pl.Series:
    """Builds a column of decimals with the scale of `kind`, so that they are not rounded. Raises OverflowError.

    The conversion through text takes Polars a third of the time.
    """
    text = str if kind.scale <= _PLAIN_SCALE else "{:f}".format
    found = [None if value is None else text(value) for value in values]
    try:
        return pl.Series(name, found, dtype=pl.String).cast(polars_type(kind))
    except pl.exceptions.InvalidOperationError as error:
        raise OverflowError(f"a value does not fit into {kind}") from error


def merge_parts(parts: Sequence[Part], columns: Sequence[tuple[str, DataType]]) -> pl.DataFrame:
    """Returns the rows of all parts of a batch, with these columns, in the order of the batch."""
    if not parts:
        return pl.DataFrame(schema={name: polars_type(kind) for name, kind in columns})
    if len(parts) == 1:
        return parts[0][1]
    if not columns:
        return pl.DataFrame(height=sum(len(rows) for rows, _ in parts))
    rows = [row for some, _ in parts for row in some]
    merged = pl.concat([frame for _, frame in parts])
    return merged[sorted(range(len(rows)), key=rows.__getitem__)]


# -- nested columns ----------------------------------------------------------------------------------------------------


def cut_lists(flat: pl.Series, starts: pl.Series, ends: pl.Series) -> pl.Series:
    """Returns a list per pair of start (inclusive) and end (exclusive) in a flat column; NULL if either is NULL."""
    places = pl.select(pl.int_ranges(pl.lit(starts), pl.lit(ends))).to_series()
    return pl.select(pl.lit(flat.implode()).list.gather(pl.lit(places))).to_series()


def join_lists(lists: Sequence[pl.Series]) -> pl.Series:
    """Concatenates the lists of each row. If there are several lists, NULL counts as an empty list.

    Slices a flat column: `concat_list` takes Polars ten times as long if the entries are structs.
    """
    if len(lists) == 1:
        return lists[0]
    counts = [one.list.len().cast(pl.Int64).fill_null(0) for one in lists]
    total = reduce(add, counts)
    ends = total.cum_sum()
    begin = starts = ends - total
    places: list[pl.Series] = []  # of the entries in the flat column
    for count in counts:
        end = begin + count
        places.append(pl.select(pl.int_ranges(pl.lit(begin), pl.lit(end)).explode(empty_as_null=False)).to_series())
        begin = end
    flat = pl.concat([one.explode(empty_as_null=False, keep_nulls=False) for one in lists])
    return cut_lists(flat.gather(pl.concat(places).arg_sort()), starts, ends)


_VALUES = "values"


def make_nested(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    """Builds a column of any type."""
    if kind.kind == "map":
        return _make_map(name, kind, values, parts)
    if kind.kind == "struct":
        return _make_struct(name, kind, values, parts)
    if kind.element is None:
        return parts.leaves(name, kind, values)
    known = [value for value in values if value is not None]
    below = make_nested(_VALUES, kind.element, list(chain.from_iterable(known)), parts)
    return _lists(name, values, list(map(len, known)), below)


def _make_struct(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    known = [value for value in values if value is not None]
    fields = zip(kind.fields, parts.fields(kind, known), strict=True)
    made = pl.DataFrame([make_nested(field, below, found, parts) for (field, below), found in fields]).to_struct(name)
    return made if len(known) == len(values) else made.gather(_places(values))


def _make_map(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    assert kind.key is not None
    assert kind.element is not None
    lengths, keys, found = parts.entries(kind, [value for value in values if value is not None])
    entries = [make_nested("key", kind.key, keys, parts), make_nested("value", kind.element, found, parts)]
    return _lists(name, values, lengths, pl.DataFrame(entries).to_struct(_VALUES))


def _lists(name: str, values: Sequence[Any], lengths: Sequence[int], below: pl.Series) -> pl.Series:
    """Builds lists from the values below: `lengths` holds the length of each list, for each of `values` that is not
    None.
    """
    if len(below):
        counts = pl.Series(lengths, dtype=pl.Int64)
        ends = counts.cum_sum()
        made = cut_lists(below, ends - counts, ends).alias(name)
    else:
        made = pl.Series(name, [[]], dtype=pl.List(below.dtype)).new_from_index(0, len(lengths))
    return made if len(lengths) == len(values) else made.gather(_places(values))


def _places(values: Sequence[Any]) -> pl.Series:
    """Returns the index of each value among those that are not None; NULL for None."""
    known = pl.Series([value is not None for value in values], dtype=pl.Boolean)
    places = known.cum_sum() - 1
    return places.zip_with(known, pl.Series([None], dtype=places.dtype))
