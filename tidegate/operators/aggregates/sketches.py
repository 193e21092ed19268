"""approx_count_distinct: a theta sketch of Apache DataSketches (the extra `sketches`).

It keeps the 4,096 smallest hashes of the values. These do not depend on any order once the excess is cut off (by `trim`
and by a union), so equal sets of values give equal bytes. The library depends on numpy, so it is imported only where a
sketch is created.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from tidegate.datatypes import BINARY
from tidegate.expressions.expression import AggregateCall
from tidegate.operators.aggregates.collecting import kind_of_keys
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateField,
    AggregateUse,
    Functions,
    Reduction,
    Value,
    argument_type,
)
from tidegate.operators.aggregates.values import equal_key, kept_key

if TYPE_CHECKING:
    import polars as pl

LOG_SIZE: Final = 12
"""2^12 hashes: a standard error of 1.6 %."""


class ApproximateCount(Aggregate):
    """The sketch of the values; NULL if there are none."""

    fields = (AggregateField("sketch", BINARY, nullable=True),)

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        super().__init__(name, call, use)
        self._kind = kind = argument_type(call)
        hashed = f"decimals of scale {kind.scale}" if kind.kind == "decimal" else kind_of_keys(kind)
        self.encoding = f"hashes of {hashed}"
        (self._column,) = self.columns

    @override
    def add(self, accumulator: Value, value: Any) -> Value:
        key = kept_key(value + 0.0 if isinstance(value, float) else value, self._kind)
        return self.merge(accumulator, (make_sketch((key,)),))

    @override
    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        import polars as pl

        keys = equal_key(rows[self.arguments[0]], self._kind)
        return Reduction([keys.alias(self._column)], [pl.col(self._column).drop_nulls().unique().implode()])

    @override
    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        import polars as pl

        sketches = pl.col(self._column).drop_nulls().implode()
        return Reduction([], [sketches, pl.lit(1, pl.UInt8).alias(f"{self._column}.merged")])

    @override
    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        import polars as pl

        make = merge_sketches if f"{self._column}.merged" in grouped.columns else make_sketch
        sketches = [make(values) if values else None for values in grouped[self._column].to_list()]
        return [pl.Series(self._column, sketches, dtype=pl.Binary)]

    @override
    def merge(self, left: Value, right: Value) -> Value:
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        return (merge_sketches((left[0], right[0])),)

    @override
    def result(self, accumulator: Value) -> Any:
        (sketch,) = accumulator
        return 0 if sketch is None else _estimate(sketch)


def make_sketch(keys: Iterable[Any]) -> bytes:
    """Returns the sketch of some values."""
    from datasketches import update_theta_sketch

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
    """Returns the sketch of the values of all sketches."""
    from datasketches import compact_theta_sketch, theta_union

    union = theta_union(LOG_SIZE)
    for sketch in sketches:
        union.update(compact_theta_sketch.deserialize(sketch))
    return bytes(union.get_result().serialize())


def _estimate(sketch: bytes) -> int:
    from datasketches import compact_theta_sketch

    return round(float(compact_theta_sketch.deserialize(sketch).get_estimate()))


FUNCTIONS: Final[Functions] = {"approx_count_distinct": {AggregateUse.WINDOW: ApproximateCount}}
