"""Functions of JSON text, row by row, with the values of Spark's `from_json` (PERMISSIVE) and `to_json`."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, DataType
from tidegate.expressions.compiled.compiled import Compiled, compiles
from tidegate.expressions.compiled.json_text import (
    Malformed,
    Members,
    Number,
    TooDeep,
    java_double,
    java_float,
    number_of,
    quoted,
    read_json,
    write_json,
)
from tidegate.expressions.compiled.rowwise import RowFailed, by_row, text_within_limit, within_limit
from tidegate.expressions.expression import Call
from tidegate.expressions.patterns import Path, derive_path
from tidegate.expressions.text_values import date_of_text, moment_of_text, nearest_float
from tidegate.formats.failures import FailureKind

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  # for values without a zone
_LIMITS = {"smallint": 1 << 15, "int": 1 << 31, "bigint": 1 << 63}
_DOUBLES = {"NaN": "NaN", "+INF": "Infinity", "+Infinity": "Infinity", "Infinity": "Infinity"}
_DOUBLES |= {"-INF": "-Infinity", "-Infinity": "-Infinity"}


class NoValue(Exception):
    """A JSON value that does not fit the type: the field, or the array or map that contains it, becomes NULL."""


Convert = Callable[[Any], Any]


def converter(kind: DataType) -> Convert:
    """Returns a function from JSON values to values of the type. NULL stays NULL. The function raises NoValue."""
    convert = _converter(kind)
    return lambda value: None if value is None else convert(value)


def _converter(kind: DataType) -> Convert:
    if kind.kind == "struct":
        return _StructConverter(kind)
    if kind.kind == "array" and kind.element is not None:
        return _array(converter(kind.element))
    if kind.kind == "map" and kind.element is not None:
        return _map(converter(kind.element))
    if kind.kind in ("tinyint", *_LIMITS):
        return _integer(kind.kind)
    return {
        "boolean": _boolean,
        "string": _string,
        "float": _float,
        "double": _double,
        "date": _date,
        "timestamp": _timestamp,
    }[kind.kind]


class _StructConverter:
    """Converter of an object to a struct. A field without a value of its type is NULL; the others are kept."""

    def __init__(self, kind: DataType) -> None:
        self._names = [name for name, _ in kind.fields]
        self._converters = {name: converter(field) for name, field in kind.fields}

    def __call__(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Members):
            raise NoValue
        found: dict[str, Any] = dict.fromkeys(self._names)
        for name, one in value:
            convert = self._converters.get(name)
            if convert is not None:
                try:
                    found[name] = convert(one)
                except NoValue:
                    continue
        return found


def _array(convert: Convert) -> Convert:
    def of(value: Any) -> list[Any]:
        if not isinstance(value, list) or isinstance(value, Members):
            raise NoValue
        return [convert(one) for one in value]

    return of


def _map(convert: Convert) -> Convert:
    def of(value: Any) -> list[dict[str, Any]]:
        if not isinstance(value, Members):
            raise NoValue
        entries = [{"key": plain_text(name), "value": convert(one)} for name, one in value]
        if len({entry["key"] for entry in entries}) < len(entries):
            raise RowFailed(FailureKind.DUPLICATED_MAP_KEY)
        return entries

    return of


def plain_text(text: str) -> str:
    """Replaces unpaired surrogates, which only escapes can produce."""
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\ufffd", "?")
        if any("\ud800" <= one <= "\udfff" for one in text)
        else text
    )


def _string(value: Any) -> str:
    return plain_text(value) if isinstance(value, str) and not isinstance(value, Number) else write_json(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NoValue
    return value


def _integer(kind: str) -> Convert:
    def of(value: Any) -> int:
        if not isinstance(value, Number) or not value.lstrip("-").isdigit():
            raise NoValue
        number = int(value)
        if kind == "tinyint" and -128 <= number < 256:
            return number - 256 if number > 127 else number  # Jackson also accepts an unsigned byte
        if kind == "tinyint" or not -_LIMITS[kind] <= number < _LIMITS[kind]:
            raise NoValue
        return number

    return of


def _double(value: Any) -> float:
    if isinstance(value, Number):
        return number_of(value) or (0.0 if value == "-0" else number_of(value))
    if isinstance(value, str) and value in _DOUBLES:
        return float(_DOUBLES[value])
    raise NoValue


def _float(value: Any) -> float:
    double = _double(value)
    if not isinstance(value, Number) or double in (0.0, float("inf"), float("-inf")) or double != double:
        return double  # the exponent of a number this small may be too large for a Fraction
    return nearest_float(Decimal(value))


def _date(value: Any) -> int:
    found = date_of_text(value) if isinstance(value, str) and not isinstance(value, Number) else None
    if found is None:
        raise NoValue
    return found


def _timestamp(value: Any) -> int:
    if (
        isinstance(value, Number)
        and value.lstrip("-").isdigit()
        and -_LIMITS["bigint"] <= int(value) < _LIMITS["bigint"]
    ):
        found: int | None = int(value) * 1_000_000
    else:
        found = moment_of_text(value) if isinstance(value, str) and not isinstance(value, Number) else None
    if found is None:
        raise NoValue
    if not FIRST_MOMENT <= found <= LAST_MOMENT:
        raise RowFailed(FailureKind.DATETIME_OVERFLOW)
    return found


Write = Callable[[Any], str]


def writer(kind: DataType) -> Write:
    """Returns a function that writes values of a type as JSON, without NULL fields. NULL elements and map values
    remain.
    """
    write = _writer(kind)
    return lambda value: "null" if value is None else write(value)


def _writer(kind: DataType) -> Write:
    if kind.kind == "struct":
        fields = [(name, f"{quoted(name)}:", writer(field)) for name, field in kind.fields]
        return lambda value: (
            "{" + ",".join(head + write(value[name]) for name, head, write in fields if value[name] is not None) + "}"
        )
    if kind.kind == "array" and kind.element is not None:
        element = writer(kind.element)
        return lambda value: "[" + ",".join(map(element, value)) + "]"
    if kind.kind == "map" and kind.element is not None:
        of_map = writer(kind.element)
        return lambda value: "{" + ",".join(f"{quoted(entry['key'])}:{of_map(entry['value'])}" for entry in value) + "}"
    plain: dict[str, Write] = {
        "boolean": lambda value: "true" if value else "false",
        "string": quoted,
        "binary": lambda value: f'"{base64.b64encode(value).decode()}"',
        "float": _text_of_float,
        "double": _text_of_double,
        "date": lambda value: f'"{_moment(value * 86_400_000_000).date().isoformat()}"',
        "timestamp": lambda value: f'"{_text_of_moment(value)}Z"',
        "timestamp_ntz": lambda value: f'"{_text_of_moment(value)}"',
    }
    return plain.get(kind.kind, str)


def _moment(micros: int) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise RowFailed(FailureKind.DATETIME_OVERFLOW) from None


def _text_of_moment(micros: int) -> str:
    return _moment(micros).isoformat(timespec="milliseconds")


def _text_of_double(value: float) -> str:
    text = java_double(value)
    return text if text[-1].isdigit() else f'"{text}"'


def _text_of_float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return _text_of_double(value)
    return java_float(value)


_READING = (FailureKind.TOO_DEEP, FailureKind.RESULT_TOO_LARGE)


def _read(text: str, *, controls: bool = False, constants: bool = False) -> Any:
    """Reads the first value in a text. Raises Malformed, and RowFailed if the text is nested too deeply."""
    try:
        return read_json(text, controls=controls, constants=constants)
    except TooDeep:
        raise RowFailed(FailureKind.TOO_DEEP) from None


@compiles("get_json_object")
def _get(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    path = derive_path(str(arguments[1].constant))

    def each(text: str) -> str | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        found = _followed(value, path)
        if isinstance(found, str) and not isinstance(found, Number) and found != plain_text(found):
            return None  # an unpaired surrogate, which cannot be written
        text_within_limit(found or "")
        return found

    return by_row(call, arguments[:1], each, *_READING)


def _followed(value: Any, path: Path) -> str | None:
    """Returns the text at a path. Of members with the same name, the first in which the path finds a value counts."""
    if not path:
        return value if isinstance(value, str) and not isinstance(value, Number) else write_json(value)
    step, *rest = path
    if isinstance(step, int):
        is_array = isinstance(value, list) and not isinstance(value, Members)
        return _followed(value[step], tuple(rest)) if is_array and step < len(value) else None
    if not isinstance(value, Members):
        return None
    found = (_followed(one, tuple(rest)) for name, one in value if name == step and one is not None)
    return next((text for text in found if text is not None), None)


@compiles("from_json")
def _from(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    kind = call.type
    convert = converter(kind)
    nothing = dict.fromkeys([name for name, _ in kind.fields]) if kind.kind == "struct" else None
    of_objects = kind.kind == "array" and kind.element is not None and kind.element.kind == "struct"

    def each(text: str) -> Any:
        if not text.strip(" \t\n\r"):
            return None
        try:
            value = _read(text, constants=True)
            if value is None:
                return nothing
            return convert([value] if of_objects and isinstance(value, Members) else value)
        except (Malformed, NoValue):
            return nothing

    return by_row(call, arguments, each, *_READING, FailureKind.DUPLICATED_MAP_KEY, FailureKind.DATETIME_OVERFLOW)


@compiles("to_json")
def _to(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    write = writer(arguments[0].type)

    def each(value: Any) -> str:
        text = write(value)
        within_limit(len(text.encode()))
        return text

    return by_row(call, arguments, each, FailureKind.RESULT_TOO_LARGE, FailureKind.DATETIME_OVERFLOW)


@compiles("json_array_length")
def _length(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> int | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        return len(value) if isinstance(value, list) and not isinstance(value, Members) else None

    return by_row(call, arguments, each, FailureKind.TOO_DEEP)


@compiles("json_object_keys")
def _keys(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    def each(text: str) -> list[str] | None:
        try:
            value = _read(text, controls=True)
        except Malformed:
            return None
        return [plain_text(name) for name, _ in value] if isinstance(value, Members) else None

    return by_row(call, arguments, each, FailureKind.TOO_DEEP)
