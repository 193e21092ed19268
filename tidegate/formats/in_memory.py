"""Decoding values that are not Python objects to columns in C, without an object per value and field.

C decodes only records that it can decode with certainty (`json.c` and `avro.c` in `tidegate/native`). The remaining
ones, and so all bad records, are decoded as objects, which yields the error messages. Rows and failures are merged in
the order of the batch.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

import msgspec
import polars as pl

from tidegate.formats.contract import Decoded, ValueMemory, WaitingForSchema
from tidegate.native.columns import Rows

RestT = TypeVar("RestT", bound=Decoded | WaitingForSchema)


class Certain(Protocol):
    """A decoder in C for some of the records."""

    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        """Decodes values; raises MemoryError.

        `addresses` and `lengths` are the addresses of arrays with `count` elements. Lengths are int32, -1 for no value.
        """


class MemoryDecoder(Generic[RestT]):
    """Decodes values in memory. They are read in place, and only while a batch is decoded."""

    def __init__(self, certain: Certain, careful: Callable[[Sequence[bytes | None]], RestT]) -> None:
        """Both produce the same columns; `careful` decodes the values that `certain` leaves over."""
        self._certain = certain
        self._careful = careful

    def decode(self, memory: ValueMemory) -> Decoded | RestT:
        """Returns rows and failures in order, or the result of `careful` if a record must wait for a schema."""
        frame, left = self._certain.decode(memory.addresses, memory.lengths, memory.rows)
        if not left:
            return Decoded(frame, [])
        rest = self._careful(_values_of(memory, left))
        if not isinstance(rest, Decoded):
            return rest
        failures = [msgspec.structs.replace(one, row=left[one.row]) for one in rest.failures]
        bad = set(map(attrgetter("row"), failures))
        good = [row for row in left if row not in bad]
        return Decoded(_merge(frame, rest.frame, left, good, memory.rows), failures)


def decode_values_of(decoder: MemoryDecoder[RestT], values: Sequence[bytes]) -> Decoded | RestT:
    """Decodes values that are Python objects as if they were in other memory. Raises MemoryError."""
    joined = b"".join(values)
    lengths = array("i", map(len, values))
    begin = ctypes.cast(ctypes.c_char_p(joined), ctypes.c_void_p).value or 0
    addresses = array("Q", accumulate(lengths[:-1], initial=begin))
    return decoder.decode(ValueMemory(addresses.buffer_info()[0], lengths.buffer_info()[0], len(values)))


def _values_of(memory: ValueMemory, rows: Sequence[int]) -> list[bytes | None]:
    return [_value_at(memory.addresses + 8 * row, memory.lengths + 4 * row) for row in rows]


def _value_at(address: int, length: int) -> bytes | None:
    size = ctypes.c_int32.from_address(length).value
    return None if size < 0 else ctypes.string_at(ctypes.c_void_p.from_address(address).value or 0, size)


def _merge(
    frame: pl.DataFrame, rest: pl.DataFrame, left: Sequence[int], good: Sequence[int], rows: int
) -> pl.DataFrame:
    """Merges rows in the order of the batch. Those of `rest` are the rows `good`, a subset of `left`."""
    if not good:
        return frame
    if not frame.columns:
        return pl.DataFrame(height=frame.height + rest.height)
    taken = pl.repeat(value=True, n=rows, eager=True).scatter(left, values=False).arg_true()
    places = pl.concat([taken, pl.Series(good, dtype=taken.dtype)])
    return pl.concat([frame, rest])[places.arg_sort()]
