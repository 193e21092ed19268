"""Compiled expressions applied to a frame: `Projection` for select, `Predicate` for where.

The common case is one pass. The conditions are evaluated one by one only if a batch contains a failing record.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from tidegate.expressions.compiled.compiled import Compiled, FailingRows
from tidegate.expressions.compiled.compiler import Compiler
from tidegate.expressions.expression import Expression, columns_of
from tidegate.formats.failures import FailureKind, RecordFailure

_FAILED = "__tidegate_failed"
_VALUE = "__tidegate_value"


class Projection:
    """Columns that are computed together from the columns of a frame."""

    def __init__(self, names: Sequence[str], compiled: Sequence[Compiled], stages: Sequence[Sequence[pl.Expr]]) -> None:
        self._stages = stages
        self._values = [one.value.alias(name) for name, one in zip(names, compiled, strict=True)]
        self._failures = [failure for one in compiled for failure in one.failures]
        self._only_constants = not any(columns_of(one.source) for one in compiled)
        self._row_count = [pl.int_range(pl.len(), dtype=pl.UInt32).alias(_VALUE)] if self._only_constants else []
        self._failed = _any_failed(self._failures)

    @property
    def failures(self) -> tuple[tuple[FailureKind, str], ...]:
        """Kind and message of every failure that a row can have."""
        return tuple(dict.fromkeys((failure.kind, failure.message) for failure in self._failures))

    def apply(self, frame: pl.DataFrame, keep: Sequence[str] = ()) -> tuple[pl.DataFrame, list[RecordFailure]]:
        """Returns the new columns of every row that can be evaluated, and the rows that cannot.

        `keep`: columns of `frame` that are passed on before the new ones.
        """
        frame = staged(frame, self._stages)
        found = frame.select_seq(*keep, *self._values, *self._failed, *self._row_count)
        if self._only_constants:
            found = found.drop(_VALUE)
        if not self._failed:
            return found, []
        failed = found.drop_in_place(_FAILED)
        if not failed.any():
            return found, []
        return found.filter(~failed.fill_null(False)), locate(frame, self._failures)


class Predicate:
    """A condition on the rows of a frame."""

    def __init__(self, compiled: Compiled, stages: Sequence[Sequence[pl.Expr]]) -> None:
        self._stages = stages
        self._value = compiled.value
        self._failures = list(compiled.failures)
        self._failed = _any_failed(self._failures)

    def apply(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        """Returns the rows for which the condition is true, and the rows for which it cannot be evaluated."""
        if not self._failed and not self._stages:
            return frame.filter(self._value), []
        full = staged(frame, self._stages)
        found = full.select(self._value.alias(_VALUE), *self._failed, pl.int_range(pl.len()).alias("__tidegate_row"))
        if not self._failed:
            return frame.filter(found[_VALUE]), []
        failed = found[_FAILED]
        if not failed.any():
            return frame.filter(found[_VALUE]), []
        return frame.filter(found[_VALUE] & ~failed.fill_null(False)), locate(full, self._failures)


def compile_projection(columns: Sequence[tuple[str, Expression]]) -> Projection:
    """Compiles named expressions once, to be applied to every frame."""
    compiler = Compiler()
    compiled = [compiler.compile(expression) for _, expression in columns]
    return Projection([name for name, _ in columns], compiled, compiler.stages)


def compile_predicate(expression: Expression) -> Predicate:
    """Compiles a boolean expression once, to be applied to every frame."""
    compiler = Compiler()
    compiled = compiler.compile(expression)
    return Predicate(compiled, compiler.stages)


def staged(frame: pl.DataFrame, stages: Sequence[Sequence[pl.Expr]]) -> pl.DataFrame:
    """Adds the columns that the expressions share to the frame."""
    for stage in stages:
        frame = frame.with_columns(stage)
    return frame


def _any_failed(failures: Sequence[FailingRows]) -> list[pl.Expr]:
    """Returns no expression if nothing can fail, to avoid its cost."""
    if not failures:
        return []
    return [pl.any_horizontal([failure.condition for failure in failures]).alias(_FAILED)]


def locate(frame: pl.DataFrame, failures: Sequence[FailingRows]) -> list[RecordFailure]:
    """Returns the failing rows in order, each with the first failure that Spark would encounter."""
    rows: dict[int, RecordFailure] = {}
    masks = frame.select(
        *(failure.condition.alias(str(index)) for index, failure in enumerate(failures)),
        pl.int_range(pl.len()).alias("__tidegate_row"),
    )
    for index, failure in enumerate(failures):
        for row in masks[str(index)].fill_null(False).arg_true():
            rows.setdefault(row, failure.failure(row))
    return [rows[row] for row in sorted(rows)]
