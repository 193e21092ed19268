"""Message types and columns: the column type of a field."""

from __future__ import annotations

from typing import Any, Final

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    RESERVED,
    STRING,
    TIMESTAMP,
    DataType,
    Schema,
    decimal_of,
    is_reserved,
    map_of,
)
from tidegate.formats.contract import FormatRefusal
from tidegate.formats.kinds.protobuf.schema import OWN, Descriptor

DEPTH_MAX: Final = 20
FIELDS_MAX: Final = 10_000
"""Maximum number of fields of a message; those of nested messages count each time."""
UNSIGNED_64: Final = decimal_of(20, 0)
REMEDY: Final = "list the columns that you need: `schema: {id: bigint}`"

_SIMPLE: Final = {
    1: DOUBLE,
    2: FLOAT,
    3: BIGINT,
    4: UNSIGNED_64,
    5: INT,
    6: UNSIGNED_64,
    7: BIGINT,
    8: BOOLEAN,
    9: STRING,
    12: BINARY,
    13: BIGINT,
    14: STRING,
    15: INT,
    16: BIGINT,
    17: INT,
    18: BIGINT,
}
"""Column types by number of a type in descriptors: 4 and 6 are unsigned 64-bit, 7 and 13 unsigned 32-bit, 14 enum."""
STRING_TYPE: Final = 9
ENUM_TYPE: Final = 14
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
DURATION_NAME: Final = "google.protobuf.Duration"
_MEANT: Final = {TIMESTAMP_NAME: TIMESTAMP, DURATION_NAME: BIGINT}


def own_name(descriptor: Descriptor) -> str:
    """Returns the name of a message with a meaning beyond its fields; empty for any other."""
    name = str(descriptor.full_name)
    return name if descriptor.file.name in OWN and (name in _MEANT or name in WRAPPERS) else ""


def is_map(field: Any) -> bool:
    """Returns whether a field is a map, which descriptors represent as a list of entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def single_values(field: Any, kind: DataType, place: str) -> list[tuple[Any, DataType, str]] | None:
    """Returns the parts of a field and a column to compare, with their places.

    These are the keys and values of a map, or the elements of a repeated field. None if the field is a map or repeated,
    and the column is not.
    """
    if is_map(field):
        if kind.kind != "map" or kind.key is None or kind.element is None:
            return None
        parts = field.message_type.fields_by_name
        return [(parts["key"], kind.key, f"{place}{{}}"), (parts["value"], kind.element, f"{place}{{}}")]
    if not field.is_repeated:
        return [(field, kind, place)]
    return None if kind.kind != "array" or kind.element is None else [(field, kind.element, f"{place}[]")]


def message_columns(descriptor: Descriptor) -> Schema:
    """Returns the columns of a message's fields. Raises FormatRefusal with the place of what cannot be a column."""
    for field in descriptor.fields:
        if is_reserved(field.name):
            raise _refusal(field.name, f"names of columns that begin with `{RESERVED}` belong to Tidegate")
    return dict(_Reader().fields(descriptor, "", (descriptor.full_name,)))


def field_column(field: Any) -> DataType:
    """Returns the column type of a field. Raises FormatRefusal."""
    return _Reader().field(field, field.name, (field.containing_type.full_name,))


class _Reader:
    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def fields(self, descriptor: Descriptor, place: str, above: tuple[str, ...]) -> tuple[tuple[str, DataType], ...]:
        """`above` holds the enclosing messages."""
        if not descriptor.fields:
            raise _refusal(place, f"{descriptor.full_name} has no fields, and a struct needs at least one")
        return tuple(
            (field.name, self.field(field, f"{place}.{field.name}".lstrip("."), above)) for field in descriptor.fields
        )

    def field(self, field: Any, place: str, above: tuple[str, ...]) -> DataType:
        """Returns a column type. Every column may be NULL, whether or not the field can be missing."""
        self._left -= 1
        if self._left < 0:
            raise _refusal(place, f"there are more than {FIELDS_MAX} fields")
        if is_map(field):
            key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
            return map_of(_SIMPLE[key.type], self._one(value, f"{place}{{}}", above))
        one = self._one(field, place, above)
        return DataType("array", element=one) if field.is_repeated else one

    def _one(self, field: Any, place: str, above: tuple[str, ...]) -> DataType:
        below = field.message_type
        if below is None:
            return _SIMPLE[field.type]
        own = own_name(below)
        if own:
            return _MEANT.get(own) or _SIMPLE[below.fields_by_name["value"].type]
        if below.full_name in above:
            raise _refusal(place, f"{below.full_name} contains itself, but columns have a fixed depth")
        if len(above) > DEPTH_MAX:
            raise _refusal(place, f"it is nested more than {DEPTH_MAX} levels deep")
        return DataType("struct", fields=self.fields(below, place, (*above, below.full_name)))


def _refusal(place: str, what: str) -> FormatRefusal:
    where = f" at `{place}`" if place else ""
    return FormatRefusal(f"the schema cannot be read as columns{where}: {what}", REMEDY)


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
