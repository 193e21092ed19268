"""Evaluation of a lambda function over the elements of a whole batch, which become rows of a frame.

Memory is bounded: each pass takes only as many elements as its results leave room for, and a row whose result is too
large is dropped before the rest of it is computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tidegate.expressions.bounds import BATCH_BYTES_MAX, FIXED_BYTES, MAX_VALUE_BYTES, derive_body_bound
from tidegate.expressions.compiled.compiler import column_named
from tidegate.expressions.compiled.frames import compile_projection
from tidegate.expressions.expression import Lambda, columns_of
from tidegate.formats.failures import FailureKind
from tidegate.formats.sizes import size_of

ROW, INDEX, ITEMS, VALUE = "__tidegate_row", "__tidegate_index", "__tidegate_items", "__tidegate_result"
_ELEMENTS_MAX = 100_000
Failure = tuple[FailureKind, str]


class Body:
    """A compiled lambda function. `failures` are those that its evaluation can have."""

    def __init__(self, source: Lambda) -> None:
        self._names = [name for name, _ in source.parameters]
        self._bound = derive_body_bound(source)
        self._projection = compile_projection([(VALUE, source.body)])
        self.outer = sorted(columns_of(source))
        self.failures: tuple[Failure, ...] = self._projection.failures

    def apply(
        self, rows: pl.DataFrame, elements: pl.DataFrame
    ) -> tuple[pl.DataFrame, dict[int, tuple[int, Failure]], set[int]]:
        """Returns row, index and value of the elements, the first failing element of each row, and the rows that are
        too large.

        `elements` contains `ROW`, `INDEX` and the values of the parameters, in the order of rows and elements.
        """
        given = [*elements.columns[2:], INDEX]
        named = (pl.col(column).alias(name) for column, name in zip(given, self._names, strict=False))
        renamed = elements.select(ROW, INDEX, *named)
        outer = rows.select(self.outer)
        found: list[pl.DataFrame] = []
        failed: dict[int, tuple[int, Failure]] = {}
        sizes: dict[int, int] = {}
        large: set[int] = set()
        for every in self._slices(renamed, outer):
            part = every.filter(~pl.col(ROW).is_in(list(large))) if large else every
            whole = pl.concat([part, outer[part[ROW]]], how="horizontal") if self.outer else part
            values, failures = self._projection.apply(whole, keep=(ROW, INDEX))
            found.append(values)
            for failure in failures:
                row, index = part[ROW][failure.row], part[INDEX][failure.row]
                failed.setdefault(row, (index, (failure.kind, failure.message)))
            size = size_of(pl.col(VALUE), values[VALUE].dtype)
            if size is not None:
                for row, more in values.group_by(ROW).agg(size.sum()).iter_rows():
                    sizes[row] = sizes.get(row, 0) + (more or 0)
                    if sizes[row] > MAX_VALUE_BYTES:
                        large.add(row)
        return pl.concat(found), failed, large

    def _slices(self, elements: pl.DataFrame, outer: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the elements in slices whose results have room according to the bound of the body."""
        largest = {
            name: int(elements.select(size.max()).item() or 0)
            for name, kind in {**outer.schema, **elements.schema}.items()
            if name in elements.columns and (size := size_of(pl.col(name), kind)) is not None
        }
        largest |= {
            name: int(outer.select(size.max()).item() or 0)
            for name, kind in outer.schema.items()
            if (size := size_of(column_named(name), kind)) is not None
        }
        each = self._bound.constant + sum(
            factor * (FIXED_BYTES + largest.get(name, 0)) for name, factor in self._bound.factors.items()
        )
        count = max(1, min(_ELEMENTS_MAX, int(BATCH_BYTES_MAX / max(1.0, each))))
        for start in range(0, max(1, elements.height), count):
            yield elements.slice(start, count)


def explode(rows: pl.DataFrame, fields: tuple[str, ...]) -> pl.DataFrame:
    """Returns the elements of `ITEMS`, each with its row and its index from 0.

    `fields`: the fields of a map entry, which become columns instead of the entry itself.
    """
    counted = rows.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW),
        pl.int_ranges(0, pl.col(ITEMS).list.len().cast(pl.Int32), dtype=pl.Int32).alias(INDEX),
        pl.col(ITEMS),
    )
    exploded = counted.filter(pl.col(ITEMS).list.len() > 0).explode(INDEX, ITEMS)
    if not fields:
        return exploded
    return exploded.select(
        ROW, INDEX, *(pl.col(ITEMS).struct.field(name).alias(f"__tidegate_{name}_of_map") for name in fields)
    )
