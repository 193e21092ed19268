"""The compiler from typed expressions to `Compiled`: columns, literals, and the stages in which parts are computed.

The functions are in the other modules of this package, one per family, as in `functions`. Each module
registers its functions in `COMPILERS`. `Projection` (for select) and `Predicate` (for where) apply compiled expressions
to a frame in one pass. Only if a batch contains a failing record are the conditions evaluated one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled.casts import compile_cast
from tidegate.expressions.compiled.compiled import COMPILERS, Compiled, FailingRows
from tidegate.expressions.expression import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    FieldAccess,
    Lambda,
    Literal,
    columns_of,
)
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure

MAX_INLINE_USES = 2
_WIDENING = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


class Compiler:
    """Compiler of expressions that are evaluated together on one frame.

    Polars evaluates a subexpression as often as an expression mentions it, which multiplies in nested functions. A part
    that its function mentions more than `MAX_INLINE_USES` times therefore becomes a column of its own. `stages` are
    these columns. They are added to the frame stage by stage before the results are computed.
    """

    def __init__(self) -> None:
        self.stages: list[list[pl.Expr]] = []
        self._bound: dict[tuple[str, Expression], tuple[Compiled, int]] = {}

    def compile(self, expression: Expression) -> Compiled:
        """Compiles a typed expression, which must come from `parse_expression`."""
        return self._staged(expression)[0]

    def _staged(self, expression: Expression) -> tuple[Compiled, int]:
        """Returns the compiled expression and the number of stages that must run before it."""
        match expression:
            case Literal(value=value, type=kind):
                return Compiled(_literal(value, kind), expression), 0
            case ColumnReference(name=name):
                return Compiled(column_named(name), expression), 0
            case FieldAccess(base=base, name=name):
                inner, stage = self._staged(base)
                return Compiled(inner.value.struct.field(name), expression, inner.failures), stage
            case Cast(operand=operand):
                return self._assembled([operand], lambda parts: compile_cast(expression, parts[0]))
            case Call(function=function, arguments=arguments):
                plain = [one for one in arguments if not isinstance(one, Lambda)]
                return self._assembled(plain, lambda parts: COMPILERS[function](expression, parts))
        raise TypeError(f"{type(expression).__name__} has no value of its own")

    def _assembled(
        self, arguments: Sequence[Expression], build: Callable[[Sequence[Compiled]], Compiled]
    ) -> tuple[Compiled, int]:
        parts = [self._staged(argument) for argument in arguments]
        probes = [
            part if _is_cheap(part.source) else replace(part, value=pl.col(f"__tidegate_probe_{index}"))
            for index, (part, _) in enumerate(parts)
        ]
        if any(probe is not part for probe, (part, _) in zip(probes, parts, strict=True)):
            uses = Counter(_mentioned(build(probes)))
            for index, (part, stage) in enumerate(parts):
                if uses[f"__tidegate_probe_{index}"] > MAX_INLINE_USES:
                    parts[index] = self._bind(part, stage)
        built = build([part for part, _ in parts])
        stage = max((stage for _, stage in parts), default=0)
        constant = not columns_of(built.source)
        if built.outcomes:
            built, stage = self._opened(built, stage, constant=constant)
        if constant:
            built = _folded(built)
        return built, stage

    def _opened(self, built: Compiled, stage: int, *, constant: bool) -> tuple[Compiled, int]:
        """Splits a value and its outcomes, which are computed in a column of their own."""
        if constant:
            one = pl.select(built.value.alias("one"))["one"].struct.unnest()
            value, failure = (pl.lit(one[name]).first() for name in ("value", "failure"))
        else:
            (both, stage) = self._bind(replace(built, outcomes=()), stage, of="outcome")
            value, failure = (both.value.struct.field(name) for name in ("value", "failure"))
        own = (FailingRows(failure == index, kind, text) for index, (kind, text) in enumerate(built.outcomes))
        return Compiled(value, built.source, (*built.failures, *own)), stage

    def _bind(self, part: Compiled, stage: int, of: str = "value") -> tuple[Compiled, int]:
        """Turns a part into a column, which other expressions with the same part share."""
        key = (of, part.source)
        if key not in self._bound:
            name = f"__tidegate_part_{len(self._bound)}"
            while len(self.stages) <= stage:
                self.stages.append([])
            self.stages[stage].append(part.value.alias(name))
            self._bound[key] = replace(part, value=pl.col(name)), stage + 1
        return self._bound[key]


def _folded(compiled: Compiled) -> Compiled:
    """Evaluates a constant expression now: one value, and the failure that every record will have, if any.

    Polars cannot repeat the result of a Python function of a constant over a frame.
    """
    conditions = [failure.condition.alias(str(index)) for index, failure in enumerate(compiled.failures)]
    row = pl.select(compiled.value.alias("value"), *conditions)
    met = [failure for index, failure in enumerate(compiled.failures) if row[str(index)].item()]
    failures = tuple(replace(failure, condition=pl.lit(True)) for failure in met[:1])
    if row["value"].dtype.is_nested():
        return replace(compiled, value=pl.lit(row["value"]).first(), failures=failures)
    physical, dtype = row["value"].to_physical(), row["value"].dtype
    value = pl.lit(physical.item(), physical.dtype)
    value = value.reinterpret(dtype=dtype) if isinstance(dtype, pl.Decimal) else value.cast(dtype)
    return replace(compiled, value=value, failures=failures)


def _is_cheap(expression: Expression) -> bool:
    """Returns whether evaluating the expression again costs almost nothing: a column, a constant, a widened number."""
    if not columns_of(expression):
        return True
    match expression:
        case FieldAccess(base=base):
            return _is_cheap(base)
        case Cast(operand=operand, type=kind):
            return _is_cheap(operand) and {operand.type.kind, kind.kind} <= _WIDENING
        case Call():
            return False
    return True


def _mentioned(compiled: Compiled) -> Iterator[str]:
    """Yields the columns that a compiled expression reads, each as often as it is read."""
    yield from compiled.value.meta.root_names()
    for failure in compiled.failures:
        yield from failure.condition.meta.root_names()


def _literal(value: bool | float | str | None, kind: DataType) -> pl.Expr:
    if kind.kind == "binary" and isinstance(value, str):
        return pl.lit(bytes.fromhex(value))
    if kind.kind == "decimal" and value is not None:
        return pl.lit(Decimal(str(value)), polars_type(kind))
    if kind.kind in ("date", "timestamp", "timestamp_ntz", "interval") and value is not None:
        return pl.lit(value, pl.Int32() if kind.kind == "date" else pl.Int64()).cast(polars_type(kind))
    return pl.lit(value, polars_type(kind))


def column_named(name: str) -> pl.Expr:
    """Returns the column of exactly this name."""
    if name == "*" or (name.startswith("^") and name.endswith("$")):  # Polars reads these as patterns
        return pl.selectors.by_name(name).as_expr()
    return pl.col(name)


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
