"""Results of aggregates, from the accumulators that a state has of them, where these alone say what the result is.

| parts of the accumulator | result |
| --- | --- |
| `count`; `sum`; `min`; `max`; `first`; `last`; `bool_and`; `bool_or` | itself |
| `first`, `seen` (with FILTER or IGNORE NULLS) | the first value |
| `sum`, `count` | the average |
| `low`, `carry` (whole numbers, of windows) | the sum; NULL where it leaves the range of bigint |
| `units`, `fraction`, `fine`, `rest` (doubles, of windows), with `count` or without | the average, or the sum |
| `by`, `value` | the value, of `first`, `last`, `min_by` or `max_by` |

Everything else stays as it is: what the accumulators of `stddev_samp` and `stddev_pop` look like is the same, and the
scale of a sum of decimals in windows is not in the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import polars as pl

from tidegate.datatypes import BIGINT, DOUBLE, MAX_PRECISION, DataType, decimal_of, units_of
from tidegate.expressions.decimals import derive_average_type, divide_average
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.aggregation.doubles import Average, DoubleSum
from tidegate.operators.aggregation.parts import COUNT, EXACT_SUM, INTEGER_SUM
from tidegate.state.declaration import StateField

_ITSELF: Final = frozenset({"count", "sum", "min", "max", "first", "last", "bool_and", "bool_or"})
_INTEGERS: Final = tuple(name for name, _, _ in INTEGER_SUM)
_DOUBLES: Final = tuple(name for name, _, _ in EXACT_SUM)
_SUM_DIGITS: Final = 10
"""A sum of decimals has so many digits more than its values, up to the most that there are."""


class Result(NamedTuple):
    """What can be derived of an aggregate."""

    function: str
    """As far as the accumulator shows it."""
    type: DataType
    compute: Callable[[pl.DataFrame], pl.Series]
    """From a frame that has the accumulators, in columns named as the parts in the state."""


def derive_result(name: str, parts: Sequence[StateField]) -> Result | None:
    """The result of the aggregate `name` whose accumulator has these parts; None where it cannot be known."""
    suffixes = tuple(part.name.removeprefix(f"{name}.") for part in parts)
    first = parts[0]
    if len(parts) == 1 and suffixes[0] in _ITSELF:
        return Result(suffixes[0], first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("first", "seen"):
        return Result("first", first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("sum", "count"):
        return _average(name, first)
    if suffixes == _INTEGERS:
        return Result("sum", BIGINT, lambda frame: _integer_sum(name, frame))
    if suffixes in (_DOUBLES, (*_DOUBLES, COUNT[0])):
        return _double(name, [part.name for part in parts])
    if suffixes == ("by", "value"):
        return Result("value", parts[1].type, lambda frame: frame[f"{name}.value"].alias(name))
    return None


def _average(name: str, total: StateField) -> Result | None:
    count = f"{name}.count"
    if total.type == DOUBLE:
        return Result("avg", DOUBLE, lambda frame: (frame[total.name] / frame[count]).alias(name))
    if total.type.kind != "decimal" or total.type.precision >= MAX_PRECISION:
        return None  # whether its values have 38 digits or fewer is not to be seen
    scale = total.type.scale
    kind = derive_average_type(decimal_of(total.type.precision - _SUM_DIGITS, scale))

    def compute(frame: pl.DataFrame) -> pl.Series:
        pairs = zip(frame[total.name], frame[count], strict=True)
        found = [None if one is None else divide_average(units_of(one, scale), scale, n, kind) for one, n in pairs]
        return make_column(name, kind, found)

    return Result("avg", kind, compute)


def _integer_sum(name: str, frame: pl.DataFrame) -> pl.Series:
    low, carry = (pl.col(f"{name}.{part}") for part in _INTEGERS)
    return frame.select(pl.when(carry == 0).then(low).alias(name)).to_series()


def _double(name: str, columns: Sequence[str]) -> Result:
    average = len(columns) > len(_DOUBLES)
    aggregate = Average(name, name) if average else DoubleSum(name, name)

    def compute(frame: pl.DataFrame) -> pl.Series:
        return aggregate.results(list(zip(*(plain_values(frame[column]) for column in columns), strict=True)))

    return Result("avg" if average else "sum", DOUBLE, compute)
