"""Functions that Polars lacks: a Python function is called row by row, which is slow (a microsecond or two per row).

The function gets the plain values of a row, none of which is NULL, and raises `RowFailed` if the record fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import polars as pl

from tidegate.expressions.bounds import MAX_VALUE_BYTES
from tidegate.expressions.compiled.compiled import Compiled, FailingRows, failure_text, sequence
from tidegate.expressions.expression import Call
from tidegate.formats.columns import make_series, physical_type, polars_type
from tidegate.formats.failures import FailureKind

Evaluate = Callable[..., Any]


class RowFailed(Exception):
    """A row whose record fails. Raised by an `Evaluate`."""

    def __init__(self, kind: FailureKind) -> None:
        super().__init__(kind)
        self.kind = kind


def by_row(
    call: Call, arguments: Sequence[Compiled], evaluate: Evaluate, *kinds: FailureKind, needed: int | None = None
) -> Compiled:
    """Compiles a call that is NULL if one of `arguments` is NULL, and otherwise the result of `evaluate`.

    Dates, timestamps and intervals are passed and returned as numbers. `kinds`: the failures that `evaluate` may raise;
    without any, it raises none. `needed`: only this many arguments, from the left, make the result NULL; `evaluate`
    gets None for the others.
    """
    needed = len(arguments) if needed is None else needed
    rows = pl.struct([one.value.alias(str(index)) for index, one in enumerate(arguments)])
    result = polars_type(call.type)
    if kinds:
        apply = partial(_outcomes, evaluate=evaluate, kinds=kinds, result=result, needed=needed)
        both = pl.Struct({"value": result, "failure": pl.UInt8})
        value = rows.map_batches(apply, return_dtype=both, is_elementwise=True)
        texts = tuple((kind, failure_text(kind, call)) for kind in kinds)
        return Compiled(value, call, _failures(arguments, needed), texts)
    plain = partial(_values, evaluate=evaluate, result=result, needed=needed)
    value = rows.map_batches(plain, return_dtype=result, is_elementwise=True)
    return Compiled(value, call, _failures(arguments, needed))


def _failures(arguments: Sequence[Compiled], needed: int) -> tuple[FailingRows, ...]:
    """Returns the failures of the arguments. Those after the needed ones are all evaluated, even if some are NULL."""
    first = sequence(arguments[:needed])
    others = (sequence([*arguments[:needed], one])[len(first) :] for one in arguments[needed:])
    return (*first, *chain.from_iterable(others))


def plain_lists(rows: pl.Series) -> list[list[Any]]:
    """Returns the fields of a column of structs as Python values, including nested ones. Times are numbers."""
    return [plain_values(rows.struct.field(name)) for name in rows.struct.fields]


def plain_values(column: pl.Series) -> list[Any]:
    """Returns a column as Python values. Times are numbers."""
    plain = physical_type(column.dtype)
    return (column if plain == column.dtype else column.cast(plain)).to_list()


def within_limit(size_bytes: int) -> None:
    """Raises `RowFailed` for a result that is too large."""
    if size_bytes > MAX_VALUE_BYTES:
        raise RowFailed(FailureKind.RESULT_TOO_LARGE)


def text_within_limit(text: str) -> None:
    """Raises `RowFailed` for a text that is too large. Its bytes are counted only if there could be too many."""
    if 4 * len(text) > MAX_VALUE_BYTES:
        within_limit(len(text.encode("utf-8", "surrogatepass")))


def _values(rows: pl.Series, *, evaluate: Evaluate, result: pl.DataType, needed: int) -> pl.Series:
    columns = plain_lists(rows)
    found = [None if None in row[:needed] else evaluate(*row) for row in zip(*columns, strict=True)]
    return make_series("", result, found)


def _outcomes(
    rows: pl.Series, *, evaluate: Evaluate, kinds: tuple[FailureKind, ...], result: pl.DataType, needed: int
) -> pl.Series:
    values: list[Any] = []
    failures: list[int | None] = []
    for row in zip(*plain_lists(rows), strict=True):
        value, failure = None, None
        if None not in row[:needed]:
            try:
                value = evaluate(*row)
            except RowFailed as failed:
                failure = kinds.index(failed.kind)
        values.append(value)
        failures.append(failure)
    return outcome_series(make_series("", result, values), failures)


def outcome_series(values: pl.Series, failures: Sequence[int | None]) -> pl.Series:
    """Returns the struct that `Compiled.outcomes` describes."""
    both = pl.DataFrame([values.alias("value"), pl.Series("failure", failures, dtype=pl.UInt8)])
    return both.to_struct("")
