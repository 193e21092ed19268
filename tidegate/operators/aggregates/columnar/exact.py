"""Exact sums of columns of doubles (`exact.py`).

Polars adds the parts of common values in 128 bits: less than 2^32 rows of less than 2^62 units (or 2^96 units of 2^-96)
stay below 2^128 / 2. Values that go to the rest are added one at a time, which is about a hundred times slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tidegate.operators.aggregates.contract import Reduction, blank
from tidegate.operators.aggregates.exact import (
    FINE_BITS,
    FRACTION_BITS,
    LEAST,
    MOST,
    REST_BITS,
    SQUARE_LEAST,
    SQUARE_MOST,
    encode_rest,
    rest_of_rests,
    rest_of_values,
)


def wide(number: int) -> pl.Series:
    """Returns a constant for arithmetic with a 128-bit column."""
    return pl.Series([number], dtype=pl.Int128)


WORD: Final = wide(1 << 64)
_HALF: Final = wide(1 << 63)
_NOTHING: Final = pl.Series([0], dtype=pl.Int64)
_WIDE_NOTHING: Final = wide(0)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def carry_words(total: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Splits each number into two bigints `low` and `carry`, such that it is `carry * 2^64 + low`."""
    if not ((total < _LEAST) | (total > _MOST)).any():
        return total.cast(pl.Int64), _NOTHING.new_from_index(0, len(total))
    carry = (total + _HALF) // WORD
    return (total - carry * WORD).cast(pl.Int64), carry.cast(pl.Int64)


_BIGINT_DIGITS: Final = 18


class WordSum:
    """One sum among the fields of an aggregate; `columns` are the names of its words, lowest first.

    Exact sums of columns of integers and decimals, in words of 64 bits (see `tidegate/operators/aggregates/sums.py`).

    Within a frame, which has less than 2^32 rows, each word is added in 128 bits.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._some = f"{columns[0]}.some"

    def from_rows(self, values: pl.Series) -> Reduction:
        """Returns the reduction to the sum of integers or decimals."""
        low, carry = self._columns[:2]
        if not isinstance(values.dtype, pl.Decimal):
            return self._reduction([values.cast(pl.Int128).alias(low)])
        units = values.to_physical().cast(pl.Int128)
        if values.dtype.precision <= _BIGINT_DIGITS:
            return self._reduction([units.alias(low)])
        upper = units // WORD
        return self._reduction([(units - upper * WORD).alias(low), upper.alias(carry)])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """Returns the reduction to the sum of partial sums."""
        return self._reduction([parts[column].cast(pl.Int128) for column in self._columns])

    def _reduction(self, words: list[pl.Series]) -> Reduction:
        sums = [pl.col(word.name).sum() for word in words]
        return Reduction(words, [*sums, pl.col(words[0].name).count().alias(self._some)])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """Returns the columns of the words."""
        none = grouped[self._some] == 0
        zero = _WIDE_NOTHING.new_from_index(0, grouped.height)
        words, carry = [], zero
        for column in self._columns[:-1]:
            word, over = carry_words(grouped.get_column(column, default=zero) + carry)
            words.append(word)
            carry = over.cast(pl.Int128)
        words.append((grouped.get_column(self._columns[-1], default=zero) + carry).cast(pl.Int64))
        return [blank(word, none).alias(column) for word, column in zip(words, self._columns, strict=True)]


_SPLIT_BITS: Final = 96
_BASE: Final = wide(1 << FRACTION_BITS)
_SHIFT: Final = wide(1 << (_SPLIT_BITS - FRACTION_BITS))
_SHIFT_BACK: Final = wide(1 << (FINE_BITS - _SPLIT_BITS))
_TWO, _CROSS = wide(2), wide(1 << 32)


def find_common(values: pl.Series, least: float = LEAST, most: float = MOST) -> pl.Series:
    """Returns which values need no rest. NULL stays NULL."""
    magnitude = values.abs()
    return ((magnitude >= least) & (magnitude < most)) | (values == 0)


class ExactSum:
    """One exact sum among the parts of an aggregate; `columns` are the names of its four fields."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._split = f"{columns[0]}.split"
        self._count = f"{columns[0]}.some"

    def from_rows(self, values: pl.Series) -> Reduction:
        """Returns the reduction to the sum of doubles."""
        units, _, _, rest = self._columns
        common = find_common(values)
        odd = []
        if not common.all():
            odd = [blank(values, common).alias(rest)]
            values = blank(values, ~common)
        whole = values.cast(pl.Int64)
        split = (values - whole.cast(pl.Float64)) * 2.0**_SPLIT_BITS
        columns = [whole.cast(pl.Int128).alias(units), split.cast(pl.Int128).alias(self._split), *odd]
        return self._reduction(columns)

    def from_squares(self, values: pl.Series) -> Reduction:
        """Returns the reduction to the sum of the squares of doubles.

        A value is `whole + part * 2^-62`, where part is `high * 2^31 + low`. So the square consists of products of
        bigints and one of 102 bits, each a whole number in units of 1, 2^-62 or 2^-124.
        """
        units, fraction, fine, rest = self._columns
        common = find_common(values, SQUARE_LEAST, SQUARE_MOST)
        odd = []
        if not common.all():
            odd = [blank(values, common).alias(rest)]
            values = blank(values, ~common)
        whole = values.cast(pl.Int64)
        part = ((values - whole.cast(pl.Float64)) * 2.0**FRACTION_BITS).cast(pl.Int64)
        high, low = part // (1 << 31), part & (1 << 31) - 1
        wholes = whole.cast(pl.Int128)
        columns = [
            (wholes * wholes).alias(units),
            (wholes * part.cast(pl.Int128) * _TWO + (high * high).cast(pl.Int128)).alias(fraction),
            ((high * low).cast(pl.Int128) * _CROSS + (low * low).cast(pl.Int128)).alias(fine),
        ]
        return self._reduction([*columns, *odd])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """Returns the reduction to the sum of partial sums."""
        *sums, rest = (parts[column] for column in self._columns)
        columns = [part.cast(pl.Int128) for part in sums]
        return self._reduction([*columns, rest] if rest.count() else columns)

    def _reduction(self, columns: list[pl.Series]) -> Reduction:
        rest = self._columns[-1]
        added = [column for column in columns if column.name != rest]
        expressions = [pl.col(column.name).sum() for column in added]
        some = pl.col(self._columns[0]).count()
        if len(columns) > len(added):
            some = some + pl.col(rest).count()
            expressions.append(pl.col(rest).drop_nulls().implode())
        return Reduction(columns, [*expressions, some.alias(self._count)])

    def pack(self, grouped: pl.DataFrame, power: int = 1) -> list[pl.Series]:
        """Returns the columns of the fields, each within its range. `power` is 2 for squares."""
        units, fraction, fine = self._sums(grouped)
        carry = fine // _BASE
        fine = fine - carry * _BASE
        fraction = fraction + carry
        carry = fraction // _BASE
        fraction = fraction - carry * _BASE
        units, above = carry_words(units + carry)
        none = grouped[self._count] == 0
        sums = [units, fraction.cast(pl.Int64), fine.cast(pl.Int64)]
        sums = [blank(part, none) for part in sums]
        rest = _pack_rests(grouped.get_column(self._columns[-1], default=None), above, power)
        return [part.alias(column) for part, column in zip((*sums, rest), self._columns, strict=True)]

    def _sums(self, grouped: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
        if self._split not in grouped.columns:
            units, fraction, fine = (grouped[column] for column in self._columns[:-1])
            return units, fraction, fine
        split = grouped[self._split]
        fraction = split // _SHIFT
        return grouped[self._columns[0]], fraction, (split - fraction * _SHIFT) * _SHIFT_BACK


def _pack_rests(groups: pl.Series | None, above: pl.Series, power: int) -> pl.Series:
    """Returns what does not fit in the three bigints: the lists of each group, and the upper bits of the units."""
    found: list[bytes | None] = [None] * len(above)
    lists = [None] * len(above) if groups is None else groups.to_list()
    if groups is not None or (above != 0).any():
        are_values = groups is not None and groups.dtype == pl.List(pl.Float64)
        for row, (values, upper) in enumerate(zip(lists, above.to_list(), strict=True)):
            if values or upper:
                rest = rest_of_values(values or (), power) if are_values else rest_of_rests(values or ())
                found[row] = encode_rest(rest.plus(upper << (64 + REST_BITS)))
    return pl.Series(found, dtype=pl.Binary)
