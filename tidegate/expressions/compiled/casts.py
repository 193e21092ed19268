"""CAST and TRY_CAST in ANSI mode."""

from __future__ import annotations

import polars as pl

from tidegate.datatypes import DATE, FIRST_MOMENT, LAST_MOMENT, DataType
from tidegate.expressions.compiled.arithmetic import FRACTIONAL, LIMITS, exact_quotient
from tidegate.expressions.compiled.calendar import within_calendar
from tidegate.expressions.compiled.compiled import Compiled, FailingRows
from tidegate.expressions.compiled.decimal_casts import decimal_of, of_decimal, to_decimal
from tidegate.expressions.compiled.json_text import java_double
from tidegate.expressions.compiled.time_text import date_of_text, text_of_timestamp, timestamp_of_text
from tidegate.expressions.expression import Cast, cast_can_fail
from tidegate.expressions.text_values import BLANKS, DOUBLE, FALSE, INFINITE, INTEGER, JAVA_BLANKS, SIGNED_NAN, TRUE
from tidegate.formats.columns import TIMESTAMP, polars_type
from tidegate.formats.failures import FailureKind

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
