"""Rows of a batch in C: partitions, event times and key groups, for `sanitized.py`."""

from __future__ import annotations

import ctypes
import random
from array import array

import polars as pl

from tests.state.test_keygroups import draw_frame
from tidegate.native.key_groups import distribute, find_groups, measure_in_c
from tidegate.native.library import Library

ROWS = 300


def number_partitions(library: Library, rnd: random.Random) -> None:
    """Partitions of any number in any order, in blocks of exactly their size. Now and then an offset is repeated."""
    count, places = rnd.randrange(ROWS), rnd.choice((1, 2, 50, 10_000))
    chosen = [rnd.randrange(places) for _ in range(count)]
    partitions = (ctypes.c_int32 * count)(*(place // 2 for place in chosen))
    topics = (ctypes.c_void_p * count)(*(1000 + 8 * (place % 2) for place in chosen))
    offsets = (ctypes.c_int64 * count)(*(0 if rnd.random() < 0.001 else row + 1 for row in range(count)))
    numbers, firsts, lasts = (ctypes.c_int32 * count)(), (ctypes.c_int64 * count)(), (ctypes.c_int64 * count)()
    found = library.free.tg_origins(partitions, topics, count, offsets, numbers, firsts, lasts)
    assert found == len(set(chosen)) or found < 0
    if found >= 0:
        assert list(numbers) == [list(dict.fromkeys(chosen)).index(place) for place in chosen]
        times = pl.Series([rnd.randrange(-(10**12), 10**12) for _ in range(count)], dtype=pl.Int64)
        marks = [rnd.choice((-(1 << 63), (1 << 63) - 1, 0)) for _ in range(found)]
        assert len(measure_in_c(library, "behind", times, array("i", numbers), marks, rnd.choice((1, 10**9)))) == count


def hash_keys(library: Library, rnd: random.Random) -> None:
    """Keys of all types, alone and together, and the rows of up to 20 subtasks."""
    frame = draw_frame(rnd, rnd.randrange(ROWS))
    columns = rnd.sample(frame.get_columns(), rnd.randrange(1, 5))
    groups = find_groups(library, columns, 128)
    assert groups is not None
    subtasks = rnd.randrange(1, 20)
    rows = distribute(library, groups, array("H", sorted(rnd.randrange(subtasks) for _ in range(128))), subtasks)
    assert sorted(row for part in rows for row in part) == list(range(frame.height))
