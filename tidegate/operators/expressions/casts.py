"""CAST and TRY_CAST in ANSI mode."""

from __future__ import annotations

import polars as pl

from tidegate.formats.columns import polars_type
from tidegate.operators.expressions.arithmetic import FRACTIONAL, LIMITS
from tidegate.operators.expressions.compiled import Compiled, Failure, reason
from tidegate.plan.expression import Cast, cast_can_fail

_BLANKS = "".join(map(chr, range(33))) + "\x7f"
INTEGER_TEXT = r"^[+-]?[0-9]+$"
DOUBLE_TEXT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"


def compile_cast(cast: Cast, operand: Compiled) -> Compiled:
    """The operand in the type of the cast; a value without counterpart fails its record or, with TRY_CAST, is NULL."""
    source, target = operand.type, cast.type
    if operand.is_null_literal or source.kind == "void":
        return Compiled(pl.lit(None, polars_type(target)), cast, operand.failures)
    value = _value(operand.value, source.kind, target.kind, cast)
    if not cast_can_fail(source, target) or cast.attempt:
        return Compiled(value, cast, operand.failures)
    error = "CAST_INVALID_INPUT" if source.kind in ("string", "binary") else "CAST_OVERFLOW"
    lost = value.is_null() & operand.value.is_not_null()
    return Compiled(value, cast, (*operand.failures, Failure(lost, reason(error, cast))))


def _value(value: pl.Expr, before: str, after: str, cast: Cast) -> pl.Expr:
    """The cast value; NULL where there is none."""
    kind = polars_type(cast.type)
    if before == "string":
        return _from_text(value, after, kind)
    if before == "boolean" and after == "string":
        return pl.when(value).then(pl.lit("true")).when(~value).then(pl.lit("false"))
    if after == "boolean":
        return value != 0
    return value.cast(kind, strict=False)


def _from_text(value: pl.Expr, after: str, kind: pl.DataType) -> pl.Expr:
    text = value.str.strip_chars(_BLANKS)
    if after in LIMITS:
        return pl.when(text.str.contains(INTEGER_TEXT)).then(text.str.strip_prefix("+")).cast(kind, strict=False)
    if after in FRACTIONAL:
        lower = text.str.to_lowercase()
        number = pl.when(text.str.contains(DOUBLE_TEXT)).then(text.str.strip_chars_end("dDfF")).cast(kind, strict=False)
        infinite = lower.str.contains(r"^[+-]?inf(inity)?$")
        named = pl.when(lower == "nan").then(pl.lit(float("nan"), kind)).otherwise(number)
        sign = (
            pl.when(lower.str.starts_with("-")).then(pl.lit(float("-inf"), kind)).otherwise(pl.lit(float("inf"), kind))
        )
        return pl.when(infinite).then(sign).otherwise(named)
    if after == "boolean":
        lower = text.str.to_lowercase()
        true, false = (
            lower.is_in(pl.Series(words).implode())
            for words in (["t", "true", "y", "yes", "1"], ["f", "false", "n", "no", "0"])
        )
        return pl.when(true).then(pl.lit(True)).when(false).then(pl.lit(False))
    return value.cast(kind, strict=False)
