"""Converts values of an event's row as written to values of the declared columns.

The meaning of values follows from the logical type or Connect's name (`avro_schemas.py`), and texts are read as in
`debezium` for JSON. There are two ways with the same result: functions that convert one value, and explain why one does
not fit its column; and steps for C, which leaves over the events with values that it is not certain of.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

import polars as pl

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, STRING, DataType
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.avro.columns import column_type
from tidegate.formats.kinds.avro.decoder import find_null_index, skip_step
from tidegate.formats.kinds.avro.encoder import zigzag
from tidegate.formats.kinds.avro.resolution import word_of
from tidegate.formats.kinds.avro.schema import MICROS, AvroField, AvroRefusal, AvroType, as_encoded
from tidegate.formats.kinds.debezium.envelope import (
    UNAVAILABLE,
    UNAVAILABLE_BASE64,
    UNAVAILABLE_NUMBERS,
    UNAVAILABLE_UUID,
)
from tidegate.formats.kinds.debezium.json_values import NAMED, UNITS, UNITS_OF, VARIABLE, read_date, read_local, scaled
from tidegate.formats.kinds.json.types import DOES_NOT_FIT, exact_decimal, read_moment, rephrase, shown
from tidegate.formats.schema_decoder import NotInC
from tidegate.native.avro import Step

Read = Callable[[Any], Any]
"""Converts a value, which is not None, to the form that `make_column` expects. Raises UnfitValue."""

_UNCHANGED: Final = {
    ("boolean", "boolean"),
    ("int", "int"),
    ("int", "bigint"),
    ("long", "bigint"),
    ("float", "float"),
    ("float", "double"),
    ("double", "double"),
    ("string", "string"),
    ("enum", "string"),
    ("bytes", "binary"),
    ("fixed", "binary"),
}
"""Pairs of the writer's type and the column's whose values are the same in Python."""
_FLOATS: Final = {("int", "float"), ("int", "double"), ("long", "float"), ("long", "double")}
_SMALL: Final = {"tinyint": (-(2**7), 2**7 - 1), "smallint": (-(2**15), 2**15 - 1)}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_OF_TEXT: Final = {"timestamp": read_moment, "timestamp_ntz": read_local}
_NUMBER: Final = "Number out of range: "
_DIGITS_MAX: Final = 10**80
"""Greater than any decimal."""
_SCALE_MAX: Final = 64


class UnfitValue(ValueError):
    """A value that its column cannot hold."""

    def __init__(self, kind: FailureKind, text: str, place: str = "") -> None:
        super().__init__(f"{text} - at `{place}`")
        self.kind = kind
        self._text, self._place = text, place

    def inside(self, place: str) -> UnfitValue:
        """Returns the same error for a value within another one: `[2]`, `.x`."""
        return UnfitValue(self.kind, self._text, place + self._place)


class _Unlike(Exception):
    """No value of the writer's type can be converted to the column's."""


def _read_at(place: str, read: Read, value: Any) -> Any:
    """Converts a part of a value. Raises UnfitValue with the place."""
    if value is None:
        return None
    try:
        return read(value)
    except UnfitValue as error:
        raise error.inside(place) from error


def find_reader(one: AvroType, kind: DataType, place: str, unit: str) -> Read:
    """Returns the conversion from the writer's type to a column's. Raises AvroRefusal.

    :param unit: unit of integers that stand for timestamps if their type does not define it; if empty, they are
        rejected.
    """
    one = one.bare
    if one.kind == "union" and column_type(as_encoded(one), place) == kind:
        members = [branch for branch in as_encoded(one).branches if branch.kind != "null"]
        one = AvroType("record", fields=tuple(AvroField(f"member{at}", each) for at, each in enumerate(members)))
    try:
        if one.kind == "array" and one.items is not None and kind.kind == "array" and kind.element is not None:
            return partial(_read_array, find_reader(one.items, kind.element, f"{place}[]", unit))
        if one.kind == "map" and one.items is not None and kind.kind == "map" and kind.element is not None:
            if kind.key != STRING:
                raise AvroRefusal(place, f"Avro's maps have strings as keys, but the column is {kind}")
            return partial(_read_map, find_reader(one.items, kind.element, f"{place}{{}}", unit))
        if one.kind == "record" and kind.kind == "struct":
            types = {field.name: field.type for field in one.fields}
            fields = [
                (name, find_reader(types[name], each, f"{place}.{name}", unit) if name in types else unchanged)
                for name, each in kind.fields
            ]
            return partial(_read_struct, fields)
        return _find_simple(one, kind, unit)
    except _Unlike as why:
        raise AvroRefusal(place, f"the writer's type is {word_of(one)}, which cannot become {kind}{why}") from why


def unchanged(value: Any) -> Any:
    """Returns the value."""
    return value


def _read_array(element: Read, values: Iterable[Any]) -> Any:
    return tuple(_read_at(f"[{index}]", element, value) for index, value in enumerate(values))


def _read_map(element: Read, entries: Iterable[Any]) -> Any:
    return tuple((entry["key"], _read_at("[...]", element, entry["value"])) for entry in entries)


def _read_struct(fields: Iterable[tuple[str, Read]], values: Mapping[str, Any]) -> Any:
    return tuple(_read_at(f".{name}", read, values.get(name)) for name, read in fields)


def _find_simple(one: AvroType, kind: DataType, unit: str) -> Read:
    ways = (one.kind, kind.kind)
    if kind.kind == "decimal":
        return partial(_read_decimal, _find_decimal(one, kind))
    if one.logical == "decimal" or one.kind == "record":
        raise _Unlike
    if ways in _UNCHANGED:
        return unchanged
    if ways in _FLOATS:
        return float
    if ways == ("string", "binary"):
        return str.encode
    if ways == ("bytes", "string"):
        return _read_utf8
    if one.kind == "int" and kind.kind in _SMALL:
        return partial(_read_small, kind)
    if kind.kind == "date" and (one.kind == "string" or (one.kind == "int" and _is_date(one))):
        return partial(_read_calendar, read_date)
    if kind.kind in _OF_TEXT and one.kind == "string":
        return partial(_read_calendar, _OF_TEXT[kind.kind])
    if kind.kind in _OF_TEXT and one.kind == "long":
        return partial(_read_since, *_micros_of(one, unit))
    raise _Unlike


def _is_date(one: AvroType) -> bool:
    return one.logical in ("", "date") or (one.logical in NAMED and NAMED[one.logical].kind == "date")


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


# -- one value ---------------------------------------------------------------------------------------------------------


def _read_utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise UnfitValue(FailureKind.NOT_UTF8, "the bytes are not valid UTF-8") from error


def _read_small(kind: DataType, value: int) -> int:
    low, high = _SMALL[kind.kind]
    if not low <= value <= high:
        raise UnfitValue(FailureKind.OUT_OF_RANGE, f"{value} does not fit into {kind}, which is from {low} to {high}")
    return value


def _read_since(factor: int, divisor: int, value: int) -> int:
    """Fractions of a microsecond are truncated."""
    micros = value * factor // divisor
    if not FIRST_MOMENT <= micros <= LAST_MOMENT:
        raise UnfitValue(FailureKind.OUT_OF_RANGE, f"{value} is not a timestamp of the years 1 to 9999")
    return micros


def _read_calendar(read: Callable[[Any], dt.date], value: Any) -> int:
    """Returns days or microseconds since 1970. `read` is a function of `debezium` for JSON."""
    try:
        found = read(value)
    except ValueError as error:
        reason = rephrase(str(error))
        if isinstance(value, int) or isinstance(error, OverflowError):
            raise UnfitValue(FailureKind.OUT_OF_RANGE, reason.removeprefix(_NUMBER)) from error
        raise UnfitValue(FailureKind.WRONG_TYPE, f"{reason}, got the text {shown(value)}") from error
    if not isinstance(found, dt.datetime):
        return (found - _EPOCH.date()).days
    return ((found if found.tzinfo else found.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND


def _read_decimal(read: Callable[[Any], Decimal], value: Any) -> Decimal:
    try:
        return read(value)
    except ValueError as error:
        kind = FailureKind.OUT_OF_RANGE if DOES_NOT_FIT in str(error) else FailureKind.WRONG_TYPE
        raise UnfitValue(kind, str(error)) from error


def _find_decimal(one: AvroType, kind: DataType) -> Callable[[Any], Decimal]:
    """Returns a conversion that raises ValueError."""
    exact = exact_decimal(kind)
    if one.kind == "float":
        return lambda value: exact(pl.Series([value], dtype=pl.Float32).cast(pl.String).item())
    if one.kind in ("string", "int", "long", "double"):
        return lambda value: exact(str(value))
    if one.logical == "decimal":
        return lambda data: exact(_decimal_of(data, one.scale, kind))
    if _is_variable(one):
        return lambda value: exact(_decimal_of(value["value"], value["scale"], kind))
    raise _Unlike


def _is_variable(one: AvroType) -> bool:
    return one.name == VARIABLE and {"scale", "value"} == {field.name for field in one.fields}


def _decimal_of(data: Any, scale: Any, kind: DataType) -> Decimal:
    if not isinstance(data, bytes) or not isinstance(scale, int) or abs(scale) > _SCALE_MAX:
        raise ValueError(f"Expected `{kind}`, got a number of scale {scale}")
    unscaled = int.from_bytes(data, "big", signed=True)
    if abs(unscaled) >= _DIGITS_MAX:
        raise ValueError(f"a number of {len(data)} bytes {DOES_NOT_FIT}{kind}")
    return scaled(unscaled, scale)


# -- steps for C -------------------------------------------------------------------------------------------------------


def find_step(one: AvroType, kind: DataType, unit: str = "") -> Step:
    """Returns how C reads values of a type, for which there is a conversion, as a column's. Raises NotInC."""
    return _find_value_step(one.bare, kind, unit)._replace(null_at=find_null_index(one))


def find_field_steps(record: AvroType, kind: DataType, unit_of: Callable[[str], str]) -> tuple[Step, ...]:
    """Returns the steps of the fields of a record that is read as a struct. Raises NotInC."""
    places = {name: (at, each) for at, (name, each) in enumerate(kind.fields)}
    steps: list[Step] = []
    for name, one in ((field.name, field.type) for field in record.fields):
        if name in places:
            to, each = places[name]
            steps.append(find_step(one, each, unit_of(name))._replace(to=to))
        else:
            steps.append(skip_step(one))
    return tuple(steps)


def _find_value_step(one: AvroType, kind: DataType, unit: str) -> Step:
    if one.items is not None and kind.element is not None:
        return Step(one.kind, steps=(find_step(one.items, kind.element, unit),), refused=_find_refused(one))
    if one.kind == "record" and kind.kind == "struct":
        return Step("record", steps=find_field_steps(one, kind, lambda _: unit))
    if one.kind == "record":
        if [(field.name, field.type.bare.kind) for field in one.fields] != [("scale", "int"), ("value", "bytes")]:
            raise NotInC("a number without its scale before its bytes")
        parts = [Step(field.type.bare.kind, null_at=find_null_index(field.type)) for field in one.fields]
        return Step("record", steps=tuple(parts))
    if kind.kind == "decimal" and (one.kind == "float" or abs(one.scale) > _SCALE_MAX):
        raise NotInC(f"{word_of(one)} as {kind}")
    step = Step(one.kind, size=one.size, scale=one.scale, symbols=one.symbols, refused=_find_refused(one))
    if kind.kind in _SMALL:
        return step._replace(bounds=_SMALL[kind.kind])
    if one.kind == "int" and kind.kind == "date":
        return step._replace(bounds=(FIRST_DAY, LAST_DAY))
    if one.kind == "long" and kind.kind in ("timestamp", "timestamp_ntz"):
        factor, divisor = _micros_of(one, unit)
        return step._replace(factor=factor, divisor=divisor, bounds=(FIRST_MOMENT, LAST_MOMENT))
    return step


def _find_refused(one: AvroType) -> tuple[bytes, ...]:
    """Returns the encoded values of a type that stand for an unavailable one."""
    if one.kind == "enum":
        return tuple(
            zigzag(one.symbols.index(each)) for each in (UNAVAILABLE, UNAVAILABLE_BASE64) if each in one.symbols
        )
    if one.kind == "bytes":
        return (_with_length(UNAVAILABLE),)
    if one.kind == "string":
        return _with_length(UNAVAILABLE), _with_length(UNAVAILABLE_BASE64)
    if one.kind != "array" or one.items is None or one.items.bare.kind not in ("int", "long", "string"):
        return ()
    is_text = one.items.bare.kind == "string"
    items = [_with_length(UNAVAILABLE_UUID)] if is_text else list(map(zigzag, UNAVAILABLE_NUMBERS))
    before = zigzag(1 - find_null_index(one.items)) if one.items.nullable else b""
    return (zigzag(len(items)) + b"".join(before + item for item in items) + b"\0",)


def _with_length(text: str) -> bytes:
    return zigzag(len(text)) + text.encode()
