"""The file format of keyed state: a header that says what it is, then the entries by key group.

    4 bytes "TGKS", 2 bytes format version, 4 bytes header length (both big-endian)
    header: JSON of `SnapshotHeader`
    for each key group of the header: one msgpack array of entries [[key column, ...], [value field, ...]]

Offsets in the header count from the end of the header. Everything is positional; names and types are in the header,
which is compared before anything is read. Checksums are the checkpoint storage's business (`StateHandle.sha256`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.errors import BEGIN_ANEW
from tidegate.state.errors import StateUnreadable

FORMAT_VERSION: Final = 1
_MAGIC = b"TGKS"
_PREFIX = struct.Struct(">4sHI")

Entry = tuple[tuple[Any, ...], tuple[Any, ...]]
"""Key columns and value fields as plain values: str, bytes, bool, int, float, None and tuples of them."""

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
}


class StateField(msgspec.Struct, frozen=True):
    """A key column or a part of the value. `nullable` is false where NULL would be damage."""

    name: str
    type: DataType
    nullable: bool = True


class StateShape(msgspec.Struct, frozen=True):
    """What the entries of a state look like, and how their keys are hashed into groups."""

    keys: tuple[StateField, ...]
    values: tuple[StateField, ...]
    key_hash: str
    max_parallelism: int


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
    state: str
    shape: StateShape
    groups: tuple[GroupIndex, ...]


def encode_snapshot(operator: str, state: str, shape: StateShape, groups: Mapping[int, Sequence[Entry]]) -> bytes:
    """A whole file. Entries are encoded group by group, so that other threads get their turns in between."""
    encode = msgspec.msgpack.Encoder().encode
    parts = [EncodedGroup(group, len(groups[group]), encode(groups[group])) for group in sorted(groups)]
    return assemble_snapshot(operator, state, shape, parts)


def assemble_snapshot(operator: str, state: str, shape: StateShape, parts: Sequence[EncodedGroup]) -> bytes:
    """A whole file of encoded key groups, in ascending order."""
    index: list[GroupIndex] = []
    offset = 0
    for part in parts:
        index.append(GroupIndex(part.group, offset, len(part.body), part.entries))
        offset += len(part.body)
    header = msgspec.json.encode(SnapshotHeader(operator, state, shape, tuple(index)))
    return b"".join([_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header)), header, *(part.body for part in parts)])


def read_header(data: bytes) -> tuple[SnapshotHeader, int]:
    """The header and where the entries begin. Raises StateUnreadable."""
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


def read_entries(data: bytes, key_groups: range, operator: str, state: str, shape: StateShape) -> Iterator[list[Entry]]:
    """The entries of the wanted key groups, one list per group. Raises StateUnreadable for damage and other shapes."""
    header, start = read_header(data)
    refuse_other_shape(header, operator, state, shape)
    decoder = msgspec.msgpack.Decoder(list[_entry_type(shape)])  # type: ignore[misc]  # built at run time for msgspec
    view = memoryview(data)
    for part in header.groups:
        if part.group not in key_groups:
            continue
        begin = start + part.offset
        try:
            entries: list[Entry] = decoder.decode(view[begin : begin + part.size_bytes])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateUnreadable(f"state of {operator}: key group {part.group} is damaged: {error}") from error
        if len(entries) != part.entries:
            raise StateUnreadable(
                f"state of {operator}: key group {part.group} has {len(entries)} entries, {part.entries} were written"
            )
        yield entries


def refuse_other_shape(header: SnapshotHeader, operator: str, state: str, shape: StateShape) -> None:
    """Raises StateUnreadable when the file is of another state, or of one that was defined otherwise."""
    if (header.operator, header.state) != (operator, state):
        raise StateUnreadable(f"a state file of {header.operator}.{header.state} was given to {operator}.{state}")
    if header.shape != shape:
        raise StateUnreadable(
            f"state of {operator} was written as {_describe(header.shape)}, the pipeline now needs {_describe(shape)}: "
            f"put the old definition of the step back, or start with {BEGIN_ANEW} (all state empty, sources at their "
            "`start`)",
            operator=operator,
        )


def _describe(shape: StateShape) -> str:
    keys, values = ([f"{field.name} {field.type}" for field in fields] for fields in (shape.keys, shape.values))
    return f"({', '.join(keys)}) -> ({', '.join(values)}) in {shape.max_parallelism} key groups"


def _entry_type(shape: StateShape) -> Any:
    return tuple[tuple_type(shape.keys), tuple_type(shape.values)]  # type: ignore[misc]  # built at run time


def tuple_type(fields: Iterable[StateField]) -> Any:
    """The type of a key or a value as a tuple, for msgspec."""
    parts = [_PYTHON_TYPES[f.type.kind] | None if f.nullable else _PYTHON_TYPES[f.type.kind] for f in fields]
    return tuple[tuple(parts)]  # type: ignore[misc]  # built at run time for msgspec
