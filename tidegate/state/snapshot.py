"""The file format of state: a header that describes the file, then the entries by key group.

    4 bytes "TGKS", 2 bytes format version, 4 bytes header length (both big-endian)
    header: JSON of `SnapshotHeader`
    for each key group of the header: one msgpack array of entries [[key column, ...], [value field, ...]]

An entry whose value is nil is a tombstone: the key was deleted after the preceding files were written. Only increments
contain tombstones. In a state whose entries can expire, the value has one more element, ms since 1970 or nil. A list
has one key group, 0, and no key columns.

Offsets in the header count from the end of the header. Everything is positional. Names and types are in the header,
which is compared before anything is read (`verdict.py`). The header contains a CRC-32 for each key group, so that some
key groups can be read without the rest of the file (`parts.py`). The checkpoint storage keeps the checksums of whole
files and of their heads (`StateHandle`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import BIGINT
from tidegate.ids import StateName
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.errors import StateUnreadable
from tidegate.state.migration import MigrationFailed, derive_migration, refuse_entry
from tidegate.state.serializers.registry import FIRST, SERIALIZERS
from tidegate.state.verdict import refuse_other_shape

FORMAT_VERSION: Final = 1
_MAGIC = b"TGKS"
_PREFIX = struct.Struct(">4sHI")

Value = tuple[Any, ...]
"""Value fields as plain values: str, bytes, bool, int, float, Decimal, None, tuples of these (arrays, structs,
maps)."""

Entry = tuple[tuple[Any, ...], Value | None]
"""Key columns and value. The value of a tombstone is None."""

EXPIRES: Final = StateField("expires", BIGINT)
"""The field after the value fields of a state whose entries can expire."""


class GroupIndex(msgspec.Struct, frozen=True, array_like=True):
    """The position of the entries of one key group."""

    group: int
    offset: int
    size_bytes: int
    entries: int
    crc: int
    """CRC-32 of the entries as they are in the file."""


class EncodedGroup(msgspec.Struct, frozen=True):
    """A key group or a part of one, encoded as in a file."""

    group: int
    entries: int
    body: bytes | memoryview
    """A msgpack array of entries."""


class SnapshotHeader(msgspec.Struct, frozen=True):
    """The description of a file: everything except its entries."""

    operator: str
    state: StateName
    shape: StateShape
    groups: tuple[GroupIndex, ...]


def encode_snapshot(operator: str, declaration: StateDeclaration, groups: Mapping[int, Sequence[Entry]]) -> bytes:
    """Returns a whole file. Entries are encoded group by group, so that other threads get a turn in between."""
    encode = msgspec.msgpack.Encoder().encode
    parts = [EncodedGroup(group, len(groups[group]), encode(groups[group])) for group in sorted(groups)]
    return assemble_snapshot(operator, declaration, parts)


def join_entries(group: int, count: int, encoded: Sequence[bytes]) -> EncodedGroup:
    """Returns a key group of entries that are already encoded."""
    return EncodedGroup(group, count, struct.pack(">BI", 0xDD, count) + b"".join(encoded))


def assemble_snapshot(operator: str, declaration: StateDeclaration, parts: Sequence[EncodedGroup]) -> bytes:
    """Returns a whole file of encoded key groups, which are in ascending order."""
    index: list[GroupIndex] = []
    offset = 0
    for part in parts:
        index.append(GroupIndex(part.group, offset, len(part.body), part.entries, zlib.crc32(part.body)))
        offset += len(part.body)
    header = SnapshotHeader(operator, declaration.name, declaration.shape, tuple(index))
    return write_file(header, [part.body for part in parts])


def write_file(header: SnapshotHeader, bodies: Iterable[bytes | memoryview]) -> bytes:
    """Returns a file of this header and these bodies."""
    encoded = msgspec.json.encode(header)
    return b"".join((_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(encoded)), encoded, *bodies))


def read_header(data: bytes) -> tuple[SnapshotHeader, int]:
    """Returns the header and the offset of the entries. Raises StateUnreadable."""
    if len(data) < _PREFIX.size:
        raise StateUnreadable(f"a state file has {len(data)} bytes: it is truncated")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise StateUnreadable("a state file does not begin with TGKS: it is damaged or not ours")
    if version != FORMAT_VERSION:
        raise StateUnreadable(
            f"a state file has format {version}, this release reads {FORMAT_VERSION}: use the release that wrote it"
        )
    start = _PREFIX.size + length
    try:
        return msgspec.json.decode(data[_PREFIX.size : start], type=SnapshotHeader), start
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateUnreadable(f"the header of a state file is damaged: {error}") from error


def read_entries(data: bytes, key_groups: range, operator: str, declaration: StateDeclaration) -> Iterator[list[Entry]]:
    """Yields the entries of the wanted key groups in the declared shape, one list per group.

    Raises StateUnreadable if the file is damaged, belongs to another state or has an incompatible shape.
    """
    header, start = read_header(data)
    refuse_other_state(header, operator, declaration)
    written = header.shape
    migration = derive_migration(written, declaration)
    key = tuple_type(written.keys, written.serializer.versions)
    decoder = msgspec.msgpack.Decoder(list[tuple[key, value_type(written) | None]])  # type: ignore[misc,valid-type]  # built at run time for msgspec
    for entries in _decode_groups(data, start, header, key_groups, decoder):
        if migration is None:
            yield entries
            continue
        try:
            yield migration.apply(entries)
        except MigrationFailed as failure:
            raise refuse_entry(operator, declaration, failure) from failure


def read_encoded(
    data: bytes, key_groups: range, operator: str, declaration: StateDeclaration
) -> Iterator[tuple[int, Sequence[tuple[Any, ...]], Sequence[bytes]]]:
    """Does what `read_entries` does, but yields key group, keys, and encoded values in the declared shape. The value of
    a tombstone is nil.

    Values are not decoded unless they have to be migrated.
    """
    header, start = read_header(data)
    refuse_other_state(header, operator, declaration)
    written = header.shape
    if derive_migration(written, declaration) is not None:
        encode = msgspec.msgpack.Encoder().encode
        parts = read_entries(data, key_groups, operator, declaration)
        for group, entries in zip(_wanted(header, key_groups), parts, strict=True):
            yield group, [key for key, _ in entries], [encode(value) for _, value in entries]
        return
    key_type = tuple_type(written.keys, written.serializer.versions)
    decoder = msgspec.msgpack.Decoder(list[tuple[key_type, msgspec.Raw]])  # type: ignore[valid-type]  # built at run time for msgspec
    groups = _decode_groups(data, start, header, key_groups, decoder)
    for group, raw in zip(_wanted(header, key_groups), groups, strict=True):
        yield group, [key for key, _ in raw], [bytes(value) for _, value in raw]


def _wanted(header: SnapshotHeader, key_groups: range) -> list[int]:
    return [part.group for part in header.groups if part.group in key_groups]


def verified_groups(data: bytes, start: int, header: SnapshotHeader, key_groups: range) -> Iterator[GroupIndex]:
    """Yields the wanted key groups, whose entries are as they were written. Raises StateUnreadable if they are not."""
    view = memoryview(data)
    for part in header.groups:
        if part.group not in key_groups:
            continue
        begin = start + part.offset
        if part.offset < 0 or is_damaged(part, view[begin : begin + part.size_bytes]):
            raise StateUnreadable(
                f"state {header.state} of {header.operator}: key group {part.group} is damaged: it does not match its "
                "checksum"
            )
        yield part


def _decode_groups(
    data: bytes, start: int, header: SnapshotHeader, key_groups: range, decoder: msgspec.msgpack.Decoder[Any]
) -> Iterator[list[Any]]:
    """Yields the entries of the wanted key groups. Raises StateUnreadable if the file is damaged."""
    view = memoryview(data)
    for part in verified_groups(data, start, header, key_groups):
        begin = start + part.offset
        try:
            entries = decoder.decode(view[begin : begin + part.size_bytes])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateUnreadable(
                f"state {header.state} of {header.operator}: key group {part.group} is damaged: {error}"
            ) from error
        if len(entries) != part.entries:
            raise StateUnreadable(
                f"state {header.state} of {header.operator}: key group {part.group} has {len(entries)} entries, "
                f"{part.entries} were written"
            )
        yield entries


def is_damaged(part: GroupIndex, body: bytes | memoryview) -> bool:
    """Returns whether the entries of a key group differ from those that were written."""
    return len(body) != part.size_bytes or zlib.crc32(body) != part.crc


def refuse_other_state(header: SnapshotHeader, operator: str, declaration: StateDeclaration) -> None:
    """Raises StateUnreadable if the file is of another state, or its shape is incompatible with the declaration."""
    names = (operator, declaration.evolution.operator_was or operator)
    if header.operator not in names or header.state != declaration.name:
        raise StateUnreadable(
            f"a state file of {header.operator}.{header.state} was given to {operator}.{declaration.name}"
        )
    refuse_other_shape(operator, header.shape, declaration)


def tuple_type(fields: Iterable[StateField], versions: Mapping[str, int] = FIRST) -> Any:
    """Returns the tuple type of a key or a value for msgspec, according to the serializers of these versions."""
    serializers = [(SERIALIZERS.read(field.type, versions).restore(), field.nullable) for field in fields]
    parts = [one.native | None if nullable else one.native for one, nullable in serializers]
    return tuple[tuple(parts)]  # type: ignore[misc]  # built at run time for msgspec


def value_fields(shape: StateShape) -> tuple[StateField, ...]:
    """Returns the fields of a value, including the time when its entry expires."""
    return (*shape.values, EXPIRES) if shape.expires else shape.values


def value_type(shape: StateShape) -> Any:
    """Returns the type of a value of this shape for msgspec."""
    return tuple_type(value_fields(shape), shape.serializer.versions)
