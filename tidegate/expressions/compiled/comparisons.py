"""Comparison and the tests for NULL and NaN. Polars orders as Spark does: NaN equals NaN and is the greatest number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import polars as pl

from tidegate.expressions.compiled.compiled import Compiled, compiles, eager, strict
from tidegate.expressions.expression import Call, columns_of

_COMPARISONS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


_MIRRORED: dict[str, str] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compared(function: str, left: Compiled, right: Compiled) -> pl.Expr:
    """Compares with a constant on the right: on the left of decimals that are all NULL, Polars returns one row."""
    if columns_of(right.source) and not columns_of(left.source):
        function, left, right = _MIRRORED[function], right, left
    return _COMPARISONS[function](left.value, right.value)


@compiles(*_COMPARISONS)
def _compare(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    left, right = arguments
    return strict(call, arguments, compared(call.function, left, right))


@compiles("<=>")
def _same(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    left, right = arguments if columns_of(arguments[0].source) else reversed(arguments)
    return eager(call, arguments, left.value.eq_missing(right.value))


@compiles("not")
def _not(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, ~arguments[0].value)


@compiles("isnull")
def _is_null(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, arguments[0].value.is_null())


@compiles("isnotnull")
def _is_not_null(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, arguments[0].value.is_not_null())


@compiles("isnan")
def _is_nan(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, arguments[0].value.is_nan().fill_null(False))


@compiles("nanvl")
def _nan_value(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value, other = arguments
    chosen = pl.when(value.value.is_nan()).then(other.value).otherwise(value.value)
    failures = (*value.failures, *(failure.guarded(value.value.is_nan()) for failure in other.failures))
    return Compiled(chosen, call, failures)
