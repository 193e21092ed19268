"""approx_count_distinct: a theta sketch of Apache DataSketches (the extra `sketches`).

It keeps the 4,096 smallest hashes of the values: which those are does not depend on any order once more than 4,096 are
cut off (`trim`, and what a union does), so equal sets of values give equal bytes. The library brings numpy: this module
is imported only for this function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import polars as pl
from datasketches import compact_theta_sketch, theta_union, update_theta_sketch

from tidegate.datatypes import BIGINT, DataType
from tidegate.formats.columns import make_column
from tidegate.operators.aggregation.contract import Direct, Reduction, Value
from tidegate.operators.aggregation.parts import Part
from tidegate.operators.aggregation.values import equal_key

LOG_SIZE: Final = 12
"""2^12 hashes: a standard error of 1.6 %."""


class ApproximateCount(Direct):
    """See MergeableAggregate. NULL without values."""

    def __init__(self, name: str, argument: str, kind: DataType, parts: Sequence[Part]) -> None:
        super().__init__(name, parts)
        self._argument = argument
        self._kind = kind
        (self._column,) = self.columns

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """See MergeableAggregate."""
        keys = equal_key(rows[self._argument], self._kind)
        return Reduction([keys.alias(self._column)], [pl.col(self._column).drop_nulls().unique().implode()])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """See MergeableAggregate."""
        sketches = pl.col(self._column).drop_nulls().implode()
        return Reduction([], [sketches, pl.lit(1, pl.UInt8).alias(f"{self._column}.merged")])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """See MergeableAggregate."""
        make = merge_sketches if f"{self._column}.merged" in grouped.columns else make_sketch
        (lists,) = super().pack(grouped)
        sketches = [make(values) if values else None for values in lists.to_list()]
        return [pl.Series(self._column, sketches, dtype=pl.Binary)]

    def merge(self, left: Value, right: Value) -> Value:
        """See MergeableAggregate."""
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        return (merge_sketches((left[0], right[0])),)

    def results(self, accumulators: Sequence[Value]) -> pl.Series:
        """See MergeableAggregate."""
        return make_column(
            self.name, BIGINT, [0 if sketch is None else _estimate(sketch) for (sketch,) in accumulators]
        )


def make_sketch(keys: Iterable[Any]) -> bytes:
    """The sketch of some values."""
    sketch = update_theta_sketch(LOG_SIZE)
    for key in keys:
        if isinstance(key, bytes):
            sketch.update(f"b{key.hex()}")
        elif isinstance(key, str):
            sketch.update(f"s{key}")  # the library ignores an empty text
        elif isinstance(key, Decimal):
            sketch.update(f"d{key}")
        else:
            sketch.update(int(key))
    sketch.trim()
    return bytes(sketch.compact().serialize())


def merge_sketches(sketches: Iterable[bytes]) -> bytes:
    """The sketch of all their values."""
    union = theta_union(LOG_SIZE)
    for sketch in sketches:
        union.update(compact_theta_sketch.deserialize(sketch))
    return bytes(union.get_result().serialize())


def _estimate(sketch: bytes) -> int:
    return round(float(compact_theta_sketch.deserialize(sketch).get_estimate()))
