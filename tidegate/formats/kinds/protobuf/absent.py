"""Fills in fields that people omit from a message in JSON, as Protobuf's own JSON mapping does."""

from __future__ import annotations

from typing import Any

from tidegate.formats.kinds.protobuf.columns import ENUM_TYPE, is_map, own_name
from tidegate.formats.kinds.protobuf.schema import Descriptor


def fill_absent(value: Any, descriptor: Descriptor) -> Any:
    """Adds defaults for the omitted fields that have no presence, at every depth.

    Null values stay null. A value that is not a message is returned unchanged; the encoder reports it.
    """
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for field in descriptor.fields:
        if field.name in found:
            found[field.name] = _filled(found[field.name], field)
        elif field.is_repeated:
            found[field.name] = {} if is_map(field) else []
        elif not field.has_presence:
            found[field.name] = _default(field)
    return found


def _filled(value: Any, field: Any) -> Any:
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        is_object = isinstance(value, dict)
        return {name: _filled(each, inner) for name, each in value.items()} if is_object else value
    if field.message_type is None or own_name(field.message_type):
        return value
    if field.is_repeated:
        return [fill_absent(each, field.message_type) for each in value] if isinstance(value, list) else value
    return fill_absent(value, field.message_type)


def _default(field: Any) -> Any:
    if field.type == ENUM_TYPE:
        return field.enum_type.values_by_number[field.default_value].name
    return "" if isinstance(field.default_value, bytes) else field.default_value
