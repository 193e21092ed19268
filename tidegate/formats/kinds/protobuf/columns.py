"""Message types and columns: the column type of a field, and whether messages fit.

A writer's message is compared with the reader's by field numbers, and that of a schema with a sink's columns. The
library reads a field by the number and wire type that it knows, whatever the writer's type: a long becomes an int
without its upper half, and text with another wire type is treated as an unknown field. So the types are compared, once
per schema, and a field is read only if no value changes.
"""

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
from tidegate.formats.contract import Columns, FormatRefusal
from tidegate.formats.kinds.protobuf.schema import OWN, Descriptor
from tidegate.formats.schema_ids import SchemaRefusal

DEPTH_MAX: Final = 20
FIELDS_MAX: Final = 10_000
"""Maximum number of fields of a message; those of nested messages count each time."""
UNSIGNED_64: Final = decimal_of(20, 0)
_REMEDY: Final = "list the columns that you need: `schema: {id: bigint}`"

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
DURATION_S_MAX: Final = 315_576_000_000
"""Google's limit: 10,000 years."""
_MEANT: Final = {TIMESTAMP_NAME: TIMESTAMP, DURATION_NAME: BIGINT}


def own_name(descriptor: Descriptor) -> str:
    """Returns the name of a message with a meaning beyond its fields; empty for any other."""
    name = str(descriptor.full_name)
    return name if descriptor.file.name in OWN and (name in _MEANT or name in WRAPPERS) else ""


def is_map(field: Any) -> bool:
    """Returns whether a field is a map, which descriptors represent as a list of entries."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def message_columns(descriptor: Descriptor) -> Schema:
    """Returns the columns of a message's fields. Raises FormatRefusal with the place of what cannot be a column."""
    for field in descriptor.fields:
        if is_reserved(field.name):
            raise _unreadable(field.name, f"names of columns that begin with `{RESERVED}` belong to Tidegate")
    return dict(_Reader().fields(descriptor, "", (descriptor.full_name,)))


class _Reader:
    def __init__(self) -> None:
        self._left = FIELDS_MAX

    def fields(self, descriptor: Descriptor, place: str, above: tuple[str, ...]) -> tuple[tuple[str, DataType], ...]:
        """`above` holds the enclosing messages."""
        if not descriptor.fields:
            raise _unreadable(place, f"{descriptor.full_name} has no fields, and a struct needs at least one")
        return tuple(
            (field.name, self.field(field, f"{place}.{field.name}".lstrip("."), above)) for field in descriptor.fields
        )

    def field(self, field: Any, place: str, above: tuple[str, ...]) -> DataType:
        """Returns a column type. Every column may be NULL, whether or not the field can be missing."""
        self._left -= 1
        if self._left < 0:
            raise _unreadable(place, f"there are more than {FIELDS_MAX} fields")
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
            raise _unreadable(place, f"{below.full_name} contains itself, but columns have a fixed depth")
        if len(above) > DEPTH_MAX:
            raise _unreadable(place, f"it is nested more than {DEPTH_MAX} levels deep")
        return DataType("struct", fields=self.fields(below, place, (*above, below.full_name)))


def _unreadable(place: str, what: str) -> FormatRefusal:
    where = f" at `{place}`" if place else ""
    return FormatRefusal(f"the schema cannot be read as columns{where}: {what}", _REMEDY)


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


# -- whether messages fit ----------------------------------------------------------------------------------------------


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


GROUP, MESSAGE = 10, 11
WORDS: Final = (
    "",
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""Names of types by their number in descriptors."""
_WIDER: Final = {
    "int32": {"int64"},
    "uint32": {"uint64", "int64"},
    "bool": {"int32", "int64", "uint32", "uint64"},
    "enum": {"int32", "int64"},
    "sint32": {"sint64"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_WIDER_COLUMNS: Final = {"int": {"bigint", "double"}, "float": {"double"}}


class Unfit(SchemaRefusal):
    """Values of a field cannot be read."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"at `{place}`: {what}")


def check_columns(descriptor: Descriptor, columns: Columns, place: str = "") -> None:
    """Checks that columns can be read from the fields of the same name. Raises Unfit.

    A column without a field is NULL.
    """
    for name, kind in columns:
        field = descriptor.fields_by_name.get(name)
        if field is not None:
            _check_column(field, kind, f"{place}.{name}".lstrip("."))


def _check_column(field: Any, kind: DataType, place: str) -> None:
    values = single_values(field, kind, place)
    if values is None:
        shape = "a map" if is_map(field) else "repeated"
        raise Unfit(place, f"the writer's type is {shape}, but the column is {kind}")
    for one in values:
        _check_read(*one)


def _check_read(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    if below is not None and not own_name(below):
        if kind.kind != "struct":
            raise Unfit(place, f"the writer's type is the message {below.full_name}, but the column is {kind}")
        check_columns(below, kind.fields, place)
        return
    found = _Reader().field(field, field.name, (field.containing_type.full_name,))
    found = found.element if field.is_repeated and found.element is not None else found
    if found != kind and kind.kind not in _WIDER_COLUMNS.get(found.kind, ()):
        raise Unfit(place, f"the writer's type is {_word(field)}, which cannot become {kind}")


def check_compatible(writer: Descriptor, reader: Descriptor) -> None:
    """Checks that a reader gets the values that were written. Raises Unfit."""
    if writer.full_name != reader.full_name:
        raise Unfit(reader.full_name, f"the record is a message {writer.full_name}")
    _compare(writer, reader, "", set())


def _compare(writer: Descriptor, reader: Descriptor, place: str, seen: set[tuple[str, str]]) -> None:
    pair = (writer.full_name, reader.full_name)
    if pair in seen:
        return
    seen.add(pair)
    for field in reader.fields:
        other = writer.fields_by_number.get(field.number)
        if other is not None:
            where = f"{place}.{field.name}".lstrip(".")
            if is_map(other) is not is_map(field) or (other.is_repeated and not field.is_repeated):
                raise Unfit(where, f"the writer's type is {_word(other)}, the reader's {_word(field)}")
            _compare_types(other, field, where, seen)


def _compare_types(writer: Any, reader: Any, place: str, seen: set[tuple[str, str]]) -> None:
    written, read = WORDS[writer.type], WORDS[reader.type]
    if written != read and read not in _WIDER.get(written, ()):
        raise Unfit(place, f"the writer's type is {_word(writer)}, the reader's {_word(reader)}")
    if reader.message_type is None:
        return
    if own_name(writer.message_type) != own_name(reader.message_type):
        raise Unfit(place, f"the writer's type is {_word(writer)}, the reader's {_word(reader)}")
    _compare(writer.message_type, reader.message_type, place, seen)


def _word(field: Any) -> str:
    if is_map(field):
        return "a map"
    word = field.message_type.full_name if field.message_type is not None else WORDS[field.type]
    return f"repeated {word}" if field.is_repeated else str(word)


_WRITTEN_REMEDY: Final = "select the columns that the schema has, cast to its types, or name another schema"
_SMALL: Final = {"tinyint", "smallint"}
_INTS: Final = {*_SMALL, "int", "bigint"}
_TAKES: Final = {
    "bool": {"boolean"},
    "float": {*_SMALL, "float"},
    "double": {*_SMALL, "int", "float", "double"},
    "string": {"string"},
    "enum": {"string"},
    "bytes": {"binary"},
    **{word: {*_SMALL, "int"} for word in ("int32", "sint32", "sfixed32")},
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), _INTS),
    **{word: {*_INTS, "decimal"} for word in ("uint64", "fixed64")},
    TIMESTAMP_NAME: {"timestamp"},
    DURATION_NAME: _INTS,
}


def check_fields(descriptor: Descriptor, columns: Columns, place: str = "") -> None:
    """Raises FormatRefusal for the first column without a fitting field, or required field without a column."""
    fields = descriptor.fields_by_name
    for name, kind in columns:
        where = f"{place}.{name}".lstrip(".")
        if name not in fields:
            raise _unfit(where, f"{descriptor.full_name} has no field for this column")
        _check_field(fields[name], kind, where)
    names = {name for name, _ in columns}
    for field in descriptor.fields:
        if field.is_required and field.name not in names:
            raise _unfit(f"{place}.{field.name}".lstrip("."), "there is no column for this required field")


def _check_field(field: Any, kind: DataType, place: str) -> None:
    values = single_values(field, kind, place)
    if values is None:
        shape = "the schema has a map" if is_map(field) else "the field is repeated"
        raise _unfit(place, f"{shape}, but the column is {kind}")
    for one in values:
        _check_written(*one)


def _check_written(field: Any, kind: DataType, place: str) -> None:
    below = field.message_type
    own = "" if below is None else own_name(below)
    if below is not None and not own:
        if kind.kind != "struct":
            raise _unfit(place, f"the schema has the message {below.full_name}, but the column is {kind}")
        check_fields(below, kind.fields, place)
        return
    wrapped = own not in _TAKES and bool(own)
    word = WORDS[below.fields_by_name["value"].type if wrapped else field.type] if own not in _TAKES else own
    takes = kind.kind in _TAKES[word] and (kind.kind != "decimal" or kind.scale == 0)
    if not takes:
        raise _unfit(place, f"the schema has {own or word}, but the column is {kind}")


def _unfit(place: str, what: str) -> FormatRefusal:
    return FormatRefusal(f"the schema does not fit at `{place}`: {what}", _WRITTEN_REMEDY)
