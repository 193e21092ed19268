"""States that columns can hold, of any types, with entries of any values; their files as they are, odd and damaged."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

from tests.formats.any_msgpack import damaged
from tidegate.datatypes import DataType
from tidegate.ids import StateName
from tidegate.native.table import SUPPORTED
from tidegate.state.declaration import ORDERED_KINDS, StateDeclaration, StateField, StateShape
from tidegate.state.snapshot import (
    GroupIndex,
    SnapshotHeader,
    Value,
    encode_snapshot,
    read_header,
    write_file,
)

GROUPS: Final = 4
STEP: Final = "step"
BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "date": 31}
EDGES: Final = (0, 1, 31, 32, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32)
TEXTS: Final = ("", "a", "é☃", "b" * 12, "c" * 13, "d" * 31, "e" * 32, "f" * 255, "g" * 256, "h" * 70_000, "\0")
DOUBLES: Final = (0.0, -0.0, 1.5, 1e300, float("inf"), float("-inf"), float("nan"))

Entries = dict[tuple[Any, ...], Value | None]


def draw_declaration(rnd: random.Random) -> StateDeclaration:
    """One to three key columns and none to four fields, most of which may be NULL."""

    def fields(name: str, kinds: Sequence[str], least: int, most: int) -> tuple[StateField, ...]:
        count = rnd.randint(least, most)
        return tuple(
            StateField(f"{name}{index}", DataType(rnd.choice(kinds)), rnd.random() < 0.8) for index in range(count)
        )

    keys = rnd.choice((("string",), sorted(SUPPORTED & ORDERED_KINDS)))
    shape = StateShape(
        fields("k", keys, 1, 3),
        fields("v", sorted(SUPPORTED), 0, 4),
        key_hash="length of the text",
        max_parallelism=GROUPS,
        expires=rnd.random() < 0.2,
    )
    return StateDeclaration(StateName("s"), shape)


def groups_of(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [len(repr(row)) % GROUPS for row in rows]


def draw_value(rnd: random.Random, field: StateField) -> Any:
    """A plain value, often one at the edge of an encoding."""
    kind = field.type.kind
    if field.nullable and rnd.random() < 0.1:
        return None
    if kind == "boolean":
        return rnd.random() < 0.5
    if kind in ("string", "binary"):
        text = rnd.choice(TEXTS[:-2] if rnd.random() < 0.98 else TEXTS) + str(rnd.randrange(30))
        return text if kind == "string" else text.encode()
    if kind in ("float", "double"):
        value = rnd.choice((*DOUBLES, rnd.uniform(-10, 10)))
        if kind == "double" or value == 1e300:
            return value if kind == "double" else 2.5
        return float(struct.unpack("f", struct.pack("f", value))[0])
    limit = 1 << BITS.get(kind, 63)
    value = rnd.choice((rnd.choice(EDGES), rnd.randrange(40), rnd.getrandbits(63)))
    value = rnd.choice((value, -value, -1 - value))
    return value if -limit <= value < limit else value % limit


def draw_entries(rnd: random.Random, declaration: StateDeclaration, count: int) -> Entries:
    """Up to so many entries."""
    shape = declaration.shape
    ends = [StateField("expires", DataType("bigint"))] if shape.expires else []
    return {
        tuple(draw_value(rnd, field) for field in shape.keys): tuple(
            draw_value(rnd, field) for field in (*shape.values, *ends)
        )
        for _ in range(count)
    }


def write_entries(declaration: StateDeclaration, entries: Entries) -> bytes:
    """A file of these; None is a tombstone."""
    groups: dict[int, list[tuple[tuple[Any, ...], Value | None]]] = {}
    for (key, value), group in zip(entries.items(), groups_of(list(entries)), strict=True):
        groups.setdefault(group, []).append((key, value))
    return encode_snapshot(STEP, declaration, groups)


def damage(rnd: random.Random, data: bytes) -> bytes:
    """Changes bodies of key groups, with checksums that fit again, and sometimes the number of their entries."""
    header, start = read_header(data)
    index, bodies, offset = [], [], 0
    for part in header.groups:
        begin = start + part.offset
        body = data[begin : begin + part.size_bytes]
        if rnd.random() < 0.7:
            body = damaged(rnd, body)
        entries = part.entries + rnd.choice((0, 0, 0, 0, 1, -1))
        index.append(GroupIndex(part.group, offset, len(body), entries, zlib.crc32(body)))
        bodies.append(body)
        offset += len(body)
    return write_file(SnapshotHeader(header.operator, header.state, header.shape, tuple(index)), bodies)
