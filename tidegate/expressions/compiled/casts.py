"""CAST and TRY_CAST in ANSI mode."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal

import polars as pl

from tidegate.datatypes import DATE, FIRST_MOMENT, LAST_MOMENT, MAX_PRECISION, DataType
from tidegate.expressions.compiled.calendar import date_of_text, text_of_timestamp, timestamp_of_text, within_calendar
from tidegate.expressions.compiled.compiled import Compiled, FailingRows, strict
from tidegate.expressions.compiled.decimals import (
    below,
    even_over_power,
    integer,
    over_power,
    packed,
    rescaled,
    signed,
    truncated_over_power,
    unscaled,
)
from tidegate.expressions.compiled.json_text import java_double
from tidegate.expressions.compiled.operators import FRACTIONAL, LIMITS, exact_quotient
from tidegate.expressions.decimal_types import fitted
from tidegate.expressions.expression import Call, Cast, cast_can_fail
from tidegate.expressions.text_values import (
    BLANKS,
    DOUBLE,
    FALSE,
    INFINITE,
    INTEGER,
    JAVA_BLANKS,
    SIGNED_NAN,
    TRUE,
    decimal_of_text,
)
from tidegate.formats.columns import TIMESTAMP, polars_type
from tidegate.formats.failures import FailureKind

_EXACT_DIGITS = 15
"""Integers and powers of ten with up to this many digits are exact as doubles, so their quotient is rounded once."""
_FRACTIONAL = ("float", "double")
_SCALA = Context(prec=34, rounding=ROUND_HALF_EVEN)
"""The precision with which Spark multiplies when it casts to a timestamp."""
_PLAIN = r"^(?P<g>[+-]?)(?P<w>[0-9]{1,20})(?:\.(?P<f>[0-9]*))?$"
_PLAIN_DIGITS = 38
_MICROS_SCALE = 6
"""The fractional digits of the seconds of a timestamp."""
_MICROS_DIGITS = 28
"""A decimal with up to this many digits, times a million, fits the precision of `_SCALA`."""


def to_decimal(cast: Cast, operand: Compiled, value: pl.Expr) -> Compiled:
    """Compiles the cast to a decimal, with its failures: text that is not a number, and numbers that do not fit.

    NaN and the infinities become NULL, as in Spark.
    """
    source, failures = operand.type, operand.failures
    if cast.attempt or not cast_can_fail(source, cast.type):
        return Compiled(value, cast, failures)
    lost = value.is_null() & operand.value.is_not_null()
    if source.kind in _FRACTIONAL:
        lost = lost & operand.value.is_finite()
    own = [FailingRows.of(FailureKind.NUMERIC_VALUE_OUT_OF_RANGE, cast, lost)]
    if source.kind == "string":
        no_number = operand.value.map_batches(_no_number, return_dtype=pl.Boolean, is_elementwise=True)
        own.insert(0, FailingRows.of(FailureKind.CAST_INVALID_INPUT, cast, lost & no_number))
    return Compiled(value, cast, (*failures, *own))


def decimal_of(value: pl.Expr, source: DataType, target: DataType) -> pl.Expr:
    """Converts a number, a boolean, a timestamp or text to a decimal."""
    if source.kind == "decimal":
        return rescaled(unscaled(value), source.scale, target)
    if source.kind == "timestamp":
        return rescaled(value.cast(pl.Int64).cast(pl.Int128), _MICROS_SCALE, target)
    if source.kind in _FRACTIONAL:  # by its shortest text, as in Java
        return _of_text(value.cast(pl.Float64).cast(pl.String), target)
    if source.kind == "string":
        return _of_text(value, target)
    return rescaled(value.cast(pl.Int128), 0, target)


def _of_text(text: pl.Expr, target: DataType) -> pl.Expr:
    return text.map_batches(_Reader(target), return_dtype=polars_type(target), is_elementwise=True)


class _Reader:
    """Reader of text as decimals; NULL if it is not a number or does not fit. Unusual numbers are read one by one."""

    def __init__(self, target: DataType) -> None:
        self._target = target
        self._dtype = polars_type(target)
        self._read = _plain_number(pl.col("s"), target)

    def __call__(self, texts: pl.Series) -> pl.Series:
        frame = texts.to_frame("s").select("s", self._read.alias("r"))
        found = frame["r"]
        odd = (found.is_null() & texts.is_not_null()).arg_true()
        if not len(odd):
            return found
        others = [self._one(text) for text in texts.gather(odd)]
        return found.scatter(odd, pl.Series(others, dtype=self._dtype))

    def _one(self, text: str) -> Decimal | None:
        number = decimal_of_text(text)
        return None if number is None else fitted(number, self._target)


def _plain_number(text: pl.Expr, target: DataType) -> pl.Expr:
    """Reads plain numbers without exponent and with few digits; NULL for any other text.

    The first digit that is dropped determines the rounding half away from zero.
    """
    kept = target.scale + 1
    groups = text.str.extract_groups(_PLAIN)
    fraction = groups.struct.field("f").fill_null("").str.slice(0, kept).str.pad_end(kept, "0")
    digits = pl.concat_str(groups.struct.field("w"), fraction)
    size = over_power(pl.when(digits.str.len_bytes() <= _PLAIN_DIGITS).then(digits).cast(pl.Int128, strict=False), 1)
    return packed(signed(size, groups.struct.field("g") == "-"), target)


def _no_number(texts: pl.Series) -> pl.Series:
    """Returns whether text is not a number. Only text that is not a plain number is checked one by one."""
    odd = ~texts.str.contains(_PLAIN)
    if not odd.any():
        return odd
    found = [decimal_of_text(text) is None for text in texts.filter(odd)]
    return odd.scatter(odd.arg_true(), pl.Series(found, dtype=pl.Boolean))


def of_decimal(value: pl.Expr, source: DataType, target: DataType) -> pl.Expr:
    """Converts a decimal to a type that is not decimal."""
    dtype = polars_type(target)
    match target.kind:
        case "string":
            return value.cast(pl.String)
        case "boolean":
            return unscaled(value) != 0
        case "timestamp":
            return _moment(value, source)
        case "double" if source.precision <= _EXACT_DIGITS:
            return exact_quotient(unscaled(value).cast(pl.Float64), pl.lit(10.0**source.scale))
        case "float" | "double":
            return value.cast(pl.String).cast(dtype)
    return truncated_over_power(unscaled(value), source.scale).cast(dtype, strict=False)


def _moment(value: pl.Expr, source: DataType) -> pl.Expr:
    """Converts a number of seconds since 1970, truncated to microseconds."""
    if source.precision > _MICROS_DIGITS:
        return value.map_batches(_moments, return_dtype=TIMESTAMP, is_elementwise=True)
    micros = truncated_over_power(unscaled(value) * integer(1_000_000), source.scale)
    return pl.when(micros.is_between(FIRST_MOMENT, LAST_MOMENT)).then(micros).cast(pl.Int64).cast(TIMESTAMP)


def _moments(values: pl.Series) -> pl.Series:
    micros = [None if one is None else int(_SCALA.multiply(one, Decimal(1_000_000))) for one in values]
    inside = [one if one is not None and FIRST_MOMENT <= one <= LAST_MOMENT else None for one in micros]
    return pl.Series(inside, dtype=pl.Int64).cast(TIMESTAMP)


def rounded_decimal(call: Call, operand: Compiled, digits: int) -> Compiled:
    """Compiles `round` and `bround` to fractional digits, or to tens if `digits` is negative."""
    source, kind, number = operand.type, call.type, unscaled(operand.value)
    without = even_over_power if call.function == "bround" else over_power
    lost = source.scale - digits
    if lost <= 0:
        value = rescaled(number, source.scale, kind)
    elif digits >= 0:
        value = packed(without(number, lost), kind)
    else:
        tens = below(without(number, lost), kind.precision + digits)
        value = (tens * integer(10**-digits)).reinterpret(dtype=polars_type(kind))
    if kind.precision < MAX_PRECISION:
        return strict(call, [operand], value)
    outside = value.is_null() & operand.value.is_not_null()
    return strict(call, [operand], value, (FailureKind.NUMERIC_VALUE_OUT_OF_RANGE, outside))


def decimal_to_whole(value: pl.Expr, source: DataType, kind: DataType, function: str) -> pl.Expr:
    """Computes `floor` and `ceil`. A decimal with 38 integer digits has no fractional digits."""
    number, power = unscaled(value), integer(10**source.scale)
    whole = number // power if function == "floor" else integer(0) - (integer(0) - number) // power
    return packed(whole, kind)


_SECOND = 1_000_000


def compile_cast(cast: Cast, operand: Compiled) -> Compiled:
    """Compiles a cast. A value without counterpart fails its record or, with TRY_CAST, becomes NULL."""
    source, target = operand.type, cast.type
    if operand.is_null_literal or source.kind == "void":
        return Compiled(pl.lit(None, polars_type(target)), cast, operand.failures)
    value = converted(operand.value, source, target)
    if target.kind == "decimal":
        return to_decimal(cast, operand, value)
    if cast.attempt or not cast_can_fail(source, target):
        return Compiled(value, cast, operand.failures)
    kind = FailureKind.CAST_INVALID_INPUT if source.kind in ("string", "binary") else FailureKind.CAST_OVERFLOW
    lost = value.is_null() & operand.value.is_not_null()
    return Compiled(value, cast, (*operand.failures, FailingRows.of(kind, cast, lost)))


def converted(value: pl.Expr, source: DataType, target: DataType) -> pl.Expr:
    """Returns the value in another type; NULL if it has no counterpart."""
    before, after, kind = source.kind, target.kind, polars_type(target)
    if source.element is not None and target.element is not None:
        return value.list.eval(converted(pl.element(), source.element, target.element))
    if after == "decimal":
        return decimal_of(value, source, target)
    if before == "decimal":
        return of_decimal(value, source, target)
    if before == "string":
        return _from_text(value, after, kind)
    if after == "string":
        return _to_text(value, source)
    if after == "boolean":
        return value != 0
    if {before, after} == {"timestamp", "timestamp_ntz"}:
        return value.to_physical().cast(kind)
    if after == "timestamp" and before != "date":
        return _moment_of_number(value, before)
    if before == "timestamp" and after != "date":
        return _number_of_moment(value, after).cast(kind, strict=False)
    return value.cast(kind, strict=False)


def _moment_of_number(value: pl.Expr, before: str) -> pl.Expr:
    """Converts a number of seconds since 1970."""
    if before in FRACTIONAL:
        micros = value.cast(pl.Float64) * float(_SECOND)
        return (
            pl.when((micros >= float(FIRST_MOMENT)) & (micros < float(LAST_MOMENT)))
            .then(micros.cast(pl.Int64, strict=False))
            .cast(TIMESTAMP)
        )
    seconds = value.cast(pl.Int64)
    inside = seconds.is_between(FIRST_MOMENT // _SECOND, LAST_MOMENT // _SECOND)
    return pl.when(inside).then(seconds * _SECOND).cast(TIMESTAMP)


def _number_of_moment(value: pl.Expr, after: str) -> pl.Expr:
    micros = value.cast(pl.Int64)
    return exact_quotient(micros.cast(pl.Float64), pl.lit(float(_SECOND))) if after in FRACTIONAL else micros // _SECOND


def _to_text(value: pl.Expr, source: DataType) -> pl.Expr:
    if source.kind == "boolean":
        return pl.when(value).then(pl.lit("true")).when(~value).then(pl.lit("false"))
    if source == DATE:
        return within_calendar(value, source)[0].dt.to_string("%Y-%m-%d")
    if source.kind in ("timestamp", "timestamp_ntz"):
        return text_of_timestamp(within_calendar(value, source)[0])
    if source.kind in FRACTIONAL:
        return value.map_batches(_java_texts, return_dtype=pl.String, is_elementwise=True)
    if source.kind == "binary":
        return value.map_batches(_texts_of_bytes, return_dtype=pl.String, is_elementwise=True)
    return value.cast(pl.String, strict=False)


def _texts_of_bytes(values: pl.Series) -> pl.Series:
    """Decodes UTF-8, with NULL for other bytes. If Polars raises for the column, its values are decoded one by one."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series([None if value is None else _text_of_bytes(value) for value in values], dtype=pl.String)


def _text_of_bytes(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _java_texts(numbers: pl.Series) -> pl.Series:
    """Formats doubles as Java does: `1.0E10`, `Infinity`. Between 0.001 and 10 million, Polars writes the same."""
    texts = numbers.cast(pl.String)
    size = numbers.abs()
    other = ~((size >= 1e-3) & (size < 1e7) | (size == 0) | size.is_nan())
    if not other.any():
        return texts
    return pl.Series(
        [java_double(number, text) if odd else text for number, text, odd in zip(numbers, texts, other, strict=True)],
        dtype=pl.String,
    )


def _from_text(value: pl.Expr, after: str, kind: pl.DataType) -> pl.Expr:
    if after == "binary":
        return value.cast(kind)
    if after in FRACTIONAL:
        return _double_of_text(value.str.strip_chars(JAVA_BLANKS), kind)
    text = value.str.strip_chars(BLANKS)
    if after in LIMITS:
        return pl.when(text.str.contains(INTEGER)).then(text.str.strip_prefix("+")).cast(kind, strict=False)
    if after == "boolean":
        lower = text.str.to_lowercase()
        true, false = (lower.is_in(pl.Series(words).implode()) for words in (TRUE, FALSE))
        return pl.when(true).then(pl.lit(True)).when(false).then(pl.lit(False))
    return date_of_text(text) if after == "date" else timestamp_of_text(text, zone=after == "timestamp")


def _double_of_text(text: pl.Expr, kind: pl.DataType) -> pl.Expr:
    lower = text.str.to_lowercase()
    digits = pl.when(text.str.contains(DOUBLE)).then(text.str.strip_chars_end("dDfF").str.strip_prefix("+"))
    infinite = (
        pl.when(lower.str.starts_with("-")).then(pl.lit(float("-inf"), kind)).otherwise(pl.lit(float("inf"), kind))
    )
    return (
        pl.when(lower.str.contains(INFINITE))
        .then(infinite)
        .when((lower == "nan") | text.is_in(pl.Series(SIGNED_NAN).implode()))
        .then(pl.lit(float("nan"), kind))
        .otherwise(digits.cast(kind, strict=False))
    )
