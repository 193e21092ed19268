"""Converts columns of an event's row as written to columns as declared by the source.

The meaning of values follows from the logical type or Connect's name (`schemas.py`), and texts are read as in
`debezium` for JSON. Whole columns are converted at once. Only values that the fast path cannot convert with certainty
are converted one by one, by the functions of `debezium`.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, MAX_PRECISION, STRING, DataType
from tidegate.formats.columns import TIMESTAMP, make_decimals, polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.resolution import word_of
from tidegate.formats.kinds.avro.schema import MICROS, AvroRefusal, AvroType
from tidegate.formats.kinds.avro.wire import write_block, zigzag
from tidegate.formats.kinds.debezium.avro.schemas import plain
from tidegate.formats.kinds.debezium.envelope import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
)
from tidegate.formats.kinds.debezium.json.schemas import NAMED, UNITS, VARIABLE
from tidegate.formats.kinds.debezium.json.values import UNITS_OF, read_date, read_local, scaled
from tidegate.formats.kinds.json.reader import make_moments
from tidegate.formats.kinds.json.types import (
    DOES_NOT_FIT,
    LOCAL,
    LONG_FRACTION,
    exact_decimal,
    read_moment,
    rephrase,
    shown,
)
from tidegate.formats.nested import cut_lists

_SYNC: Final = b"tidegate-block--"
_PADDING: Final = bytes(4096)
"""Follows the records: an invalid length ends here rather than outside, which Polars would report on stderr."""


class DecimalReader:
    """Converts bytes to decimals with `scale` digits after the decimal point.

    The bytes are written to an Avro block, which Polars' reader reads as decimals.
    """

    def __init__(self, scale: int) -> None:
        described = {"type": "bytes", "logicalType": "decimal", "precision": MAX_PRECISION, "scale": scale}
        self._head = _container_head(
            {"type": "record", "name": "Row", "fields": [{"name": "x", "type": ["null", described]}]}
        )

    def read(self, values: pl.DataFrame) -> pl.Series:
        """Converts the only column, which has at least one row, to `decimal(38, scale)`. Numbers of 39 digits can
        occur.

        Raises what Polars raises for more than 16 bytes.
        """
        return _read_block(self._head, values.height, write_block(values)).to_series()


def without(column: pl.Series, rows: Sequence[int]) -> pl.Series:
    """Sets some rows to NULL. (`scatter` cannot set NULL in decimals.)"""
    keep = pl.Series([True], dtype=pl.Boolean).new_from_index(0, len(column)).scatter(rows, [False] * len(rows))
    return column.zip_with(keep, pl.Series([None], dtype=column.dtype).new_from_index(0, len(column)))


def _container_head(schema: Any) -> bytes:
    """Returns the beginning of a container file."""
    text = json.dumps(schema).encode()
    name = b"avro.schema"
    return b"".join((b"Obj\1", zigzag(1), zigzag(len(name)), name, zigzag(len(text)), text, b"\0", _SYNC))


def _read_block(head: bytes, count: int, data: bytes) -> pl.DataFrame:
    """Reads concatenated records. Raises what Polars raises."""
    parts = (head, zigzag(count), zigzag(len(data) + len(_PADDING)), data, _PADDING, _SYNC)
    return pl.read_avro(io.BytesIO(b"".join(parts)))


class UnfitEvent(NamedTuple):
    """A value that its column cannot hold."""

    row: int
    kind: FailureKind
    message: str
    inside: str = ""
    """Path within the column's value: `[2]`, `.x`."""


Made = tuple[pl.Series, list[UnfitEvent]]
"""A column and its unfit values; their rows in the column are undefined."""
Convert = Callable[[pl.Series], Made]
Read = Callable[[Any], Any]
"""Converts one value. Raises ValueError."""

_WHOLE: Final = {
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "bigint"),
    ("float", "float"),
    ("double", "double"),
    ("string", "string"),
    ("enum", "string"),
    ("bytes", "binary"),
    ("fixed", "binary"),
}
"""Pairs of the writer's type and the column's for which values are unchanged."""
_CAST: Final[Mapping[tuple[str, str], Sequence[pl.DataType]]] = {
    ("int", "bigint"): (pl.Int64(),),
    ("int", "float"): (pl.Float64(), pl.Float32()),
    ("int", "double"): (pl.Float64(),),
    ("long", "float"): (pl.Float64(), pl.Float32()),
    ("long", "double"): (pl.Float64(),),
    ("float", "double"): (pl.Float64(),),
    ("string", "binary"): (pl.Binary(),),
}
"""Avro's promotions."""
_SMALL: Final = {"tinyint": (-(2**7), 2**7 - 1), "smallint": (-(2**15), 2**15 - 1)}
_EARLY: Final = "a timestamp in UTC is before the year 1 or after 9999"
_BYTES_MAX: Final = 16
"""Maximum size of bytes that Polars converts to a decimal."""
_DIGITS_MAX: Final = 10**80
"""Greater than any decimal."""
_SCALE_MAX: Final = 64
_UNAVAILABLE: Final = UNAVAILABLE.encode()


class _Unlike(Exception):
    """No value of the writer's type can be converted to the column's."""


def find_conversion(one: AvroType, kind: DataType, place: str, unit: str) -> Convert | None:
    """Returns the conversion from the writer's type to a column's; None if values are unchanged. Raises AvroRefusal.

    :param unit: unit of integers that stand for timestamps if their type does not define it; if empty, they are
        rejected.
    """
    one = one.bare
    if one.kind == "union" and column_type(plain(one), place) == kind:
        return None
    try:
        if one.kind == "array" and one.items is not None and kind.kind == "array" and kind.element is not None:
            element = find_conversion(one.items, kind.element, f"{place}[]", unit)
            return None if element is None else partial(_lists, element)
        if one.kind == "map" and one.items is not None and kind.kind == "map" and kind.element is not None:
            if kind.key != STRING:
                raise AvroRefusal(place, f"Avro's maps have strings as keys, but the column is {kind}")
            element = find_conversion(one.items, kind.element, f"{place}{{}}", unit)
            return None if element is None else partial(_maps, element)
        if kind.kind == "struct":
            return _find_struct(one, kind, place, unit)
        return _find_simple(one, kind, unit)
    except _Unlike as why:
        raise AvroRefusal(place, f"the writer's type is {word_of(one)}, which cannot become {kind}{why}") from why


def _find_struct(one: AvroType, kind: DataType, place: str, unit: str) -> Convert | None:
    if one.kind != "record":
        raise _Unlike
    fields = {field.name: field.type for field in one.fields}
    parts: list[tuple[str, DataType, Convert | None]] = []
    for name, each in kind.fields:
        convert = find_conversion(fields[name], each, f"{place}.{name}", unit) if name in fields else _nothing(each)
        parts.append((name, each, convert))
    if list(fields) == [name for name, _ in kind.fields] and all(convert is None for _, _, convert in parts):
        return None
    return partial(_structs, parts, frozenset(fields))


def _nothing(kind: DataType) -> Convert:
    """Returns NULLs for a field that the writer's record lacks."""
    none = pl.Series("", [None], dtype=polars_type(kind))
    return lambda series: (none.new_from_index(0, len(series)), [])


def _find_simple(one: AvroType, kind: DataType, unit: str) -> Convert | None:
    ways = (one.kind, kind.kind)
    if kind.kind == "decimal":
        return _find_decimal(one, kind)
    if one.logical == "decimal" or one.kind == "record":
        raise _Unlike
    if ways in _WHOLE:
        return None
    if ways in _CAST:
        return partial(_cast, _CAST[ways])
    if one.kind == "int" and kind.kind in _SMALL:
        return partial(_small, kind, _SMALL[kind.kind])
    if ways == ("bytes", "string"):
        return _texts_of_bytes
    match kind.kind:
        case "date" if one.kind == "string":
            return partial(_texts, read_date, _dates_of_texts)
        case "date" if one.kind == "int" and (not one.logical or one.logical == "date" or _named(one) == "date"):
            return _days
        case "timestamp" if one.kind == "string":
            return partial(_texts, read_moment, _moments_of_texts)
        case "timestamp_ntz" if one.kind == "string":
            return partial(_texts, read_local, _locals_of_texts)
        case "timestamp" | "timestamp_ntz" if one.kind == "long":
            return partial(_since, _micros_of(one, unit), polars_type(kind))
    raise _Unlike


def _named(one: AvroType) -> str:
    return NAMED[one.logical].kind if one.logical in NAMED else ""


def _micros_of(one: AvroType, unit: str) -> tuple[int, int]:
    """Returns factor and divisor from a long's unit to microseconds."""
    if one.logical in UNITS:
        return UNITS_OF[UNITS[one.logical]]
    if one.logical.startswith(("timestamp-", "local-timestamp-")):
        return MICROS[one.logical.rpartition("-")[2]]
    if one.logical:
        raise _Unlike
    if not unit:
        raise _Unlike(": its unit is unknown; `written_as` can set it")
    return UNITS_OF[unit]


# -- whole columns -----------------------------------------------------------------------------------------------------


def _cast(kinds: Iterable[pl.DataType], series: pl.Series) -> Made:
    for kind in kinds:
        series = series.cast(kind)
    return series, []


def _outside(series: pl.Series, low: int, high: int) -> list[int]:
    """Returns rows with values out of range. Comparing minimum and maximum first is much cheaper than comparing each
    row.
    """
    least: Any = series.min()
    greatest: Any = series.max()
    if least is None or (least >= low and greatest <= high):
        return []
    return (~series.is_between(low, high)).arg_true().to_list()


def _small(kind: DataType, bounds: tuple[int, int], series: pl.Series) -> Made:
    unfit = [
        UnfitEvent(
            row,
            FailureKind.OUT_OF_RANGE,
            f"{series[row]} does not fit into {kind}, which is from {bounds[0]} to {bounds[1]}",
        )
        for row in _outside(series, *bounds)
    ]
    return series.cast(polars_type(kind), strict=False), unfit


def _days(series: pl.Series) -> Made:
    unfit = [
        UnfitEvent(row, FailureKind.OUT_OF_RANGE, f"{series[row]} days since 1970 are not a date from 1 to 9999")
        for row in _outside(series, FIRST_DAY, LAST_DAY)
    ]
    return series.cast(pl.Date()), unfit


def _since(micros: tuple[int, int], kind: pl.DataType, series: pl.Series) -> Made:
    """Converts integers since 1970; fractions of a microsecond are truncated."""
    factor, divisor = micros
    low, high = -(-FIRST_MOMENT * divisor // factor), (LAST_MOMENT + 1) * divisor // factor - 1
    unfit = [
        UnfitEvent(row, FailureKind.OUT_OF_RANGE, f"{series[row]} is not a timestamp of the years 1 to 9999")
        for row in _outside(series, max(low, -(2**63)), min(high, 2**63 - 1))
    ]
    counted = series // divisor if divisor > 1 else series * factor
    return counted.cast(kind), unfit


def _texts_of_bytes(series: pl.Series) -> Made:
    try:
        return series.cast(pl.String()), []
    except pl.exceptions.PolarsError:
        texts = [None if value is None else value.decode(errors="replace") for value in series.to_list()]
    made = pl.Series(texts, dtype=pl.String())
    lost = made.cast(pl.Binary()).ne_missing(series).arg_true()
    return made, [UnfitEvent(row, FailureKind.NOT_UTF8, "the bytes are not valid UTF-8") for row in lost]


# -- times as text -----------------------------------------------------------------------------------------------------


def _texts(read: Read, make: Callable[[pl.Series], pl.Series], series: pl.Series) -> Made:
    unfit: list[UnfitEvent] = []
    try:
        made = make(series)
    except ValueError:
        texts = series.to_list()
        for row, text in enumerate(texts):
            try:
                if text is not None:
                    read(text)
            except ValueError as error:
                what = rephrase(str(error))
                unfit.append(UnfitEvent(row, FailureKind.WRONG_TYPE, f"{what}, got the text {shown(text)}"))
        for one in unfit:
            texts[one.row] = None
        made = make(pl.Series(texts, dtype=pl.String()))
    if made.dtype == TIMESTAMP:  # an offset may change it
        unfit += [UnfitEvent(row, FailureKind.OUT_OF_RANGE, _EARLY) for row in _outside(made.to_physical(), *_CALENDAR)]
    return made, unfit


_CALENDAR: Final = (FIRST_MOMENT, LAST_MOMENT)


def _cut_fractions(series: pl.Series) -> pl.Series:
    """Truncates seconds to six decimal places, as `read_moment` does."""
    return series.str.replace(LONG_FRACTION, "$1")


def _moments_of_texts(series: pl.Series) -> pl.Series:
    return make_moments("", msgspec.convert(_cut_fractions(series).to_list(), list[dt.datetime | None]))


def _locals_of_texts(series: pl.Series) -> pl.Series:
    """Parses local timestamps; Debezium's texts (`isostring`) nevertheless end with `Z`."""
    values = msgspec.convert(_cut_fractions(series).str.strip_suffix("Z").to_list(), list[LOCAL | None])  # type: ignore[valid-type]  # a constrained type
    return pl.Series("", values, dtype=pl.Datetime("us"))


def _dates_of_texts(series: pl.Series) -> pl.Series:
    values = msgspec.convert(series.str.strip_suffix("Z").to_list(), list[dt.date | None])
    return pl.Series("", values, dtype=pl.Date())


# -- decimals ----------------------------------------------------------------------------------------------------------


def _find_decimal(one: AvroType, kind: DataType) -> Convert:
    exact = exact_decimal(kind)
    if one.kind in ("string", "int", "long", "float", "double"):
        return _DecimalTexts(kind, exact)
    if one.logical == "decimal":

        def read(data: bytes) -> Decimal:
            return exact(_of_bytes(data, one.scale, kind))

        return _DecimalBytes(kind, one.scale, read) if 0 <= one.scale <= MAX_PRECISION else partial(_each, kind, read)
    if one.name == VARIABLE and {"scale", "value"} == {field.name for field in one.fields}:

        def read_variable(value: Mapping[str, Any]) -> Decimal:
            scale = value["scale"]
            if not isinstance(scale, int) or abs(scale) > _SCALE_MAX:
                raise ValueError(f"Expected `{kind}`, got a number of scale {scale}")
            return exact(_of_bytes(value["value"], scale, kind))

        return partial(_each, kind, read_variable)
    raise _Unlike


def _of_bytes(data: bytes, scale: int, kind: DataType) -> Decimal:
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= _DIGITS_MAX:
        raise ValueError(f"a number of {len(data)} bytes {DOES_NOT_FIT}{kind}")
    return scaled(unscaled, scale)


def _each(kind: DataType, read: Read, series: pl.Series) -> Made:
    """Converts values one by one."""
    unfit: list[UnfitEvent] = []
    values: list[Decimal | None] = []
    for row, value in enumerate(series.to_list()):
        values.append(None if value is None else _read_one(read, value, row, unfit))
    return make_decimals("", kind, values), unfit


def _read_one(read: Read, value: Any, row: int, unfit: list[UnfitEvent]) -> Decimal | None:
    try:
        made: Decimal = read(value)
    except ValueError as error:
        kind = FailureKind.OUT_OF_RANGE if DOES_NOT_FIT in str(error) else FailureKind.WRONG_TYPE
        unfit.append(UnfitEvent(row, kind, str(error)))
        return None
    return made


def _look_closer(kind: DataType, read: Read, made: pl.Series, given: pl.Series, rows: Sequence[int]) -> Made:
    """Converts the rows again that the fast path cannot convert with certainty, and that are NULL so far."""
    if not rows:
        return made, []
    unfit: list[UnfitEvent] = []
    values = [_read_one(read, given[row], row, unfit) for row in rows]
    if all(value is None for value in values):
        return made, unfit
    places = pl.Series([None], dtype=pl.Int64).new_from_index(0, len(made)).scatter(rows, range(len(rows)))
    return made.zip_with(places.is_null(), make_decimals("", kind, values).gather(places)), unfit


class _DecimalTexts:
    """Converts texts that are numbers, and numbers through their texts."""

    def __init__(self, kind: DataType, exact: Read) -> None:
        self._kind, self._exact = kind, exact
        self._type = polars_type(kind)
        whole = f"[0-9]{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
        self._fits = rf"^-?{whole}(\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else f"^-?{whole}$"

    def __call__(self, series: pl.Series) -> Made:
        texts = series.cast(pl.String())
        fits = texts.str.contains(self._fits)
        if fits.all():
            return texts.cast(self._type), []
        rows = (~fits).arg_true().to_list()
        return _look_closer(self._kind, self._exact, without(texts, rows).cast(self._type), texts, rows)


class _DecimalBytes:
    """Converts the bytes of unscaled numbers with `scale` digits after the decimal point."""

    def __init__(self, kind: DataType, scale: int, read: Read) -> None:
        self._kind, self._scale, self._read = kind, scale, read
        self._type = polars_type(kind)
        self._reader = DecimalReader(scale)
        self._limit = 10 ** min(MAX_PRECISION, kind.precision - kind.scale + scale) - 1
        """Limit of the unscaled number, beyond which there are too many digits before the decimal point."""

    def __call__(self, series: pl.Series) -> Made:
        if not len(series):
            return pl.Series("", [], dtype=self._type), []
        longest: Any = series.bin.size().max()
        if longest is not None and longest > _BYTES_MAX:
            return _each(self._kind, self._read, series)
        found = self._reader.read(series.to_frame("x"))
        rows = set(_outside(found.to_physical(), -self._limit, self._limit))
        if rows:
            found = without(found, sorted(rows))
        made = found if found.dtype == self._type else found.cast(self._type, strict=False)
        if self._scale > self._kind.scale:
            rows |= set(made.cast(found.dtype, strict=False).ne_missing(found).arg_true())
            made = without(made, sorted(rows)) if rows else made
        return _look_closer(self._kind, self._read, made, series, sorted(rows))


# -- nested values -----------------------------------------------------------------------------------------------------


def _lists(element: Convert, series: pl.Series) -> Made:
    flat, unfit = element(series.explode(empty_as_null=False, keep_nulls=False))
    return _cut(flat, series, unfit, lambda index: f"[{index}]")


def _maps(element: Convert, series: pl.Series) -> Made:
    entries = series.explode(empty_as_null=False, keep_nulls=False)
    values, unfit = element(entries.struct.field("value"))
    pairs = pl.DataFrame([entries.struct.field("key").alias("key"), values.alias("value")]).to_struct("")
    return _cut(pairs, series, unfit, lambda _: "[...]")


def _cut(flat: pl.Series, series: pl.Series, unfit: Sequence[UnfitEvent], place: Callable[[int], str]) -> Made:
    counts = series.list.len().cast(pl.Int64)
    ends = counts.fill_null(0).cum_sum()
    made = cut_lists(flat, ends - counts, ends)
    if not unfit:
        return made, []
    known = ends.to_list()
    found = []
    for one in unfit:
        row = bisect_right(known, one.row)
        start = known[row - 1] if row else 0
        found.append(one._replace(row=row, inside=f"{place(one.row - start)}{one.inside}"))
    return made, found


def _structs(parts: Sequence[tuple[str, DataType, Convert | None]], known: frozenset[str], series: pl.Series) -> Made:
    """`known` holds the fields that the writer has."""
    unfit: list[UnfitEvent] = []
    columns = []
    for name, _, convert in parts:
        column = series.struct.field(name) if name in known else series
        if convert is not None:
            column, bad = convert(column)
            unfit += [one._replace(inside=f".{name}{one.inside}") for one in bad]
        columns.append(column.alias(name))
    made = pl.DataFrame(columns).to_struct("")
    if not series.null_count():
        return made, unfit
    present = series.is_not_null()
    rows = pl.int_range(len(series), eager=True)
    return made.gather(rows.zip_with(present, pl.Series([None], dtype=rows.dtype).new_from_index(0, len(rows)))), unfit


# -- unavailable values ------------------------------------------------------------------------------------------------

_LISTS: Final = {
    "int": pl.Series([UNAVAILABLE_NUMBERS], dtype=pl.List(pl.Int32())),
    "long": pl.Series([UNAVAILABLE_NUMBERS], dtype=pl.List(pl.Int64())),
    "string": pl.Series([[UNAVAILABLE_UUID]]),
}
"""Arrays that stand for an unavailable one, by the type of their elements."""


def find_unavailable(value: pl.Expr, one: AvroType) -> pl.Expr | None:
    """Returns whether a value or a part of it is Debezium's placeholder; None for a type that never contains it."""
    one = one.bare
    if one.kind in ("string", "enum"):
        return value.is_in([UNAVAILABLE, UNAVAILABLE_BASE64])
    if one.kind == "bytes":
        return value == pl.lit(_UNAVAILABLE)
    if one.items is not None:
        element = pl.element() if one.kind == "array" else pl.element().struct.field("value")
        inside = find_unavailable(element, one.items)
        found = None if inside is None else value.list.eval(inside.fill_null(value=False)).list.any()
        if one.kind != "array" or one.items.bare.kind not in _LISTS:
            return found
        whole = value == pl.lit(_LISTS[one.items.bare.kind])
        return whole if found is None else found | whole
    parts = [find_unavailable(value.struct.field(field.name), field.type) for field in one.fields]
    known = [part.fill_null(value=False) for part in parts if part is not None]
    return pl.any_horizontal(known) if known else None
