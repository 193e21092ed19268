"""Descriptors as `protoc` would make them, messages of them, and decoders that read these."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2

from tidegate.formats.contract import Columns
from tidegate.formats.kinds.protobuf import FORMAT
from tidegate.formats.kinds.protobuf.columns import WORDS
from tidegate.formats.kinds.protobuf.decoder import ProtobufDecoder
from tidegate.formats.kinds.protobuf.schema import MessageType, find_message
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

PREFIX: Final = b"\0\0\0\0\x07\0"
"""The id 7, and the first message."""
LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
TYPES: Final = {word: number for number, word in enumerate(WORDS) if word}
Fields = Sequence[tuple[Any, ...]]
"""(name, type, and of these: optional, required, repeated, oneof:NAME, default:TEXT, a number). A type is a word of
`.proto` files, the full name of a message, `enum:` with one of an enum, or a pair of them for a map.
"""


def file_of(
    messages: Mapping[str, Fields],
    *,
    name: str = "t.proto",
    syntax: str = "proto3",
    enums: Mapping[str, Mapping[str, int]] | None = None,
    imports: Sequence[str] = (),
    package: str = "t",
) -> Any:
    """A file's descriptor. A message `A.B` is within the message `A`."""
    made = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax=syntax)
    made.dependency.extend(imports)
    known: dict[str, Any] = {}
    for full, fields in messages.items():
        outer, _, inner = full.rpartition(".")
        one = known[full] = (known[outer].nested_type if outer else made.message_type).add(name=inner)
        for number, field in enumerate(fields, 1):
            _add_field(one, f"{package}.{full}", number, field)
        for each in one.field if syntax == "proto3" else ():
            if (each.name, "optional") in {(field[0], flag) for field in fields for flag in field[2:]}:
                each.proto3_optional = True
                each.oneof_index = len(one.oneof_decl)  # such choices are after all others
                one.oneof_decl.add(name=f"_{each.name}")
    for enum, values in (enums or {}).items():
        kind = made.enum_type.add(name=enum)
        kind.options.allow_alias = len(set(values.values())) < len(values)
        for word, number in values.items():
            kind.value.add(name=word, number=number)
    return made


def _add_field(one: Any, full: str, number: int, field: tuple[Any, ...]) -> None:
    name, kind, *flags = field
    number = next((flag for flag in flags if isinstance(flag, int)), number)
    words = [flag for flag in flags if isinstance(flag, str)]
    label = next((LABELS[word] for word in words if word in LABELS), 1)
    made = one.field.add(name=name, number=number, label=label)
    if isinstance(kind, tuple):
        entry = one.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        for place, (part, each) in enumerate(zip(("key", "value"), kind, strict=True), 1):
            _set_type(entry.field.add(name=part, number=place, label=1), each)
        made.label, made.type, made.type_name = 3, TYPES["message"], f".{full}.{entry.name}"
        return
    _set_type(made, kind)
    for word in words:
        if word.startswith("default:"):
            made.default_value = word.removeprefix("default:")
        if word.startswith("oneof:"):
            names = [choice.name for choice in one.oneof_decl]
            choice = word.removeprefix("oneof:")
            if choice not in names:
                one.oneof_decl.add(name=choice)
            made.oneof_index = [each.name for each in one.oneof_decl].index(choice)


def _set_type(made: Any, kind: str) -> None:
    if kind in TYPES:
        made.type = TYPES[kind]
        return
    made.type = TYPES["enum" if kind.startswith("enum:") else "message"]
    made.type_name = f".{kind.removeprefix('enum:')}"


def text_of(file: Any, schema_id: int = 7, message: str = "", imports: Sequence[Any] = ()) -> SchemaText:
    """As the registry gives it."""
    references = tuple((one.name, text_of(one, 0)) for one in imports)
    text = base64.b64encode(file.SerializeToString()).decode()
    return SchemaText(SchemaKind.PROTOBUF, text, references, schema_id, message=message)


def type_of(file: Any, message: str = "") -> MessageType:
    return find_message(text_of(file, message=message))


def write(file: Any, message: str = "", /, **fields: Any) -> bytes:
    """A message with the id 7, of the first type or another one of `file`."""
    one = type_of(file, message)
    places = b"\0" if one.place == (0,) else bytes([2 * len(one.place), *(2 * index for index in one.place)])
    made = one.made(**fields)
    return PREFIX[:5] + places + bytes(one.made.SerializeToString(made))


def decoder_of(
    writer: Any, reader: Any = None, declared: Columns | None = None, output: Columns | None = None, **options: Any
) -> ProtobufDecoder:
    """Of records with the id 7. Without a reader and columns: of all columns."""
    known = KnownSchemas({7: text_of(writer)})
    if declared is not None:
        return ProtobufDecoder(declared, declared if output is None else output, FormatOptions(**options), known)
    read = text_of(writer if reader is None else reader)
    columns = tuple(FORMAT.schema_columns(read).items())
    return ProtobufDecoder(columns, columns if output is None else output, FormatOptions(read, **options), known)
