"""Schema texts and message types: converts descriptor sets and the registry's serialized form to Google's descriptors.

A text is the base64 of a `FileDescriptorProto`; `compiler.py` compiles the text of `.proto` files. References are the
imported files, by the names used in the imports. Google's own files come with the library, and `compiler.py` contains
others that registries do not return. The library validates a descriptor, in a pool per schema.

A message has a prefix: the zero byte, the schema id, and the place of the message type in its file. The place is a list
of zig-zag varints, preceded by their number. For the first message, which is the most frequent case, a single zero
replaces the list.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.formats.contract import FormatRefusal
from tidegate.formats.kinds.protobuf.compiler import BUILT_IN, MISSING, built_in_file, compile_text
from tidegate.formats.schema_ids import PREFIX_BYTES, prefix_of
from tidegate.formats.schemas import FormatOptions, SchemaKind, SchemaText, is_serialized

logger = logging.getLogger(__name__)

MAIN: Final = "(schema)"
"""Name of the schema's file in its pool; not a possible file name."""
_NAMES: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask"),
    *("source_context", "struct", "timestamp", "type", "wrappers"),
)
OWN: Final = tuple(f"google/protobuf/{name}.proto" for name in _NAMES)
"""Files that come with the library."""
OPTIONS_ONLY: Final = "confluent/meta.proto"
"""Contains only options, which are ignored; Confluent's registry never returns it."""
_EVERYWHERE: Final = frozenset({*OWN, *BUILT_IN, OPTIONS_ONLY})
"""Files that registries have by default; they are in no subject."""
COMPILE: Final = "compile it: `protoc --include_imports --descriptor_set_out=order.desc order.proto`"
DEPTH_MAX: Final = 100
"""Maximum depth of nested message definitions."""

Descriptor = Any
"""google.protobuf.descriptor.Descriptor; the library has no type annotations."""


class MessageType(msgspec.Struct, frozen=True):
    """A message type, its place in its file, and the class of its messages."""

    descriptor: Descriptor
    place: tuple[int, ...]
    """Index of the outermost message, then of the message nested in it, and so on."""
    made: Any


class Described(msgspec.Struct, frozen=True):
    """All message types of a file by their places, in order."""

    pool: Any
    names: Mapping[tuple[int, ...], str]

    def at(self, place: tuple[int, ...]) -> MessageType | None:
        """Returns the message type at a place; None if there is none."""
        name = self.names.get(place)
        if name is None:
            return None
        from google.protobuf import message_factory

        descriptor = self.pool.FindMessageTypeByName(name)
        return MessageType(descriptor, place, message_factory.GetMessageClass(descriptor))


def read_file(data: bytes, directories: Sequence[Path] = ()) -> SchemaText:
    """Returns the last file of a descriptor set, which is the compiled one, or the text of a `.proto` file, with its
    imports, which are in `directories`. Raises FormatRefusal.
    """
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except DecodeError:
        files = []
    if not files and _is_text(data):
        files = compile_text(data, directories=directories)
    if not any(one.message_type for one in files):
        raise FormatRefusal("the file is neither a descriptor set nor a `.proto` file with messages", COMPILE)
    return _schema_of(files[-1], {one.name: one for one in files})


def compile_schema(schema: SchemaText) -> SchemaText:
    """Returns a schema of the registry with descriptors instead of texts; unchanged if it cannot be compiled, or refers
    to texts although it is none itself.
    """
    if is_serialized(schema.text):
        return schema
    everything = {name: one for name, one in _all_references(schema) if name not in _EVERYWHERE}
    texts = {name: one.text for name, one in everything.items() if not is_serialized(one.text)}
    try:
        given = _imported(msgspec.structs.replace(schema, references=tuple(everything.items())), texts)
        *imports, main = compile_text(schema.text.encode(), texts=texts, descriptors=[*given.values()])
    except FormatRefusal as refusal:
        logger.warning("schema %s of the registry cannot be compiled: %s", schema.subject or schema.id, refusal.message)
        return schema
    compiled = {one.name: _text(one) for one in imports}

    def with_descriptors(one: SchemaText, text: str) -> SchemaText:
        references = tuple(
            (name, with_descriptors(each, compiled.get(name, each.text))) for name, each in one.references
        )
        return msgspec.structs.replace(one, text=text, references=references)

    return with_descriptors(schema, _text(main))


def _all_references(schema: SchemaText) -> Iterator[tuple[str, SchemaText]]:
    for name, one in schema.references:
        yield name, one
        yield from _all_references(one)


def select_message(schema: SchemaText, name: str) -> SchemaText:
    """Returns the schema with the selected message: the one with this full name, or the first.

    In a descriptor set, it may be in any of the files. Raises FormatRefusal.
    """
    described = describe(schema)
    known = list(described.names.values())
    if not known:
        raise FormatRefusal("the schema has no message", "name a schema that has one")
    if not name or name in known:
        return msgspec.structs.replace(schema, message=name or known[0])
    files = {MAIN: _file(schema, "the schema"), **_imported(schema)}
    if not schema.subject and not schema.id:
        for each, file in files.items():
            found = _schema_of(file, files)
            if each != MAIN and name in describe(found).names.values():
                return msgspec.structs.replace(found, message=name)
    shown = ", ".join(known[:10])
    raise FormatRefusal(f"the schema has no message `{name}`", f"it has {shown}; names include their package")


def find_message(schema: SchemaText) -> MessageType:
    """Returns the selected message. Raises FormatRefusal."""
    described = describe(schema)
    for place, name in described.names.items():
        if schema.message in ("", name):
            found = described.at(place)
            assert found is not None
            return found
    raise FormatRefusal(f"the schema has no message `{schema.message}`", "name another")


@lru_cache(maxsize=32)
def describe(schema: SchemaText) -> Described:
    """Returns all message types in a schema's file. Raises FormatRefusal."""
    from google.protobuf import descriptor_pool

    main = _file(schema, "the schema")
    main.name = MAIN
    files = {MAIN: main, **_imported(schema)}
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    for name in _in_order(MAIN, files):
        _add(pool, name, files, added)
    names = dict(_places(main.message_type, main.package, ()))
    return Described(pool, names)


def _is_text(data: bytes) -> bool:
    head = data[:4096].decode("utf-8", "replace")
    return any(word in head for word in ("syntax", "message ", "edition"))


def _schema_of(main: Any, files: Mapping[str, Any]) -> SchemaText:
    """Returns a file with its imports, without comments and without files that every registry has."""
    references = [
        (name, SchemaText(SchemaKind.PROTOBUF, _text(files[name])))
        for name in _in_order(main.name, {**files, main.name: main})
        if name != main.name and name in files and name not in _EVERYWHERE
    ]
    return SchemaText(SchemaKind.PROTOBUF, _text(main), tuple(references))


def _text(file: Any) -> str:
    file.ClearField("source_code_info")
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def _file(schema: SchemaText, what: str) -> Any:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if not is_serialized(schema.text):
        raise FormatRefusal(f"{what} is text of a `.proto` file, which could not be compiled", MISSING)
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(schema.text))
    except DecodeError as error:
        raise FormatRefusal(f"{what} is not a descriptor of a file: {error}", COMPILE) from error


def _imported(schema: SchemaText, but: Container[str] = ()) -> dict[str, Any]:
    """Returns files by the names under which they are imported, without some."""
    found: dict[str, Any] = {}
    waiting = list(schema.references)
    while waiting:
        name, one = waiting.pop()
        waiting += one.references  # of each file: one imported by several is listed with its own imports only once
        if name not in found and name not in OWN and name not in but:
            found[name] = _file(one, f"its import `{name}`")
            found[name].name = name
    return found


def _in_order(main: str, files: Mapping[str, Any]) -> list[str]:
    """Returns the required files, each after its imports. Raises FormatRefusal."""
    order: dict[str, None] = {}

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in order:
            return
        if name in above or len(above) > DEPTH_MAX:
            raise FormatRefusal(f"`{name}` imports itself", "name another schema")
        if name not in OWN and name in files:
            for one in files[name].dependency:
                if one != OPTIONS_ONLY or one in files:
                    visit(one, (*above, name))
        order[name] = None

    visit(main, ())
    return list(order)


def _add(pool: Any, name: str, files: Mapping[str, Any], added: set[str]) -> None:
    if name in added:
        return
    added.add(name)
    if name in OWN:
        own = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR
        for one in own.dependencies:
            _add(pool, one.name, files, added)
        pool.AddSerializedFile(own.serialized_pb)
        return
    if name in BUILT_IN and name not in files:
        built_in = built_in_file(name)
        for each in built_in.dependency:
            _add(pool, each, files, added)
        pool.AddSerializedFile(built_in.SerializeToString())
        return
    if name not in files:
        remedy = "compile with --include_imports, or register it with its references"
        raise FormatRefusal(f"the import `{name}` is missing", remedy)
    file = files[name]
    if OPTIONS_ONLY in file.dependency and OPTIONS_ONLY not in files:
        _without(file, OPTIONS_ONLY)
    for one in file.message_type:
        _check_maps(one)
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError as error:
        raise FormatRefusal(f"the protobuf library rejects the schema: {error}", "name another") from error


def _check_maps(message: Any) -> None:
    """Checks a property of map entries on which the library relies without checking it. Raises FormatRefusal."""
    if message.options.map_entry and {(one.name, one.number) for one in message.field} != {("key", 1), ("value", 2)}:
        raise FormatRefusal(f"the fields of the map's entry `{message.name}` are not key and value", COMPILE)
    for one in message.nested_type:
        _check_maps(one)


def _without(file: Any, name: str) -> None:
    """Removes an import and adjusts the indexes of public and weak imports."""
    index = list(file.dependency).index(name)
    del file.dependency[index]
    for each in (file.public_dependency, file.weak_dependency):
        kept = [one - (one > index) for one in each if one != index]
        del each[:]
        each.extend(kept)


def _places(messages: Sequence[Any], scope: str, above: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yields messages with their places. Map entries do not count: Confluent's serializer for Java treats them as
    fields.
    """
    for index, one in enumerate(each for each in messages if not each.options.map_entry):
        name = f"{scope}.{one.name}" if scope else str(one.name)
        yield (*above, index), name
        yield from _places(one.nested_type, name, (*above, index))


# -- prefixes of messages ----------------------------------------------------------------------------------------------


FIRST: Final = (0,)
VARINT_BYTES_MAX: Final = 5
INDEXES_MAX: Final = 100


def prefix_with_place(options: FormatOptions, place: tuple[int, ...]) -> bytes:
    """Returns the prefix of messages of this type."""
    prefix = prefix_of(options)
    if not prefix:
        return b""
    numbers = (0,) if place == FIRST else (len(place), *place)
    return prefix + b"".join(_varint(number << 1) for number in numbers)


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


def split_place(value: bytes) -> tuple[int, tuple[int, ...]] | None:
    """Returns where the message begins after a prefix with an id, and the place of its type; None if it is invalid."""
    at = PREFIX_BYTES
    if value[at : at + 1] == b"\0":
        return at + 1, FIRST
    count, at = _read(value, at)
    if not 0 < count <= INDEXES_MAX:
        return None
    place = []
    for _ in range(count):
        index, at = _read(value, at)
        if index < 0:
            return None
        place.append(index)
    return at, tuple(place)


def _read(value: bytes, at: int) -> tuple[int, int]:
    """Reads a number and returns it with its end; -1 for a missing or negative number."""
    number = 0
    for shift, byte in enumerate(value[at : at + VARINT_BYTES_MAX]):
        number |= (byte & 127) << 7 * shift
        if byte < 128:
            return (-1 if number & 1 else number >> 1), at + shift + 1
    return -1, at
