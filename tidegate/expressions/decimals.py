"""Sums and averages of decimals: Spark's result types and division. Pure."""

from __future__ import annotations

from decimal import Decimal

from tidegate.datatypes import MAX_PRECISION, DataType, decimal_of, decimal_of_units


def derive_sum_type(kind: DataType) -> DataType:
    """Returns the type of a sum of decimals: ten more digits, as in Spark."""
    return decimal_of(min(MAX_PRECISION, kind.precision + 10), kind.scale)


def derive_average_type(kind: DataType) -> DataType:
    """Returns the type of an average of decimals: four more fractional digits, as in Spark."""
    return decimal_of(min(MAX_PRECISION, kind.precision + 4), min(MAX_PRECISION, kind.scale + 4))


def divide_average(units: int, scale: int, count: int, result: DataType) -> Decimal:
    """Divides a sum of `units` of the scale by the number of values. The result is rounded half up to its scale in one
    step, as in Spark 4. Raises OverflowError.
    """
    rounded = round_half_up(units * 10 ** (result.scale - scale), count)
    if not -(10**result.precision) < rounded < 10**result.precision:
        raise OverflowError(f"an average leaves the range of {result}")
    return decimal_of_units(rounded, result.scale)


def round_half_up(numerator: int, denominator: int) -> int:
    """Returns the nearest integer to the fraction; ties are rounded away from 0."""
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return -rounded if numerator < 0 else rounded
