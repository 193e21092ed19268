"""Finds unexpected and missing parts of a message: fields without a column, and required fields that are not set."""

from __future__ import annotations

from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.protobuf.columns import is_map, own_name
from tidegate.formats.kinds.protobuf.schema import Descriptor, MessageType


class Strict:
    """Finds fields without a column, for `unknown_fields: fail`."""

    def __init__(self, one: MessageType, columns: Columns) -> None:
        self._name = one.descriptor.full_name
        self._known = dict(columns)

    def find(self, message: Any) -> str | None:
        """Describes the first such field; None if there is none."""
        return _find(message, self._known, self._name)


def _find(message: Any, known: dict[str, DataType], place: str) -> str | None:
    unknown = UnknownFieldSet(message)
    if len(unknown):
        number = unknown[0].field_number
        field = type(message).DESCRIPTOR.fields_by_number.get(number)
        if field is None:
            return f"{place} has no field of the number {number}"
        return f"`{field.name}` of {place} was written as another type, or as no value of its closed enum"
    for field, value in type(message).ListFields(message):
        if field.is_extension or field.name not in known:
            return f"no column is called `{field.name}`, which {place} has"
        if field.message_type is None:
            continue
        found = _within(field, value, known[field.name])
        if found is not None:
            return found
    return None


def _within(field: Any, value: Any, kind: DataType) -> str | None:
    inner = kind.element if kind.element is not None else kind
    one, values = field, value if field.is_repeated else (value,)
    if is_map(field):
        one, values = field.message_type.fields_by_name["value"], value.values()
    below = one.message_type
    if below is None:
        return None
    known = {each.name: inner for each in below.fields} if own_name(below) else dict(inner.fields)
    return next((found for each in values if (found := _find(each, known, below.full_name)) is not None), None)


def has_required(one: MessageType) -> bool:
    """Returns whether a message of this type can lack a required field."""
    return _has_required(one.descriptor, set())


def _has_required(descriptor: Descriptor, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in descriptor.fields
    )
