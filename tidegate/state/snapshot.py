"""The file format of state: a header that says what it is, then the entries by key group.

    4 bytes "TGKS", 2 bytes format version, 4 bytes header length (both big-endian)
    header: JSON of `SnapshotHeader`
    for each key group of the header: one msgpack array of entries [[key column, ...], [value field, ...]]

An entry whose value is nil is a tombstone: the key was deleted since the files before this one; only increments have
them. In a state whose entries can expire the value has one more element, ms since 1970 or nil. A list has one key
group, 0, and no key columns. Format 1 knows neither tombstones nor what StateShape has a default for, and is read for
ever.

Offsets in the header count from the end of the header. Everything is positional; names and types are in the header,
which is compared before anything is read (`verdict.py`). Checksums are the checkpoint storage's business
(`StateHandle.sha256`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from tidegate.datatypes import BIGINT, DataType, entry_of
from tidegate.ids import StateName
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.errors import StateUnreadable
from tidegate.state.verdict import derive_migration, refuse_other_shape

FORMAT_VERSION: Final = 2
OLDEST_VERSION: Final = 1
_MAGIC = b"TGKS"
_PREFIX = struct.Struct(">4sHI")

Value = tuple[Any, ...]
"""Value fields as plain values: str, bytes, bool, int, float, Decimal, None and tuples of them (arrays, structs and
maps)."""

Entry = tuple[tuple[Any, ...], Value | None]
"""Key columns and value; None is a tombstone."""

EXPIRES: Final = StateField("expires", BIGINT)
"""The slot after the value fields of a state whose entries can expire."""

_PYTHON_TYPES: dict[str, type] = {
    "boolean": bool,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "string": str,
    "binary": bytes,
    "date": int,
    "timestamp": int,
    "timestamp_ntz": int,
    "decimal": Decimal,
}
"""A decimal is its text in a file, `12.50`: numbers of msgpack have 64 bits."""


class GroupIndex(msgspec.Struct, frozen=True, array_like=True):
    """Where the entries of one key group are."""

    group: int
    offset: int
    size_bytes: int
    entries: int


class EncodedGroup(msgspec.Struct, frozen=True):
    """A key group, or a part of it, as it is in a file."""

    group: int
    entries: int
    body: bytes
    """msgpack array of entries."""


class SnapshotHeader(msgspec.Struct, frozen=True):
    """Everything about a file but its entries."""

    operator: str
    state: StateName
    shape: StateShape
    groups: tuple[GroupIndex, ...]


def encode_snapshot(operator: str, declaration: StateDeclaration, groups: Mapping[int, Sequence[Entry]]) -> bytes:
    """A whole file. Entries are encoded group by group, so that other threads get their turns in between."""
    encode = msgspec.msgpack.Encoder().encode
    parts = [EncodedGroup(group, len(groups[group]), encode(groups[group])) for group in sorted(groups)]
    return assemble_snapshot(operator, declaration, parts)


def assemble_snapshot(operator: str, declaration: StateDeclaration, parts: Sequence[EncodedGroup]) -> bytes:
    """A whole file of encoded key groups, in ascending order."""
    index: list[GroupIndex] = []
    offset = 0
    for part in parts:
        index.append(GroupIndex(part.group, offset, len(part.body), part.entries))
        offset += len(part.body)
    header = msgspec.json.encode(SnapshotHeader(operator, declaration.name, declaration.shape, tuple(index)))
    return b"".join([_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header)), header, *(part.body for part in parts)])


def read_header(data: bytes) -> tuple[SnapshotHeader, int]:
    """The header and where the entries begin. Raises StateUnreadable."""
    if len(data) < _PREFIX.size:
        raise StateUnreadable(f"a state file has {len(data)} bytes: it is truncated")
    magic, version, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise StateUnreadable("a state file does not begin with TGKS: it is damaged or not ours")
    if not OLDEST_VERSION <= version <= FORMAT_VERSION:
        raise StateUnreadable(
            f"a state file has format {version}, this release reads {OLDEST_VERSION} to {FORMAT_VERSION}: use the "
            "release that wrote it"
        )
    start = _PREFIX.size + length
    try:
        return msgspec.json.decode(data[_PREFIX.size : start], type=SnapshotHeader), start
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StateUnreadable(f"the header of a state file is damaged: {error}") from error


def read_entries(data: bytes, key_groups: range, operator: str, declaration: StateDeclaration) -> Iterator[list[Entry]]:
    """The entries of the wanted key groups, one list per group, as the declaration has them.

    Raises StateUnreadable for damage, another state and an incompatible shape.
    """
    header, start = read_header(data)
    refuse_other_state(header, operator, declaration)
    written = header.shape
    migrate = derive_migration(written, declaration.shape)
    # Built at run time for msgspec.
    decoder = msgspec.msgpack.Decoder(list[tuple[tuple_type(written.keys), value_type(written) | None]])  # type: ignore[misc]  # see above
    view = memoryview(data)
    for part in header.groups:
        if part.group not in key_groups:
            continue
        begin = start + part.offset
        try:
            entries: list[Entry] = decoder.decode(view[begin : begin + part.size_bytes])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateUnreadable(
                f"state {declaration.name} of {operator}: key group {part.group} is damaged: {error}"
            ) from error
        if len(entries) != part.entries:
            raise StateUnreadable(
                f"state {declaration.name} of {operator}: key group {part.group} has {len(entries)} entries, "
                f"{part.entries} were written"
            )
        if migrate is not None:
            entries = [(key, None if value is None else migrate(value)) for key, value in entries]
        yield entries


def refuse_other_state(header: SnapshotHeader, operator: str, declaration: StateDeclaration) -> None:
    """Raises StateUnreadable when the file is of another state, or has entries that cannot be read as this one's."""
    if (header.operator, header.state) != (operator, declaration.name):
        raise StateUnreadable(
            f"a state file of {header.operator}.{header.state} was given to {operator}.{declaration.name}"
        )
    refuse_other_shape(operator, declaration.name, header.shape, declaration.shape)


def tuple_type(fields: Iterable[StateField]) -> Any:
    """The type of a key or a value as a tuple, for msgspec."""
    parts = [_python_type(f.type) | None if f.nullable else _python_type(f.type) for f in fields]
    return tuple[tuple(parts)]  # type: ignore[misc]  # built at run time for msgspec


def value_type(shape: StateShape) -> Any:
    """The type of a value of this shape, for msgspec."""
    return tuple_type((*shape.values, EXPIRES) if shape.expires else shape.values)


def _python_type(kind: DataType) -> Any:
    """An array is a tuple of any length, a struct one of its fields, a map an array of its entries."""
    if kind.kind == "map":
        return tuple[_python_type(entry_of(kind)), ...]  # type: ignore[misc]  # built at run time for msgspec
    if kind.kind == "array" and kind.element is not None:
        return tuple[_python_type(kind.element) | None, ...]  # type: ignore[misc]  # built at run time for msgspec
    if kind.kind == "struct":
        return tuple_type(StateField(name, part) for name, part in kind.fields)
    return _PYTHON_TYPES[kind.kind]
