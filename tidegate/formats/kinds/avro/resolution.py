"""Resolution of a writer's schema: the type as which the reader reads each field, or why there is none.

fastavro implements Avro's resolution rules (`reference.py`). Here they are checked once per schema, so that the error
for an incompatible schema names the place. There are additional rules: a timestamp has the unit with which it was
written, whatever the reader's schema sets, and a decimal must have the writer's scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.datatypes import MAX_PRECISION, DataType
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.avro.columns import column_type, derive_field
from tidegate.formats.kinds.avro.schema import AvroField, AvroRefusal, AvroType

PROMOTED: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_BY_COLUMN: Final = {
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}
_MOMENTS: Final = ("timestamp-", "local-timestamp-")


def fit_columns(writer: AvroType, columns: Columns) -> AvroType:
    """Returns the reader's record for declared columns: those fields, with NULL for any that the writer lacks.

    Raises AvroRefusal if a field exists with another type.
    """
    fields = {field.name: field for field in writer.fields}
    return msgspec.structs.replace(
        writer, fields=tuple(_fit_field(fields.get(name), name, kind, name) for name, kind in columns)
    )


def _fit_field(field: AvroField | None, name: str, kind: DataType, place: str) -> AvroField:
    if field is None:
        return derive_field(name, kind, f"left_out_{name}")
    return AvroField(name, _fit(field.type, kind, place))


def _fit(one: AvroType, kind: DataType, place: str) -> AvroType:
    if one.kind == "union" and one.bare is not one:
        fitted = _fit(one.bare, kind, place)
        return msgspec.structs.replace(
            one, branches=tuple(each if each.kind == "null" else fitted for each in one.branches)
        )
    if one.kind == "array" and kind.kind == "array" and one.items is not None and kind.element is not None:
        return msgspec.structs.replace(one, items=_fit(one.items, kind.element, f"{place}[]"))
    if one.kind == "map" and kind.kind == "map" and one.items is not None and kind.element is not None:
        if kind.key != DataType("string"):
            raise AvroRefusal(place, f"Avro's maps have strings as keys, but the column is {kind}")
        return msgspec.structs.replace(one, items=_fit(one.items, kind.element, f"{place}{{}}"))
    if one.kind == "record" and kind.kind == "struct":
        fields = {field.name: field for field in one.fields}
        return msgspec.structs.replace(
            one,
            fields=tuple(_fit_field(fields.get(name), name, each, f"{place}.{name}") for name, each in kind.fields),
        )
    if one.logical == kind.kind == "decimal" and one.scale == kind.scale:
        # A column has at most 38 digits, but Kafka Connect's converters write 64 if they do not know the precision.
        if one.precision <= kind.precision or one.precision > MAX_PRECISION:
            return msgspec.structs.replace(one, precision=kind.precision)
    elif one.logical != "decimal" and column_type(one, place) == kind:
        return one
    wanted = _BY_COLUMN.get(kind.kind, "")
    if wanted in PROMOTED.get(one.kind, ()) and not one.logical:
        return AvroType(wanted)
    raise AvroRefusal(place, f"the writer's type is {word_of(one)}, which cannot become {kind}")


def align(writer: AvroType, reader: AvroType, place: str = "") -> AvroType:
    """Returns the reader's type with the writer's time units. Raises AvroRefusal if no value could be read."""
    if any(one.kind == "union" and one.bare is one for one in (writer, reader)):
        return _align_several(writer, reader, place)
    if reader.kind == "union":
        aligned = align(writer.bare, reader.bare, place)
        return msgspec.structs.replace(
            reader, branches=tuple(each if each.kind == "null" else aligned for each in reader.branches)
        )
    one = writer.bare
    if reader.kind != one.kind and reader.kind not in PROMOTED.get(one.kind, ()):
        raise AvroRefusal(place, f"the writer's type is {word_of(writer)}, the reader's {word_of(reader)}")
    if reader.name and short_name(reader.name) != short_name(one.name) and one.name not in reader.aliases:
        raise AvroRefusal(place, f"the writer's type is the {one.kind} {one.name}, the reader's {reader.name}")
    if reader.kind == "record":
        sources = _sources(one, reader)
        fields = tuple(_align_field(one, field, sources.get(field.name), place) for field in reader.fields)
        return msgspec.structs.replace(reader, fields=fields)
    if reader.items is not None and one.items is not None:
        return msgspec.structs.replace(reader, items=align(one.items, reader.items, f"{place}[]"))
    if reader.kind == "fixed" and reader.size != one.size:
        raise AvroRefusal(place, f"the writer's type has {one.size} bytes, the reader's {reader.size}")
    return _align_logical(one, reader, place)


def _align_several(writer: AvroType, reader: AvroType, place: str) -> AvroType:
    """Aligns types of which at least one is a union of several: each reader's type with the writer's that it receives.

    Values of the writer's other types are bad one by one.
    """
    members = list(reader.branches or (reader,))
    sources: dict[int, AvroType] = {}
    for one in writer.branches or (writer,):
        at = choose_member(one, members)
        if at is not None and members[at].kind == one.kind:
            sources.setdefault(at, one)
    aligned = tuple(align(sources[at], one, place) if at in sources else one for at, one in enumerate(members))
    return msgspec.structs.replace(reader, branches=aligned) if reader.kind == "union" else aligned[0]


def choose_member(writer: AvroType, members: Sequence[AvroType]) -> int | None:
    """Returns the index of the reader's type that receives values of a writer's type.

    It is the type with the same name, with the same name without namespace, or the first to which it can be promoted.
    """
    for one_of in (_has_name, is_alike, _can_become):
        for place, member in enumerate(members):
            if one_of(writer, member):
                return place
    return None


def _has_name(writer: AvroType, reader: AvroType) -> bool:
    return writer.kind == reader.kind and writer.name in (reader.name, *reader.aliases)


def is_alike(writer: AvroType, reader: AvroType) -> bool:
    """Returns whether both have the same kind and the same name, ignoring namespaces, or an alias."""
    return _has_name(writer, reader) or (
        writer.kind == reader.kind and short_name(writer.name) == short_name(reader.name)
    )


def _can_become(writer: AvroType, reader: AvroType) -> bool:
    return reader.kind in PROMOTED.get(writer.kind, ())


def short_name(name: str) -> str:
    """Returns a name without its namespace."""
    return name.rpartition(".")[2]


def _sources(writer: AvroType, reader: AvroType) -> dict[str, AvroField]:
    """Maps the names of the reader's fields to the writer's fields from which they get their values.

    Each writer's field is used once: for the field of its name, else for the first with that name as an alias.
    """
    written = {field.name: field for field in writer.fields}
    found = {field.name: written.pop(field.name) for field in reader.fields if field.name in written}
    for field in reader.fields:
        alias = next((name for name in field.aliases if name in written), None)
        if field.name not in found and alias is not None:
            found[field.name] = written.pop(alias)
    return found


def _align_field(writer: AvroType, field: AvroField, source: AvroField | None, place: str) -> AvroField:
    """Aligns a field and removes aliases that name a writer's field other than `source`."""
    where = f"{place}.{field.name}".lstrip(".")
    if source is None and not field.has_default:
        raise AvroRefusal(where, "the writer does not have the field, and the reader has no default for it")
    others = {one.name for one in writer.fields if one is not source}
    aliases = tuple(name for name in field.aliases if name not in others)
    if aliases != field.aliases:
        field = msgspec.structs.replace(field, aliases=aliases)
    return field if source is None else msgspec.structs.replace(field, type=align(source.type, field.type, where))


def _align_logical(writer: AvroType, reader: AvroType, place: str) -> AvroType:
    if writer.logical == reader.logical != "decimal" or not writer.logical or not reader.logical:
        return reader
    if writer.logical == reader.logical:
        if writer.scale != reader.scale:
            raise AvroRefusal(place, f"the writer's scale is {writer.scale}, the reader's {reader.scale}")
        return reader
    if any(writer.logical.startswith(one) and reader.logical.startswith(one) for one in _MOMENTS):
        return msgspec.structs.replace(reader, logical=writer.logical)
    raise AvroRefusal(place, f"the writer's type is {writer.logical}, the reader's {reader.logical}")


def find_field(writer: AvroType, field: AvroField) -> AvroField | None:
    """Returns the writer's field for a field of a reader's type made by `align`."""
    names = (field.name, *field.aliases)
    return next((each for name in names for each in writer.fields if each.name == name), None)


def word_of(one: AvroType) -> str:
    """Names a type in a message."""
    if one.logical == "decimal":
        return f"decimal({one.precision},{one.scale})"
    return one.logical or one.name or (f"a union of {len(one.branches)}" if one.kind == "union" else one.kind)
