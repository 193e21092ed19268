"""Sizes of values and rows, as far as they depend on the values: text, bytes and nested values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add

import polars as pl

from tidegate.formats.columns import type_instance


def size_of(value: pl.Expr, kind: pl.DataType) -> pl.Expr | None:
    """Returns the size of each value as a bigint, NULL for NULL; None for types of fixed size."""
    if isinstance(kind, pl.String):
        return value.str.len_bytes().cast(pl.Int64)
    if isinstance(kind, pl.Binary):
        return value.bin.size().cast(pl.Int64)
    if isinstance(kind, pl.List):
        inner = size_of(pl.element(), type_instance(kind.inner))
        count = value.list.len().cast(pl.Int64)
        return count * _ELEMENT_BYTES if inner is None else count * _ELEMENT_BYTES + value.list.eval(inner).list.sum()
    if isinstance(kind, pl.Struct):
        fields = [size_of(value.struct.field(part.name), type_instance(part.dtype)) for part in kind.fields]
        known = [field.fill_null(0) for field in fields if field is not None]
        return reduce(add, known) if known else None
    return None


_ELEMENT_BYTES = 16
"""Size of an array element in addition to its text: an upper bound in memory, and approximate as JSON."""


def count_rows_within(frame: pl.DataFrame, bytes_max: int) -> int:
    """Returns how many of the first rows together have at most `bytes_max` bytes; at least one."""
    sizes = [size for name, kind in frame.schema.items() if (size := size_of(pl.col(name), kind)) is not None]
    if not sizes:
        return frame.height
    total = frame.select(reduce(add, [size.fill_null(0) for size in sizes]).cum_sum().alias("bytes"))["bytes"]
    return max(1, int((total <= bytes_max).sum()))


def cut_frame(frame: pl.DataFrame, rows_max: int, bytes_max: int) -> Iterator[pl.DataFrame]:
    """Splits a frame into parts of at most `rows_max` rows and about `bytes_max` bytes, each with at least one row."""
    while frame.height > rows_max or (frame.height > 1 and frame.estimated_size() > bytes_max):
        rows = min(rows_max, count_rows_within(frame, bytes_max), frame.height)
        yield frame[:rows]
        frame = frame[rows:]
    if frame.height:
        yield frame
