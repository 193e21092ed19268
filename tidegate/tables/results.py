"""Results of aggregates, derived from their accumulators in a state where these determine the result.

| parts of the accumulator | result |
| --- | --- |
| `count`; `sum`; `min`; `max`; `first`; `last`; `bool_and`; `bool_or` | itself |
| `first`, `seen` (with FILTER or IGNORE NULLS) | the first value |
| `sum`, `count` (decimals, of running totals) | the average |
| `low`, `carry` (whole numbers, of windows) | the sum; NULL where it exceeds the range of bigint |
| `sum`, `error`, `rest` (doubles, of running totals), with `count` or without | the average, or the sum |
| `units`, `fraction`, `fine`, `rest` (doubles, of windows), with `count` or without | the average, or the sum |
| `by`, `value` | the value, of `first`, `last`, `min_by` or `max_by` |

All other accumulators are shown as they are. Those of `stddev_samp` and `stddev_pop` look the same, and the scale of a
sum of decimals in windows is not stored in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import polars as pl

from tidegate.datatypes import BIGINT, DOUBLE, MAX_PRECISION, DataType, decimal_of, units_of
from tidegate.expressions.decimal_types import derive_average_type, divide_average
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregates.counting import COUNT
from tidegate.operators.aggregates.exact import EXACT_SUM, total_of
from tidegate.operators.aggregates.sums import INTEGER_SUM, average_compensated
from tidegate.state.declaration import StateField

_ITSELF: Final = frozenset({"count", "sum", "min", "max", "first", "last", "bool_and", "bool_or"})
_INTEGERS: Final = tuple(field.suffix for field in INTEGER_SUM)
_DOUBLES: Final = tuple(field.suffix for field in EXACT_SUM)
_COMPENSATED: Final = ("sum", "error", "rest")
_SUM_DIGITS: Final = 10
"""A sum of decimals has this many more digits than its values, up to the maximum precision."""


class AggregateResult(NamedTuple):
    """The result that can be derived for an aggregate."""

    function: str
    """The function, as far as the accumulator reveals it."""
    type: DataType
    compute: Callable[[pl.DataFrame], pl.Series]
    """Computes it from a frame with the accumulators, whose columns are named like the parts in the state."""


def derive_result(name: str, parts: Sequence[StateField]) -> AggregateResult | None:
    """Derives the result of the aggregate `name` whose accumulator has these parts; None if it cannot be determined."""
    suffixes = tuple(part.name.removeprefix(f"{name}.") for part in parts)
    first = parts[0]
    if len(parts) == 1 and suffixes[0] in _ITSELF:
        return AggregateResult(suffixes[0], first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("first", "seen"):
        return AggregateResult("first", first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("sum", "count"):
        return _average(name, first)
    if suffixes == _COMPENSATED:
        return AggregateResult("sum", DOUBLE, lambda frame: frame[first.name].alias(name))
    if suffixes == (*_COMPENSATED, COUNT.suffix):
        return AggregateResult(
            "avg", DOUBLE, lambda frame: _compensated_average(name, [part.name for part in parts], frame)
        )
    if suffixes == _INTEGERS:
        return AggregateResult("sum", BIGINT, lambda frame: _integer_sum(name, frame))
    if suffixes in (_DOUBLES, (*_DOUBLES, COUNT.suffix)):
        return _double(name, [part.name for part in parts])
    if suffixes == ("by", "value"):
        return AggregateResult("value", parts[1].type, lambda frame: frame[f"{name}.value"].alias(name))
    return None


def _average(name: str, total: StateField) -> AggregateResult | None:
    count = f"{name}.count"
    if total.type.kind != "decimal" or total.type.precision >= MAX_PRECISION:
        return None  # whether its values have 38 digits or fewer cannot be determined
    scale = total.type.scale
    kind = derive_average_type(decimal_of(total.type.precision - _SUM_DIGITS, scale))

    def compute(frame: pl.DataFrame) -> pl.Series:
        pairs = zip(frame[total.name], frame[count], strict=True)
        found = [None if one is None else divide_average(units_of(one, scale), scale, n, kind) for one, n in pairs]
        return make_column(name, kind, found)

    return AggregateResult("avg", kind, compute)


def _compensated_average(name: str, columns: Sequence[str], frame: pl.DataFrame) -> pl.Series:
    rows = zip(*(frame[column] for column in columns), strict=True)
    return make_column(name, DOUBLE, [average_compensated(*row) for row in rows])


def _integer_sum(name: str, frame: pl.DataFrame) -> pl.Series:
    low, carry = (pl.col(f"{name}.{part}") for part in _INTEGERS)
    return frame.select(pl.when(carry == 0).then(low).alias(name)).to_series()


def _double(name: str, columns: Sequence[str]) -> AggregateResult:
    average = len(columns) > len(_DOUBLES)

    def compute(frame: pl.DataFrame) -> pl.Series:
        counts = frame[columns[-1]] if average else [1] * frame.height
        sums = zip(*(plain_values(frame[column]) for column in columns[: len(_DOUBLES)]), strict=True)
        found = [
            None if total[0] is None else total_of(total).divided(count)
            for total, count in zip(sums, counts, strict=True)
        ]
        return make_column(name, DOUBLE, found)

    return AggregateResult("avg" if average else "sum", DOUBLE, compute)
