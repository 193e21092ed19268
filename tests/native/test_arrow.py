"""Arrays of C as columns: the same values, and their memory is given back."""

from __future__ import annotations

import ctypes
import gc
import resource
import threading

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.native.compiled import compiled_library
from tests.native.values import NativeValues
from tidegate.native.arrow import BUFFER_BYTES_MAX, ArrowArray, ArrowFunctions, Lent


@pytest.fixture(scope="module")
def arrow() -> ArrowFunctions:
    return ArrowFunctions(compiled_library())


def view_column(arrow: ArrowFunctions, values: list[bytes | None], buffer_bytes: int = BUFFER_BYTES_MAX) -> pl.Series:
    there = NativeValues(values)
    return arrow.view_column("v", there.addresses, there.lengths, len(there), buffer_bytes)


@given(
    values=st.lists(st.none() | st.binary(max_size=40), max_size=200),
    buffer_bytes=st.sampled_from([40, 100, 2**31 - 1]),
)
def test_bytes_are_the_same_however_many_buffers_they_need(
    arrow: ArrowFunctions, values: list[bytes | None], buffer_bytes: int
) -> None:
    column = view_column(arrow, values, buffer_bytes)
    assert (column.name, column.dtype) == ("v", pl.Binary())
    assert column.to_list() == values


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 11, 12, 13, 100_000])
def test_a_value_of_any_length(arrow: ArrowFunctions, length: int) -> None:
    value = bytes(n % 251 for n in range(length))
    assert view_column(arrow, [None, value, value]).to_list() == [None, value, value]


def test_a_column_takes_the_room_of_its_values(arrow: ArrowFunctions) -> None:
    """What a task counts against its limits is Polars' estimate."""
    assert view_column(arrow, [bytes(1000)] * 100).estimated_size() < 110_000


@pytest.mark.parametrize(("dtype", "made"), [(pl.Int32, ctypes.c_int32), (pl.Int64, ctypes.c_int64)])
def test_numbers_are_the_same(
    arrow: ArrowFunctions, dtype: type[pl.Int32 | pl.Int64], made: type[ctypes.c_int32 | ctypes.c_int64]
) -> None:
    values = [-1, 0, 7, 2**31 - 1] * 20
    numbers = (made * len(values))(*values)
    column = arrow.fixed_column("n", ctypes.addressof(numbers), len(values), dtype)
    assert (column.dtype, column.to_list()) == (dtype(), values)


def test_numbers_that_are_not_known_are_null(arrow: ArrowFunctions) -> None:
    numbers, known = (ctypes.c_int64 * 3)(1, 2, 3), (ctypes.c_uint8 * 3)(1, 0, 1)
    column = arrow.fixed_column("n", ctypes.addressof(numbers), 3, pl.Int64, ctypes.addressof(known))
    assert column.to_list() == [1, None, 3]


def test_no_rows(arrow: ArrowFunctions) -> None:
    assert view_column(arrow, []).to_list() == []
    assert arrow.fixed_column("n", 0, 0, pl.Int32).to_list() == []


def test_a_column_outlives_what_it_was_made_of_and_may_be_dropped_by_another_thread(arrow: ArrowFunctions) -> None:
    columns = [view_column(arrow, [b"x" * 100, None])]
    parts = [columns[0].slice(0, 1), columns[0].filter(columns[0].is_not_null())]
    dropping = threading.Thread(target=columns.clear)
    dropping.start()
    dropping.join()
    assert [part.to_list() for part in parts] == [[b"x" * 100]] * 2


@pytest.mark.slow
def test_memory_is_given_back(arrow: ArrowFunctions) -> None:
    there, before = NativeValues([bytes(100_000)] * 10), 0
    for turn in range(2000):
        arrow.view_column("v", there.addresses, there.lengths, len(there))
        if turn == 100:
            gc.collect()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000, "2 GB were made"


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(["a", None, "longer than twelve bytes"]),
        pl.Series(["a", "b", "c"])[1:],
        pl.concat([pl.Series([b"a"]), pl.Series([b"b"])], rechunk=False),
        pl.Series([1, None, 3]),
        pl.Series([], dtype=pl.Float64),
    ],
    ids=["nulls", "a slice", "several parts", "numbers", "none"],
)
def test_a_column_is_lent_to_c(column: pl.Series) -> None:
    lent = Lent(column)
    array = ArrowArray.from_address(lent.address)
    assert array.length == len(column)
    assert array.null_count in (-1, column.null_count())
