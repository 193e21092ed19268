"""Sums and averages of decimals: Spark's result types, and its division. Pure."""

from __future__ import annotations

from decimal import Decimal

from tidegate.datatypes import MAX_PRECISION, DataType, decimal_of, decimal_of_units


def derive_sum_type(kind: DataType) -> DataType:
    """The type of a sum of decimals: ten digits more, as in Spark."""
    return decimal_of(min(MAX_PRECISION, kind.precision + 10), kind.scale)


def derive_average_type(kind: DataType) -> DataType:
    """The type of an average of decimals: four digits more after the point, as in Spark."""
    return decimal_of(min(MAX_PRECISION, kind.precision + 4), min(MAX_PRECISION, kind.scale + 4))


def divide_average(units: int, scale: int, count: int, result: DataType) -> Decimal:
    """A sum of `units` of the scale, divided by the number of its values, rounded half up to the digits of the result,
    once, as Spark 4 does. Raises OverflowError.
    """
    rounded = round_half_up(units * 10 ** (result.scale - scale), count)
    if not -(10**result.precision) < rounded < 10**result.precision:
        raise OverflowError(f"an average leaves the range of {result}")
    return decimal_of_units(rounded, result.scale)


def round_half_up(numerator: int, denominator: int) -> int:
    """The nearest whole number to the fraction, of two as near the one that is further from 0."""
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return -rounded if numerator < 0 else rounded
