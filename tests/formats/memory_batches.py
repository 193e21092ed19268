"""Values decoded in C, compared with the same values decoded from objects: nothing may differ but the time it takes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from tests.native.compiled import compiled_library
from tests.native.values import NativeValues
from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, ValueMemory
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.kinds.msgpack.reader import MsgpackDecoder
from tidegate.formats.schemas import FormatOptions, UnknownFields
from tidegate.native.json import JSON, MSGPACK, RecordDecoder


class Fates(NamedTuple):
    """How many records C decoded, how many it left over that msgspec decoded, and how many are bad."""

    certain: int = 0
    left: int = 0
    bad: int = 0

    def plus(self, other: Fates) -> Fates:
        return Fates(*(a + b for a, b in zip(self, other, strict=True)))


class Compared:
    """Both ways for one schema."""

    def __init__(
        self, declared: Columns, read: Columns | None = None, *, strict: bool = False, syntax: str = JSON
    ) -> None:
        options = FormatOptions(unknown_fields=UnknownFields.FAIL if strict else UnknownFields.SKIP)
        read = declared if read is None else read
        self.careful = (
            MsgpackDecoder(declared, read, options)
            if syntax == MSGPACK
            else JsonDecoder(declared, read, options=options, needs_field=True)
        )
        wanted = {name for name, _ in read}
        record = DataType("struct", fields=tuple(declared))
        self.certain = RecordDecoder(compiled_library(), record, wanted, strict=strict, needs_field=True, syntax=syntax)
        self.both = MemoryDecoder(self.certain, self.careful.decode_values)

    def check(self, values: Sequence[bytes | None]) -> Fates:
        """Raises AssertionError for a value that differs, with the value."""
        there = NativeValues(values)
        memory = ValueMemory(there.addresses, there.lengths, len(values))
        found, expected = self.both.decode(memory), self.careful.decode_values(values)
        if not (is_same(found.frame, expected.frame) and found.failures == expected.failures):
            self._find_difference(values)
        left = self.certain.decode(*memory).left
        bad = len(expected.failures)
        return Fates(len(values) - len(left), len(left) - bad, bad)

    def _find_difference(self, values: Sequence[bytes | None]) -> None:
        for value in values if len(values) > 1 else ():
            self.check([value])
        raise AssertionError(f"decoded in C it is not the same: {values!r}")


class Loaded:
    """The library of this checkout, as `tidegate.native.library.loaded` gives one."""

    def __init__(self) -> None:
        self.free = compiled_library()


class InMemory:
    """Messages whose values are in memory; `asked` counts how often objects are made of all of them."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self._values = values
        self._there = NativeValues(values)
        self.memory = ValueMemory(self._there.addresses, self._there.lengths, len(values))
        self.asked = 0

    @property
    def values(self) -> Sequence[bytes | None]:
        self.asked += 1
        return self._values


def is_same(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Types, values, and the signs of zeros."""
    if one.schema != other.schema or not one.equals(other, null_equal=True):
        return False
    return all(_bits(one[name]) == _bits(other[name]) for name, kind in one.schema.items() if kind.is_float())


def _bits(column: pl.Series) -> list[bytes | None]:
    return [None if value is None else struct.pack("<d", value) for value in column.to_list()]
