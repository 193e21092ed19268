"""Results that are larger than their arguments: a record whose result would be too large fails before it is built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import polars as pl

from tidegate.expressions.bounds import MAX_VALUE_BYTES
from tidegate.expressions.compiled.compiled import Compiled, FailingRows
from tidegate.expressions.expression import Call
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.sizes import size_of


def fitting(
    source: Call,
    arguments: Sequence[Compiled],
    size: pl.Expr,
    build: Callable[[Sequence[Compiled]], Compiled],
    masked: Sequence[int] = (0,),
) -> Compiled:
    """Compiles a call whose result has at most `MAX_VALUE_BYTES`. A record with a larger result fails, and nothing is
    computed.

    `size`: bytes of the result, NULL if the result is NULL. `masked`: the arguments to set to NULL so that nothing is
    computed; one is enough if its NULL makes the result NULL.
    """
    large = size > MAX_VALUE_BYTES
    fits = large.ne_missing(True)  # if the size is unknown, an argument after the first may fail
    inputs = list(arguments)
    for index in masked:
        inputs[index] = replace(arguments[index], value=pl.when(fits).then(arguments[index].value))
    built = build(inputs)
    failures = (*built.failures, FailingRows.of(FailureKind.RESULT_TOO_LARGE, source, large))
    return replace(built, failures=failures)


def bytes_of(argument: Compiled) -> pl.Expr:
    """Returns the size in bytes of text, bytes or a nested value; 0 for other types, and NULL for any NULL."""
    if isinstance(argument.constant, str):
        return pl.lit(len(argument.constant.encode()), pl.Int64)
    size = size_of(argument.value, polars_type(argument.type))
    return pl.when(argument.value.is_not_null()).then(pl.lit(0, pl.Int64)) if size is None else size


def total_bytes(arguments: Sequence[Compiled], *, nulls_count: bool) -> pl.Expr:
    """Returns the total size of the arguments; NULL if one is NULL. With `nulls_count`, a NULL counts as 0 instead."""
    sizes = [bytes_of(argument) for argument in arguments]
    return reduce(add, [size.fill_null(0) for size in sizes] if nulls_count else sizes)
