"""Precision and scale of decimals: of literals, common types, and results of operations. Pure.

Source: Spark's `DecimalType`, `DecimalPrecisionTypeCoercion` and `resultDecimalType` of its arithmetic, with
`spark.sql.decimalOperations.allowPrecisionLoss`, which is Spark's default.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

from tidegate.datatypes import EXACT, MAX_PRECISION, DataType, decimal_of, decimal_of_units

_LEAST_SCALE = 6
"""The fractional digits that a result keeps even if its integer digits leave less room."""
_OF_INTEGERS = {"boolean": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def decimal_for(kind: DataType) -> DataType:
    """Returns a decimal that holds every value of an integer type. A decimal is returned unchanged."""
    return kind if kind.kind == "decimal" else decimal_of(_OF_INTEGERS[kind.kind])


def decimal_of_literal(number: Decimal) -> DataType | None:
    """Returns the smallest decimal that holds a number as written (`12.50` has four digits); None beyond 38 digits."""
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale) if scale >= 0 else len(digits) - scale
    return decimal_of(precision, max(0, scale)) if precision <= MAX_PRECISION else None


def wider_decimal(left: DataType, right: DataType) -> DataType:
    """Returns the common type of two decimals. If 38 digits are too few, fractional digits are dropped first."""
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    lost = max(0, digits - MAX_PRECISION)
    return decimal_of(digits - lost, max(0, scale - lost))


def unadjusted(function: str, left: DataType, right: DataType) -> tuple[int, int]:
    """Returns precision and scale that hold every exact result (for `/`, Spark's digits), before the limit of 38."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    match function:
        case "+" | "-":
            scale = max(s1, s2)
            return max(p1 - s1, p2 - s2) + scale + 1, scale
        case "*":
            return p1 + p2 + 1, s1 + s2
        case "/":
            scale = max(_LEAST_SCALE, s1 + p2 + 1)
            return p1 - s1 + s2 + scale, scale
    scale = max(s1, s2)  # % and pmod
    return min(p1 - s1, p2 - s2) + scale, scale


def derive_result(function: str, left: DataType, right: DataType) -> DataType:
    """Returns the type of `+ - * / % pmod` of two decimals."""
    precision, scale = unadjusted(function, left, right)
    if precision <= MAX_PRECISION:
        return decimal_of(precision, scale)
    whole = precision - scale
    return decimal_of(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _LEAST_SCALE)))


def can_overflow(function: str, left: DataType, right: DataType) -> bool:
    """Returns whether some result may not fit its type; for `pmod`, these are results that are close to the divisor."""
    return function == "pmod" or unadjusted(function, left, right)[0] > MAX_PRECISION


def derive_rounded(kind: DataType, digits: int) -> DataType:
    """Returns the type of a decimal rounded to a number of fractional digits; negative for tens, hundreds ..."""
    whole = kind.precision - kind.scale + 1
    if digits < 0:
        return decimal_of(min(MAX_PRECISION, max(whole, 1 - digits)))
    scale = min(kind.scale, digits)
    return decimal_of(min(MAX_PRECISION, whole + scale), scale)


def derive_whole(kind: DataType) -> DataType:
    """Returns the type of `floor` and `ceil`."""
    return kind if kind.scale == 0 else decimal_of(min(MAX_PRECISION, kind.precision - kind.scale + 1))


def decimal_cast_can_fail(source: DataType, target: DataType) -> bool:
    """Returns whether a decimal or integer may not fit into a decimal. Rounding may add a leading digit."""
    source = decimal_for(source)
    if source == decimal_of(20):  # a bigint has 19
        source = decimal_of(19)
    rounds = source.scale > target.scale
    return source.precision - source.scale + rounds > target.precision - target.scale


def fitted(number: Decimal, kind: DataType) -> Decimal | None:
    """Returns the number in a decimal type, rounded half away from zero; None if it does not fit."""
    if not number or number.adjusted() < -MAX_PRECISION - 1:
        number = Decimal(0)
    if number.adjusted() >= MAX_PRECISION:
        return None
    rounded = number.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    if rounded.copy_abs() >= Decimal(1).scaleb(kind.precision - kind.scale):
        return None
    return rounded or rounded.copy_abs()


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
        raise OverflowError(f"the average does not fit into {result}")
    return decimal_of_units(rounded, result.scale)


def round_half_up(numerator: int, denominator: int) -> int:
    """Returns the nearest integer to the fraction; ties are rounded away from 0."""
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return -rounded if numerator < 0 else rounded
