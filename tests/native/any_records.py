"""Random records for a producer: as columns of Polars, and in blocks of exactly their size."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Sequence

import polars as pl

from tests.support.records import Listed, records_of
from tidegate.formats.contract import Headers
from tidegate.formats.records import OutputRecords, output_records
from tidegate.native.arrow import ArrowArray
from tidegate.native.records import RecordColumns


def draw_part(rnd: random.Random) -> bytes | None:
    """Also NULL and nothing, and what fits into a view or just does not."""
    return rnd.choice((None, b"", rnd.randbytes(rnd.randrange(1, 12)), rnd.randbytes(rnd.choice((12, 13, 40, 900)))))


def draw_headers(rnd: random.Random) -> Headers | None:
    names = ("", "name", "ü", "a name of more than twelve bytes")
    return rnd.choice((None, [(rnd.choice(names), draw_part(rnd)) for _ in range(rnd.randrange(4))]))


def draw_records(rnd: random.Random, rows: int) -> OutputRecords:
    """Records with any of the parts, as slices of larger columns of one or several chunks."""
    before, count = rnd.choice((0, 0, 1, 9)), rows + 20

    def column(draw: Callable[[], object], some: float = 0.6) -> list[object] | None:
        return [draw() for _ in range(count)] if rnd.random() < some else None

    whole = records_of(
        [draw_part(rnd) for _ in range(count)],
        column(lambda: draw_part(rnd)),  # type: ignore[arg-type]  # as drawn
        column(lambda: rnd.choice((None, 1, 2**40))),  # type: ignore[arg-type]  # as drawn
        column(lambda: draw_headers(rnd)),  # type: ignore[arg-type]  # as drawn
        column(lambda: rnd.choice((None, 0, 7))),  # type: ignore[arg-type]  # as drawn
    )
    if rnd.random() < 0.5:
        whole = OutputRecords(whole.values, whole.keys)
    cut = rnd.randrange(1, rows)

    def slice_of(part: pl.Series | None) -> pl.Series | None:
        if part is None:
            return None
        return part[before : before + cut].append(part[before + cut : before + rows])

    values = slice_of(whole.values)
    assert values is not None
    keys, timestamps_ms = slice_of(whole.keys), slice_of(whole.timestamps_ms)
    return output_records(values, keys, timestamps_ms, slice_of(whole.headers), slice_of(whole.partitions))


class ExactRecords:
    """`records` of `produce.c`: every buffer, and every text, is a block of its own without a byte before or after."""

    def __init__(self, rnd: random.Random, these: Listed) -> None:
        self._rnd = rnd
        self._kept: list[object] = []
        self.columns = RecordColumns()
        self.columns.values = self._address(self._views(these.values))
        if these.keys is not None:
            self.columns.keys = self._address(self._views(these.keys))
        if these.timestamps_ms is not None:
            self.columns.timestamps_ms = self._address(self._numbers(these.timestamps_ms, ctypes.c_int64))
        if these.partitions is not None:
            self.columns.partitions = self._address(self._numbers(these.partitions, ctypes.c_int32))
        if these.headers is not None:
            self.columns.headers = self._address(self._headers(these.headers))

    def _address(self, array: ArrowArray) -> int:
        self._kept.append(array)
        return ctypes.addressof(array)

    def _array(self, length: int, offset: int, known: Sequence[bool], buffers: Sequence[int]) -> ArrowArray:
        """`known` of all values, those before the offset included."""
        bits = (ctypes.c_uint8 * ((len(known) + 7) // 8))()
        for place, one in enumerate(known):
            bits[place >> 3] |= one << (place & 7)
        whole = all(known) and self._rnd.random() < 0.5
        places = (ctypes.c_void_p * (1 + len(buffers)))(None if whole else ctypes.addressof(bits), *buffers)
        self._kept += [bits, places]
        return ArrowArray(
            length=length, null_count=-1, offset=offset, n_buffers=len(places), buffers=ctypes.addressof(places)
        )

    def _views(self, values: Sequence[bytes | None]) -> ArrowArray:
        offset = self._rnd.randrange(3)
        padded: list[bytes | None] = [*[None] * offset, *values]
        views, texts = (ctypes.c_uint8 * (16 * len(padded)))(), list[int]()
        for place, value in enumerate(padded):
            if value is None:
                view = self._rnd.randbytes(16)
            elif len(value) <= 12:
                view = len(value).to_bytes(4, "little") + value.ljust(12, b"\0")
            else:
                text = ctypes.create_string_buffer(value, len(value))
                self._kept.append(text)
                view = len(value).to_bytes(4, "little") + value[:4] + len(texts).to_bytes(4, "little") + bytes(4)
                texts.append(ctypes.addressof(text))
            views[16 * place : 16 * place + 16] = list(view)
        self._kept.append(views)
        known = [value is not None for value in padded]
        return self._array(len(values), offset, known, [ctypes.addressof(views), *texts])

    def _numbers(self, numbers: Sequence[int | None], kind: type[ctypes.c_int32 | ctypes.c_int64]) -> ArrowArray:
        offset = self._rnd.randrange(3)
        padded = [*[None] * offset, *numbers]
        data = (kind * len(padded))(*(self._rnd.randrange(-9, 9) if one is None else one for one in padded))
        self._kept.append(data)
        return self._array(len(numbers), offset, [one is not None for one in padded], [ctypes.addressof(data)])

    def _headers(self, lists: Sequence[Headers | None]) -> ArrowArray:
        """Lists of structs; both begin somewhere in their columns."""
        offset, before = self._rnd.randrange(3), self._rnd.randrange(3)
        pairs: list[tuple[bytes | None, bytes | None]] = [(None, None)] * before
        ends = [0] * (offset + 1)
        for one in lists:
            pairs += [(name.encode(), value) for name, value in one or ()]
            ends.append(len(pairs) - before)
        entries = self._array(len(pairs) - before, before, [True] * len(pairs), [])
        parts = [self._views(part) for part in (list(zip(*pairs, strict=True)) or [(), ()])]
        self._adopt(entries, parts)
        offsets = (ctypes.c_int64 * len(ends))(*ends)
        self._kept.append(offsets)
        known = [True] * offset + [one is not None for one in lists]
        found = self._array(len(lists), offset, known, [ctypes.addressof(offsets)])
        self._adopt(found, [entries])
        return found

    def _adopt(self, parent: ArrowArray, children: Sequence[ArrowArray]) -> None:
        places = (ctypes.c_void_p * len(children))(*map(ctypes.addressof, children))
        self._kept += [places, *children]
        parent.n_children, parent.children = len(children), ctypes.addressof(places)
