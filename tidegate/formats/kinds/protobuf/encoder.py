"""Rows to messages: converts columns to arguments of the library's constructor, and serializes messages one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.columns import plain_values
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.protobuf.columns import (
    DURATION_NAME,
    DURATION_S_MAX,
    ENUM_TYPE,
    TIMESTAMP_NAME,
    check_fields,
    is_map,
    own_name,
)
from tidegate.formats.kinds.protobuf.schema import Descriptor, find_message, prefix_with_place
from tidegate.formats.schemas import FormatOptions

Write = Callable[[Any], Any]
"""Converts a value of a column to the constructor's argument for a field."""

_SECOND: Final = 1_000_000
_NUMBER: Final = re.compile("-?[0-9]{1,10}")
"""The number of an enum value without a name."""


_Choice = tuple[str, Sequence[str]]
"""The name of a oneof, and the columns that are its members."""


class Unwritable(Exception):
    """A value that its field cannot hold."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Field(NamedTuple):
    name: str
    write: Write | None
    """None if values are unchanged."""
    nulls: str
    """Why NULL is not allowed; empty if it is."""


class ProtobufEncoder(Encoder):
    """Writes frames as messages of one type."""

    def __init__(self, columns: Columns, options: FormatOptions) -> None:
        """Raises FormatRefusal if the columns do not fit the schema of `options`."""
        assert options.schema is not None
        one = find_message(options.schema)
        check_fields(one.descriptor, columns)
        self._made = one.made
        self._serialize = one.made.SerializeToString  # of the class, since a field may have this name
        self._prefix = prefix_with_place(options, one.place)
        self._names = [name for name, _ in columns]
        self._fields, choices = _fields_of(one.descriptor, columns, "")
        self._write = _message_writer(self._fields, choices)
        self._sorted = _has_map(one.descriptor, columns)

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        values: list[bytes | None] = []
        failures: list[RecordFailure] = []
        for row in zip(*(plain_values(frame[name]) for name in self._names), strict=True):
            try:
                message = self._made(**self._write(row))
                values.append(self._prefix + self._serialize(message, deterministic=self._sorted))
                continue
            except Unwritable as error:
                failures.append(RecordFailure(len(values), error.kind, str(error)))
            except (ValueError, TypeError) as error:  # the library's: a number out of the field's range
                failures.append(RecordFailure(len(values), FailureKind.OUT_OF_RANGE, f"{self._place(row)}{error}"))
            values.append(None)
        return Encoded(pl.DataFrame([pl.Series("value", values, dtype=pl.Binary)]), failures)

    def _place(self, row: Sequence[Any]) -> str:
        """Names the field that the library rejects without naming it; empty if it accepts each field on its own."""
        for field, value in zip(self._fields, row, strict=True):
            try:
                self._made(**_message_writer([field], [])([value]))
            except (ValueError, TypeError):
                return f"`{field.name}`: "
        return ""


def _fields_of(descriptor: Descriptor, columns: Columns, place: str) -> tuple[list[_Field], list[_Choice]]:
    """Returns the fields, and the oneofs of which more than one column is a member."""
    known = dict(columns)
    choices = [(one.name, [each.name for each in one.fields if each.name in known]) for one in descriptor.oneofs]
    fields = [_field(descriptor.fields_by_name[name], kind, f"{place}{name}") for name, kind in columns]
    return fields, [(name, some) for name, some in choices if len(some) > 1]


def _has_map(descriptor: Descriptor, columns: Columns) -> bool:
    """Returns whether there are map entries to sort."""
    fields = [(descriptor.fields_by_name[name], kind) for name, kind in columns]
    return any(
        kind.kind == "map" or (field.message_type is not None and _has_map(field.message_type, _inner(kind).fields))
        for field, kind in fields
    )


def _inner(kind: DataType) -> DataType:
    return kind.element if kind.kind == "array" and kind.element is not None else kind


def _message_writer(fields: Sequence[_Field], choices: Sequence[_Choice]) -> Write:
    """Returns the conversion from values of a message's fields to those that are set."""

    def convert(values: Sequence[Any]) -> dict[str, Any]:
        made = {}
        for (name, write, nulls), value in zip(fields, values, strict=True):
            if value is not None:
                made[name] = value if write is None else write(value)
            elif nulls:
                raise Unwritable(FailureKind.NULL_VALUE, nulls)
        for choice, names in choices:
            _check_choice(choice, names, made)
        return made

    return convert


def _check_choice(choice: str, names: Sequence[str], made: dict[str, Any]) -> None:
    there = [name for name in names if made.get(name) is not None]
    if len(there) > 1:
        shown = " and ".join(f"`{name}`" for name in there[:2])
        raise Unwritable(
            FailureKind.OUT_OF_RANGE, f"{shown} belong to the oneof {choice}, of which only one may be set"
        )


def _field(field: Any, kind: DataType, place: str) -> _Field:
    if is_map(field):
        return _Field(field.name, _map_writer(field, kind, place), f"`{place}` is NULL, but a map cannot be absent")
    if field.is_repeated:
        write = _writer(field, kind.element or kind, f"{place}[]")
        nulls = f"`{place}` is NULL, but a repeated field cannot be absent"
        return _Field(field.name, _list_writer(write, place), nulls)
    nulls = "" if field.has_presence and not field.is_required else f"`{place}` is NULL, but the field cannot be absent"
    return _Field(field.name, _writer(field, kind, place), nulls)


def _list_writer(write: Write | None, place: str) -> Write:
    def convert(values: Any) -> list[Any]:
        if None in values:
            raise Unwritable(FailureKind.NULL_VALUE, f"`{place}` has a NULL element, which is not possible")
        return list(values) if write is None else list(map(write, values))

    return convert


def _map_writer(field: Any, kind: DataType, place: str) -> Write:
    assert kind.key is not None
    assert kind.element is not None
    key = _writer(field.message_type.fields_by_name["key"], kind.key, f"{place}{{}}") or _same
    value = _writer(field.message_type.fields_by_name["value"], kind.element, f"{place}{{}}") or _same

    def convert(pairs: Any) -> dict[Any, Any]:
        if any(each is None for _, each in pairs):
            raise Unwritable(FailureKind.NULL_VALUE, f"`{place}` has a NULL value, which is not possible in a map")
        return {key(name): value(each) for name, each in pairs}

    return convert


def _same(value: Any) -> Any:
    return value


def _writer(field: Any, kind: DataType, place: str) -> Write | None:
    """Returns the conversion of a single value of a field, which may be repeated."""
    if field.type == ENUM_TYPE:
        return _enum_writer(field.enum_type, place)
    below = field.message_type
    if below is None:
        return int if kind.kind == "decimal" else None
    own = own_name(below)
    if own == TIMESTAMP_NAME:
        return _moment
    if own == DURATION_NAME:
        return lambda value: _duration(value, place)
    if own:
        return (lambda value: {"value": int(value)}) if kind.kind == "decimal" else (lambda value: {"value": value})
    return _message_writer(*_fields_of(below, kind.fields, f"{place}."))


def _enum_writer(kind: Any, place: str) -> Write:
    numbers = {name: one.number for name, one in kind.values_by_name.items()}
    closed = kind.is_closed

    def convert(value: Any) -> int:
        found: int | None = numbers.get(value)
        if found is None and not closed and _NUMBER.fullmatch(value) and -(2**31) <= int(value) < 2**31:
            return int(value)  # as it was read if the schema does not define it
        if found is None:
            raise Unwritable(FailureKind.OUT_OF_RANGE, f"`{place}` is not a value of {kind.full_name}")
        return found

    return convert


def _moment(value: int) -> dict[str, int]:
    seconds, micros = divmod(value, _SECOND)
    return {"seconds": seconds, "nanos": micros * 1000}


def _duration(value: int, place: str) -> dict[str, int]:
    seconds, micros = divmod(abs(value), _SECOND)
    if seconds > DURATION_S_MAX:
        raise Unwritable(FailureKind.OUT_OF_RANGE, f"`{place}` exceeds the longest duration")
    sign = -1 if value < 0 else 1
    return {"seconds": sign * seconds, "nanos": sign * micros * 1000}
