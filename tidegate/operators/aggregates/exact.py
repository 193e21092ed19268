"""Exact sums of doubles, so that the order of additions has no effect on them.

A sum is `units + fraction * 2^-62 + fine * 2^-124 + rest`: three bigints, with fraction and fine from 0 to 2^62 - 1,
and a `rest` of bytes that is NULL as long as the three suffice. They suffice for all values from 2^-44 to 2^62 (5.7e-14
to 4.6e18), and for 0. Values of greater or smaller magnitude, infinities and NaN go to the rest, a whole number in
units of 2^-2152 with flags. Nothing is rounded before the result. `columnar/exact.py` adds whole columns.

The three bigints together are a whole number in units of 2^-124, the *fixed* part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.datatypes import BIGINT, BINARY
from tidegate.operators.aggregates.contract import AggregateField, Value

FRACTION_BITS: Final = 62
FRACTION_MASK: Final = (1 << FRACTION_BITS) - 1
FINE_BITS: Final = 2 * FRACTION_BITS
REST_BITS: Final = 2152
"""The square of the smallest double is 2^-2148."""
LEAST, MOST = 2.0**-44, 2.0**62
"""The last bit of a double of magnitude 2^-44 is 2^-96."""
SQUARE_LEAST, SQUARE_MOST = 2.0**-10, 2.0**40
"""The last bit at 2^-10 is 2^-62. The products with 2^40 are below 2^103, so 2^24 rows may be added."""
_FIXED: Final = 2.0**FINE_BITS
_HALF: Final = 1 << 63
NAN, POSITIVE, NEGATIVE = 1, 2, 4
"""Flags of a rest: it contains NaN, a positive infinity, or a negative infinity."""

EXACT_SUM: Final = tuple(
    AggregateField(suffix, kind, nullable=True)
    for suffix, kind in (("units", BIGINT), ("fraction", BIGINT), ("fine", BIGINT), ("rest", BINARY))
)
"""The fields of a sum that is NULL without values."""
EXACT_ZERO: Final = (*(field._replace(nullable=False, zero=0) for field in EXACT_SUM[:-1]), EXACT_SUM[-1])
"""The fields of a sum that begins with 0."""


@dataclass(frozen=True, slots=True)
class Total:
    """An exact sum: `units / 2^bits`, unless a flag is set."""

    units: int
    bits: int
    flags: int = 0

    @property
    def special(self) -> float | None:
        """NaN or an infinity if a flag is set, otherwise None."""
        if not self.flags:
            return None
        if self.flags in (POSITIVE, NEGATIVE):
            return math.inf if self.flags == POSITIVE else -math.inf
        return math.nan

    def divided(self, count: int = 1) -> float:
        """Returns the nearest double to the sum divided by `count`; an infinity beyond the greatest double."""
        special = self.special
        return divide(self.units, count << self.bits) if special is None else special


def divide(numerator: int, denominator: int) -> float:
    """Returns the nearest double to the quotient; an infinity beyond the greatest double."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


_SPLIT: Final = 2.0**27 + 1
_ABOVE, _BELOW = 1 + 2.0**-45, 1 - 2.0**-45


def divide_pair(high: float, low: float, count: int) -> float:
    """Returns the nearest double to `(high + low) / count`, where `high` is the nearest double to the sum.

    The quotient of `high` has a remainder that is also a double (its two halves by Dekker's splitting are multiplied
    without rounding), from which the correction is known to 2^-51. If that does not decide the rounding, whole numbers
    are divided.
    """
    quotient = high / count
    if count < 1 << 26 and 1e-250 < abs(quotient) < 1e250:
        large = _SPLIT * quotient
        upper = large - (large - quotient)
        correction = (((high - upper * count) - (quotient - upper) * count) + low) / count
        found = quotient + correction * _ABOVE
        if found == quotient + correction * _BELOW:
            return found
    numerator, unit = high.as_integer_ratio()
    lower, finer = low.as_integer_ratio()
    common = max(unit, finer)
    return divide(numerator * (common // unit) + lower * (common // finer), common * count)


@dataclass(frozen=True, slots=True)
class ExactRemainder:
    """`units / 2^REST_BITS`, and flags."""

    units: int = 0
    flags: int = 0

    def plus(self, units: int, flags: int = 0) -> ExactRemainder:
        """Returns the remainder with units and flags added."""
        return ExactRemainder(self.units + units, self.flags | flags)


def rest_of_values(values: Iterable[float], power: int = 1) -> ExactRemainder:
    """Returns the exact sum of doubles, or of their squares."""
    units, flags = 0, 0
    for value in values:
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            units += numerator**power << (REST_BITS - power * (denominator.bit_length() - 1))
        else:
            flags |= NAN if math.isnan(value) else POSITIVE if value > 0 or power == 2 else NEGATIVE
    return ExactRemainder(units, flags)


def rest_of_rests(values: Iterable[bytes]) -> ExactRemainder:
    """Returns the sum of encoded rests."""
    total = ExactRemainder()
    for value in values:
        rest = decode_rest(value)
        total = total.plus(rest.units, rest.flags)
    return total


def encode_rest(rest: ExactRemainder) -> bytes | None:
    """Encodes a rest for a state: two bytes of flags and the number of zero bytes, then the others, lowest first."""
    if not rest.units:
        return (rest.flags << 12).to_bytes(2, "big") if rest.flags else None
    body = rest.units.to_bytes(rest.units.bit_length() // 8 + 1, "little", signed=True)
    kept = body.lstrip(b"\0")
    return (rest.flags << 12 | len(body) - len(kept)).to_bytes(2, "big") + kept


def decode_rest(encoded: bytes) -> ExactRemainder:
    """Decodes a rest from a state."""
    header = int.from_bytes(encoded[:2], "big")
    return ExactRemainder(int.from_bytes(encoded[2:], "little", signed=True) << 8 * (header & 0xFFF), header >> 12)


def is_common(value: float) -> bool:
    """Returns True if a value needs no rest."""
    return LEAST <= abs(value) < MOST or not value


def sum_of_value(value: float) -> Value:
    """Returns the sum of one value."""
    if is_common(value):
        return split_fixed(int(value * _FIXED), None)
    return 0, 0, 0, encode_rest(rest_of_values((value,)))


def sum_of_square(value: float) -> Value:
    """Returns the sum of the square of one value."""
    if SQUARE_LEAST <= abs(value) < SQUARE_MOST or not value:
        return split_fixed(int(value * 2.0**FRACTION_BITS) ** 2, None)
    return 0, 0, 0, encode_rest(rest_of_values((value,), 2))


def join_fixed(total: Value) -> int:
    """Returns the fixed part of a sum that is not NULL."""
    units, fraction, fine, _ = total
    joined: int = (((units << FRACTION_BITS) + fraction) << FRACTION_BITS) + fine
    return joined


def split_fixed(fixed: int, rest: bytes | None) -> Value:
    """Returns the sum of a fixed part and a rest. The rest takes what does not fit in the bigints."""
    units = fixed >> FINE_BITS
    if not -_HALF <= units < _HALF:
        above = (units + _HALF) >> 64
        units -= above << 64
        rest = encode_rest((ExactRemainder() if rest is None else decode_rest(rest)).plus(above << (64 + REST_BITS)))
    return units, (fixed >> FRACTION_BITS) & FRACTION_MASK, fixed & FRACTION_MASK, rest


def merge_sums(left: Value, right: Value) -> Value:
    """Returns the sum of two sums, in the form of states."""
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


def total_of(total: Value) -> Total:
    """Returns the exact value of a sum that is not NULL."""
    units, fraction, fine, rest = total
    if rest is not None:
        above = decode_rest(rest)
        return Total((join_fixed(total) << (REST_BITS - FINE_BITS)) + above.units, REST_BITS, above.flags)
    if fine:
        return Total(join_fixed(total), FINE_BITS)
    return Total((units << FRACTION_BITS) + fraction, FRACTION_BITS)
