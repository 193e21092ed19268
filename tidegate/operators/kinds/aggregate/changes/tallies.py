"""Aggregate functions from which rows can be taken back, exactly: what is kept per group, and one row at a time.

A *tally* is a list of plain values that moves with the rows of a group; `load` and `save` are between it and the state.
Sums are whole numbers of any size, so that taking a value back leaves nothing of it, whatever came in between: of
integers and decimals in units of the scale, of doubles in units of 2^-1074, with NaN and infinities counted. Extremes
and the number of different values need all values of a group, which `values.py` keeps, one entry of a state each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

from tidegate.datatypes import BIGINT, BINARY, decimal_of_units, units_of
from tidegate.expressions.decimals import derive_sum_type, divide_average
from tidegate.expressions.expression import AggregateCall, Expression
from tidegate.operators.aggregation.division import divide
from tidegate.operators.aggregation.parts import COUNT, DECIMAL_SUM, Part
from tidegate.operators.kinds.aggregate.changes.kept import DISTINCT, DOUBLES
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

Tally = list[Any]

RETRACTABLE: Final = frozenset({"count", DISTINCT, "sum", "avg", "min", "max", "bool_and", "bool_or"})
"""The functions that there are of changes."""
_OVERFLOW: Final = "a sum leaves the range of {}"
_BIGINT_MAX: Final = (1 << 63) - 1


class Retractable(Protocol):
    """One aggregate function of a step."""

    parts: Sequence[Part]

    def load(self, value: Value) -> Tally:
        """What a state has kept."""

    def save(self, tally: Tally) -> Value:
        """The opposite."""

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:
        """The values of a batch as `add` and `take` get them, None for NULL. `numbers`: of each row's key in `keys`."""

    def add(self, tally: Tally, value: Any) -> None:
        """A row with this value more."""

    def take(self, tally: Tally, value: Any) -> bool:
        """A row with this value less; False, and nothing has happened, when there is none for all that is known."""

    def is_empty(self, tally: Tally) -> bool:
        """Whether nothing is left of any value: a group without rows has nothing else."""

    def finish(self, tallies: Sequence[Tally], keys: Sequence[Row]) -> None:
        """All rows of a batch are in the tallies of its keys: what is kept elsewhere is written."""

    def result(self, tally: Tally) -> Any:
        """A plain value of the result's type. Raises OverflowError."""


def new_tally(function: Retractable) -> Tally:
    """Of a group without rows."""
    return function.load(tuple(None if nullable else 0 for _, _, nullable in function.parts))


UNCOUNTED: Final = object()
"""Stands for the value of a row that `FilteredTally` leaves out."""


class FilteredTally:
    """See Retractable. The same function of the rows that FILTER leaves."""

    def __init__(self, function: Retractable) -> None:
        self._function = function
        self.parts = function.parts
        self.load, self.save, self.begin = function.load, function.save, function.begin
        self.is_empty, self.finish, self.result = function.is_empty, function.finish, function.result

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is not UNCOUNTED:
            self._function.add(tally, value)

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        return value is UNCOUNTED or self._function.take(tally, value)


class _InTally:
    """Of functions that keep nothing elsewhere."""

    def finish(self, tallies: Sequence[Tally], keys: Sequence[Row]) -> None:
        """See Retractable."""


class CountTally(_InTally):
    """count(*) and count(x)."""

    parts: Sequence[Part] = (COUNT,)

    def __init__(self, *, rows: bool) -> None:
        """`rows`: all of them, whatever they hold."""
        self._rows = rows

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        return list(value)

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        return tuple(tally)

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:  # noqa: ARG002  # the values alone
        """See Retractable."""
        return list(values)

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if self._rows or value is not None:
            tally[0] += 1

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if self._rows or value is not None:
            if not tally[0]:
                return False
            tally[0] -= 1
        return True

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not tally[0]

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        return tally[0]


class BooleanTally(CountTally):
    """bool_and and bool_or: how many are true, and how many false."""

    parts: Sequence[Part] = (("true", BIGINT, False), ("false", BIGINT, False))

    def __init__(self, *, every: bool) -> None:
        super().__init__(rows=False)
        self._every = every

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is not None:
            tally[not value] += 1

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if value is not None:
            if not tally[not value]:
                return False
            tally[not value] -= 1
        return True

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not any(tally)

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        true, false = tally
        if not (true or false):
            return None
        return not false if self._every else bool(true)


class SumTally(_InTally):
    """sum and avg of integers and decimals: `[units, count]`, and three bigints and a count in the state."""

    parts: Sequence[Part] = (*((name, kind, False) for name, kind, _ in DECIMAL_SUM), COUNT)

    def __init__(self, call: AggregateCall) -> None:
        argument = _argument(call)
        self._average = call.function == "avg"
        self._scale = argument.type.scale if argument.type.kind == "decimal" else 0
        self._decimal = argument.type.kind == "decimal"
        self._result = call.type
        total = derive_sum_type(argument.type) if self._decimal else BIGINT
        self._limit = 10**total.precision - 1 if self._decimal else _BIGINT_MAX
        self._overflow = _OVERFLOW.format(total)

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        low, carry, high, count = value
        return [(high << 128) + (carry << 64) + low, count]

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        units, count = tally
        words = []
        for _ in range(2):
            word = ((units + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
            words.append(word)
            units = (units - word) >> 64
        return (*words, units, count)

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:  # noqa: ARG002  # the values alone
        """See Retractable."""
        if not self._decimal:
            return list(values)
        return [None if value is None else units_of(value, self._scale) for value in values]

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is not None:
            tally[0] += value
            tally[1] += 1

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if value is not None:
            if not tally[1]:
                return False
            tally[0] -= value
            tally[1] -= 1
        return True

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not any(tally)

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        units, count = tally
        if not count:
            return None
        if not -self._limit - (not self._decimal) <= units <= self._limit:
            raise OverflowError(self._overflow)
        if self._average:
            return divide_average(units, self._scale, count, self._result)
        return decimal_of_units(units, self._scale) if self._decimal else units


_BITS: Final = 1074
"""The least double is 2^-1074."""
_NAN, _MOST, _LEAST = 2, 3, 4


class DoubleTally(_InTally):
    """sum and avg of doubles: `[units of 2^-1074, count, NaNs, infinities, negative ones]`.

    The result is the exact sum, rounded once, as that of windows; 0.0 where nothing but zeros is left.
    """

    parts: Sequence[Part] = (
        ("sum", BINARY, True),
        COUNT,
        *((name, BIGINT, False) for name in ("nan", "infinite", "negative")),
    )

    def __init__(self, *, average: bool) -> None:
        self._average = average

    def load(self, value: Value) -> Tally:
        """See Retractable."""
        return [_decode(value[0]), *value[1:]]

    def save(self, tally: Tally) -> Value:
        """See Retractable."""
        return (_encode(tally[0]), *tally[1:])

    def begin(self, values: Sequence[Any], numbers: Sequence[int], keys: Sequence[Row]) -> list[Any]:  # noqa: ARG002  # the values alone
        """See Retractable. Units, or the place of what is no finite number."""
        return [None if value is None else _units(value) for value in values]

    def add(self, tally: Tally, value: Any) -> None:
        """See Retractable."""
        if value is not None:
            self._move(tally, value, 1)

    def take(self, tally: Tally, value: Any) -> bool:
        """See Retractable."""
        if value is not None:
            finite, place = value
            if not tally[1] or not (finite or tally[place]):
                return False
            self._move(tally, value, -1)
        return True

    def _move(self, tally: Tally, value: tuple[bool, int], sign: int) -> None:
        finite, number = value
        if finite:
            tally[0] += sign * number
        else:
            tally[number] += sign
        tally[1] += sign

    def is_empty(self, tally: Tally) -> bool:
        """See Retractable."""
        return not any(tally)

    def result(self, tally: Tally) -> Any:
        """See Retractable."""
        units, count, nan, most, least = tally
        if not count:
            return None
        if nan or (most and least):
            return math.nan
        if most or least:
            return math.inf if most else -math.inf
        return divide(units, (count if self._average else 1) << _BITS)


def _units(value: float) -> tuple[bool, int]:
    if math.isfinite(value):
        numerator, denominator = value.as_integer_ratio()
        return True, numerator << (_BITS - denominator.bit_length() + 1)
    return False, _NAN if math.isnan(value) else _MOST if value > 0 else _LEAST


def _encode(units: int) -> bytes | None:
    """The number of zero bytes in two bytes, then the others, lowest first; None for 0."""
    if not units:
        return None
    body = units.to_bytes(units.bit_length() // 8 + 1, "little", signed=True)
    kept = body.lstrip(b"\0")
    return (len(body) - len(kept)).to_bytes(2, "big") + kept


def _decode(encoded: bytes | None) -> int:
    if encoded is None:
        return 0
    return int.from_bytes(encoded[2:], "little", signed=True) << 8 * int.from_bytes(encoded[:2], "big")


def make_tally(call: AggregateCall) -> Retractable | None:
    """The function of a call; None for those that need all values of a group: min, max and count(distinct)."""
    match call.function:
        case "count":
            return CountTally(rows=call.argument is None)
        case "bool_and" | "bool_or":
            return BooleanTally(every=call.function == "bool_and")
        case "sum" | "avg":
            return DoubleTally(average=call.function == "avg") if _is_double(call) else SumTally(call)
    return None


def _is_double(call: AggregateCall) -> bool:
    return _argument(call).type.kind in DOUBLES


def _argument(call: AggregateCall) -> Expression:
    assert call.argument is not None
    return call.argument
