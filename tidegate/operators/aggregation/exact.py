"""Sums of doubles that are exact, so that the order of the additions cannot be seen in them.

A sum is `units + fraction * 2^-62 + fine * 2^-124 + rest`: three bigints, fraction and fine from 0 to 2^62 - 1, and a
`rest` of bytes that is NULL as long as the three are enough. They are for all values from 2^-44 to 2^62 (5.7e-14 to
4.6e18), and 0; what has a greater or smaller magnitude, infinities and NaN go to the rest, a whole number in units of
2^-2152 with flags, one value at a time and so about a hundred times slower. Nothing is rounded before the result.

Polars adds the parts of the common values in 128 bits: less than 2^32 rows of less than 2^62 units (or 2^96 units of
2^-96) stay below 2^128 / 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl

from tidegate.operators.aggregation.contract import Reduction, Value, blank
from tidegate.operators.aggregation.division import divide
from tidegate.operators.aggregation.wide import carry_words, wide

FRACTION_BITS: Final = 62
FRACTION_MASK: Final = (1 << FRACTION_BITS) - 1
FINE_BITS: Final = 2 * FRACTION_BITS
REST_BITS: Final = 2152
"""The square of the smallest double is 2^-2148."""
_SPLIT_BITS: Final = 96
_LEAST, _MOST = 2.0**-44, 2.0**62
"""2^-44 has its last bit at 2^-96."""
_SQUARE_LEAST, _SQUARE_MOST = 2.0**-10, 2.0**40
"""2^-10 has its last bit at 2^-62. The products with 2^40 are below 2^103, so 2^24 rows may be added."""
_HALF: Final = 1 << 63
_BASE: Final = wide(1 << FRACTION_BITS)
_SHIFT: Final = wide(1 << (_SPLIT_BITS - FRACTION_BITS))
_SHIFT_BACK: Final = wide(1 << (FINE_BITS - _SPLIT_BITS))
_TWO, _CROSS = wide(2), wide(1 << 32)
NAN, POSITIVE, NEGATIVE = 1, 2, 4
"""Flags of a rest: it has met NaN, an infinity, the other."""


@dataclass(frozen=True, slots=True)
class Total:
    """An exact sum: `units / 2^bits`, unless a flag is set."""

    units: int
    bits: int
    flags: int = 0

    @property
    def special(self) -> float | None:
        """NaN or an infinity, if it is that."""
        if not self.flags:
            return None
        if self.flags in (POSITIVE, NEGATIVE):
            return math.inf if self.flags == POSITIVE else -math.inf
        return math.nan

    def divided(self, count: int = 1) -> float:
        """The nearest double of the sum divided by `count`; an infinity beyond the greatest."""
        special = self.special
        return divide(self.units, count << self.bits) if special is None else special


class ExactSum:
    """One exact sum among the parts of an aggregate; `columns` are the names of its four parts."""

    def __init__(self, name: str, prefix: str = "") -> None:
        self.columns = [f"{name}.{prefix}{suffix}" for suffix in ("units", "fraction", "fine", "rest")]
        self._split = f"{name}.{prefix}split"
        self._count = f"{name}.{prefix}some"

    def from_rows(self, values: pl.Series) -> Reduction:
        """The sum of doubles."""
        units, _, _, rest = self.columns
        magnitude = values.abs()
        common = ((magnitude >= _LEAST) & (magnitude < _MOST)) | (values == 0)
        odd = []
        if not common.all():
            odd = [blank(values, common).alias(rest)]
            values = blank(values, ~common)
        whole = values.cast(pl.Int64)
        split = (values - whole.cast(pl.Float64)) * 2.0**_SPLIT_BITS
        columns = [whole.cast(pl.Int128).alias(units), split.cast(pl.Int128).alias(self._split), *odd]
        return self._reduction(columns)

    def from_squares(self, values: pl.Series) -> Reduction:
        """The sum of the squares of doubles.

        A value is `whole + part * 2^-62`, and part is `high * 2^31 + low`: the square is made of products of bigints
        and one of 102 bits, each of which is a whole number in units of 1, 2^-62 or 2^-124.
        """
        units, fraction, fine, rest = self.columns
        magnitude = values.abs()
        common = ((magnitude >= _SQUARE_LEAST) & (magnitude < _SQUARE_MOST)) | (values == 0)
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
        """The sum of partial sums."""
        *sums, rest = (parts[column] for column in self.columns)
        columns = [part.cast(pl.Int128) for part in sums]
        return self._reduction([*columns, rest] if rest.count() else columns)

    def _reduction(self, columns: list[pl.Series]) -> Reduction:
        rest = self.columns[-1]
        added = [column for column in columns if column.name != rest]
        expressions = [pl.col(column.name).sum() for column in added]
        some = pl.col(self.columns[0]).count()
        if len(columns) > len(added):
            some = some + pl.col(rest).count()
            expressions.append(pl.col(rest).drop_nulls().implode())
        return Reduction(columns, [*expressions, some.alias(self._count)])

    def pack(self, grouped: pl.DataFrame, power: int = 1) -> list[pl.Series]:
        """The columns of the parts, each in its range. `power` is 2 for squares."""
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
        rest = _pack_rests(grouped.get_column(self.columns[-1], default=None), above, power)
        return [part.alias(column) for part, column in zip((*sums, rest), self.columns, strict=True)]

    def _sums(self, grouped: pl.DataFrame) -> tuple[pl.Series, pl.Series, pl.Series]:
        if self._split not in grouped.columns:
            units, fraction, fine = (grouped[column] for column in self.columns[:-1])
            return units, fraction, fine
        split = grouped[self._split]
        fraction = split // _SHIFT
        return grouped[self.columns[0]], fraction, (split - fraction * _SHIFT) * _SHIFT_BACK


def _pack_rests(groups: pl.Series | None, above: pl.Series, power: int) -> pl.Series:
    """What the three bigints have no place for: the lists of each group, and the upper bits of the units."""
    found: list[bytes | None] = [None] * len(above)
    lists = [None] * len(above) if groups is None else groups.to_list()
    if groups is not None or (above != 0).any():
        are_values = groups is not None and groups.dtype == pl.List(pl.Float64)
        for row, (values, upper) in enumerate(zip(lists, above.to_list(), strict=True)):
            if values or upper:
                rest = rest_of_values(values or (), power) if are_values else rest_of_rests(values or ())
                found[row] = encode_rest(rest.plus(upper << (64 + REST_BITS)))
    return pl.Series(found, dtype=pl.Binary)


@dataclass(frozen=True, slots=True)
class Rest:
    """`units / 2^REST_BITS`, and flags."""

    units: int = 0
    flags: int = 0

    def plus(self, units: int, flags: int = 0) -> Rest:
        """The sum of both."""
        return Rest(self.units + units, self.flags | flags)


def rest_of_values(values: Iterable[float], power: int = 1) -> Rest:
    """The exact sum of doubles, or of their squares."""
    units, flags = 0, 0
    for value in values:
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            units += numerator**power << (REST_BITS - power * (denominator.bit_length() - 1))
        else:
            flags |= NAN if math.isnan(value) else POSITIVE if value > 0 or power == 2 else NEGATIVE
    return Rest(units, flags)


def rest_of_rests(values: Iterable[bytes]) -> Rest:
    """The sum of encoded rests."""
    total = Rest()
    for value in values:
        rest = decode_rest(value)
        total = total.plus(rest.units, rest.flags)
    return total


def encode_rest(rest: Rest) -> bytes | None:
    """As it is in a state: flags and the number of zero bytes in two bytes, then the others, lowest first."""
    if not rest.units:
        return (rest.flags << 12).to_bytes(2, "big") if rest.flags else None
    body = rest.units.to_bytes(rest.units.bit_length() // 8 + 1, "little", signed=True)
    kept = body.lstrip(b"\0")
    return (rest.flags << 12 | len(body) - len(kept)).to_bytes(2, "big") + kept


def decode_rest(encoded: bytes) -> Rest:
    """The inverse."""
    header = int.from_bytes(encoded[:2], "big")
    return Rest(int.from_bytes(encoded[2:], "little", signed=True) << 8 * (header & 0xFFF), header >> 12)


def merge_sums(left: Value, right: Value) -> Value:
    """The sum of two sums as the states have them."""
    if left[0] is None or right[0] is None:
        return left if right[0] is None else right
    fine = left[2] + right[2]
    fraction = left[1] + right[1] + (fine >> FRACTION_BITS)
    units = left[0] + right[0] + (fraction >> FRACTION_BITS)
    rest = left[3] if right[3] is None else right[3]
    if not -_HALF <= units < _HALF or (left[3] is not None and right[3] is not None):
        above = (units + _HALF) >> 64
        units -= above << 64
        added = rest_of_rests(part for part in (left[3], right[3]) if part is not None)
        rest = encode_rest(added.plus(above << (64 + REST_BITS)))
    return units, fraction & FRACTION_MASK, fine & FRACTION_MASK, rest


def total_of(accumulator: Value) -> Total:
    """The exact value of a sum that is not NULL."""
    units, fraction, fine, rest = accumulator
    if rest is not None:
        above = decode_rest(rest)
        scaled = (((units << FRACTION_BITS) + fraction) << FRACTION_BITS) + fine
        return Total((scaled << (REST_BITS - FINE_BITS)) + above.units, REST_BITS, above.flags)
    if fine:
        return Total((((units << FRACTION_BITS) + fraction) << FRACTION_BITS) + fine, FINE_BITS)
    return Total((units << FRACTION_BITS) + fraction, FRACTION_BITS)
