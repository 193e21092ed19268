"""Writes frames as batches of records, with Polars' writer of Avro container files (ADR 43).

The writer puts a union index in front of every value, as if all were nullable, and does not support fixed types. So a
column of random bytes, a *guard*, is placed in front of each value that is to be written otherwise, and the guard is
replaced together with the byte after it. Another guard ends every row. Guards are twelve random bytes that never leave
the process, so a value containing one is not to be expected. The most frequent guard, for fields that are never null,
has three bytes, because its length matters. The number of its occurrences is known and checked, and if a value contains
it, new guards are drawn.
"""

from __future__ import annotations

import io
import itertools
import os
from typing import Final

import polars as pl

from tidegate.formats.kinds.avro.schema import AvroType

_GUARD_BYTES: Final = 12
_SHORT_BYTES: Final = 2
_DRAWS_MAX: Final = 20
_NULL, _VALUE = b"\0", b"\2"
"""The union index, null first."""


def zigzag(value: int) -> bytes:
    """Encodes an Avro long."""
    left = (value << 1) ^ (value >> 63)
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def write_block(frame: pl.DataFrame) -> bytes:
    """Returns the concatenated records of nullable columns."""
    stream = io.BytesIO()
    frame.write_avro(stream)
    written = stream.getvalue()
    sync = written[-16:]
    place = written.index(sync) + 16
    parts = []
    while place < len(written):
        _, place = _long(written, place)
        size, place = _long(written, place)
        parts.append(written[place : place + size])
        place += size + 16
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _long(data: bytes, place: int) -> tuple[int, int]:
    """Reads a long that is not negative, and returns it with the offset of what follows."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value >> 1, place


class Wire:
    """Writes records of a type, each with a prefix.

    Frames have columns `f0`, `f1` ..., one per field. Enums are given as numbers, maps as lists of structs of `f0` and
    `f1`, and structs have fields `f0` ....
    """

    def __init__(self, record: AvroType, prefix: bytes) -> None:
        self._prefix = prefix
        self._fields = _fields(record)
        self._draw()

    def _draw(self) -> None:
        """Draws new guards."""
        plan = _Plan()
        self._columns = [part for name, one in self._fields for part in plan.field(pl.col(name), one, top=True)]
        row = os.urandom(_GUARD_BYTES)
        self._columns.append(pl.lit(row + self._prefix).alias("row"))
        self._end = _VALUE + zigzag(_GUARD_BYTES + len(self._prefix)) + row
        self._replaced = plan.replaced
        self._short, self._short_count = plan.short, plan.short_count

    def write(self, frame: pl.DataFrame) -> list[bytes]:
        """Returns a body for each row, with the prefix."""
        if not frame.height:
            return []
        for _ in range(_DRAWS_MAX):
            block = write_block(frame.select_seq(self._columns))
            if not self._short_count or block.count(self._short) == self._short_count * frame.height:
                return self._cut(block, frame.height)
            self._draw()
        raise RuntimeError("rows of Avro have the bytes of every guard")

    def _cut(self, block: bytes, rows: int) -> list[bytes]:
        data = self._prefix + block
        if self._short_count:
            data = data.replace(_VALUE + self._short + _VALUE, b"")
        for guard, instead in self._replaced:
            data = data.replace(guard, instead)
        bodies = data.split(self._end)
        if len(bodies) != rows + 1 or bodies.pop() != self._prefix:
            raise RuntimeError("rows of Avro have the bytes of their own guard")
        return bodies


def _fields(record: AvroType) -> list[tuple[str, AvroType]]:
    """Returns the fields that take bytes, with their names."""
    return [(f"f{place}", field.type) for place, field in enumerate(record.fields) if field.type.kind != "null"]


class _Plan:
    """Columns for Polars' writer, and the replacements in the bytes that it writes."""

    def __init__(self) -> None:
        self.replaced: list[tuple[bytes, bytes]] = []
        self._guards: dict[tuple[bytes, tuple[tuple[bytes, bytes], ...]], bytes] = {}
        self._names = itertools.count()
        short = b""
        while len(set(short)) < _SHORT_BYTES:
            short = bytes(0x80 | byte for byte in os.urandom(_SHORT_BYTES))
        self._guard_short = short
        self.short = zigzag(_SHORT_BYTES) + short
        """The short guard with its length. None of its suffixes is a prefix of it, so every occurrence is found."""
        self.short_count = 0
        """How often it occurs in a row."""

    def field(self, value: pl.Expr, one: AvroType, ahead: bytes = _VALUE, *, top: bool = False) -> list[pl.Expr]:
        """Returns the columns of a value.

        `ahead` holds the indexes that the writer puts in front of the first column. `top` means that the value occurs
        once in every row.
        """
        inner = one.bare
        index = _VALUE + zigzag(inner.size) if inner.kind == "fixed" else _VALUE
        if not one.nullable:
            if inner.kind == "record":
                parts = [] if ahead == _VALUE else [self._guard(ahead, ((b"", b""),))]
                for name, each in _fields(inner):
                    parts += self.field(value.struct.field(name), each, top=top)
                return parts
            if top and index == _VALUE:
                self.short_count += 1
                return [self._named(pl.lit(self._guard_short)), self._named(self._value(value, inner))]
            return [self._guard(ahead, ((index, b""),)), self._named(self._value(value, inner))]
        if one.branches[0].kind != "null":  # index 0 is the value
            ends = ((index, _NULL), (_NULL, _VALUE))
            return [self._guard(ahead, ends), self._named(self._value(value, inner))]
        if inner.kind == "fixed":
            ends = ((index, _VALUE), (_NULL, _NULL))
            return [self._guard(ahead, ends), self._named(value)]
        return [self._named(self._value(value, inner))]

    def _value(self, value: pl.Expr, one: AvroType) -> pl.Expr:
        """Returns a single column."""
        if one.kind == "record":
            parts = [part for name, each in _fields(one) for part in self.field(value.struct.field(name), each)]
            return pl.when(value.is_not_null()).then(pl.struct(parts))
        if one.kind == "map" and one.items is not None:
            entry = [self._guard(_VALUE + _VALUE, ((b"", b""),))]
            entry += self.field(pl.element().struct.field("f0"), AvroType("string"))
            entry += self.field(pl.element().struct.field("f1"), one.items)
            return value.list.eval(pl.struct(entry))
        if one.kind == "array" and one.items is not None:
            parts = self.field(pl.element(), one.items, _VALUE + _VALUE)
            return value.list.eval(parts[0] if len(parts) == 1 else pl.struct(parts))
        return value

    def _named(self, value: pl.Expr) -> pl.Expr:
        return value.alias(f"c{next(self._names)}")

    def _guard(self, ahead: bytes, ends: tuple[tuple[bytes, bytes], ...]) -> pl.Expr:
        """Returns a column in front of another. `ends` maps the bytes that follow it to their replacements."""
        guard = self._guards.get((ahead, ends))
        if guard is None:
            guard = self._guards[ahead, ends] = os.urandom(_GUARD_BYTES)
            whole = ahead + zigzag(_GUARD_BYTES) + guard
            self.replaced += [(whole + end, instead) for end, instead in ends]
        return self._named(pl.lit(guard))
