"""A compiled expression: a Polars expression that never raises, and the conditions under which a record fails.

In ANSI mode, Spark stops a query at a division by zero. Here only the record may fail. Every value is therefore total
(NULL or anything where it has no meaning), and the failure is a separate condition. A condition is guarded by whatever
keeps Spark from evaluating that part: NULL in an earlier argument, or a branch that is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Protocol

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import ELEMENTS_MAX, MAX_VALUE_BYTES
from tidegate.expressions.expression import Call, Cast, Expression, Literal, argument_text, columns_of, text_of
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import size_of

_REASONS = {
    FailureKind.ARITHMETIC_OVERFLOW: "the result is out of range",
    FailureKind.CANNOT_PARSE_TIMESTAMP: "the text does not match the pattern",
    FailureKind.CAST_INVALID_INPUT: "the text cannot be converted",
    FailureKind.CAST_OVERFLOW: "the value is out of range",
    FailureKind.DATETIME_FIELD_OUT_OF_BOUNDS: "the date or time does not exist",
    FailureKind.DATETIME_OVERFLOW: "the result is before the year 1 or after 9999",
    FailureKind.DIVIDE_BY_ZERO: "division by zero",
    FailureKind.INVALID_ARRAY_INDEX: "the array has no element with this index",
    FailureKind.INVALID_ARRAY_INDEX_IN_ELEMENT_AT: "the array has no element with this index",
    FailureKind.INVALID_INDEX_OF_ZERO: "the index is 0, but elements are counted from 1",
    FailureKind.TOO_DEEP: "the JSON text is nested too deeply",
    FailureKind.INVALID_PARAMETER_VALUE: "an argument is out of its range",
    FailureKind.DUPLICATED_MAP_KEY: "the map has a duplicate key",
    FailureKind.NULL_MAP_KEY: "a key of the map is NULL",
    FailureKind.MALFORMED_CHARACTER_CODING: "the text or the bytes do not fit the character set",
    FailureKind.CANNOT_DECODE_URL: "the text is not valid percent-encoding",
    FailureKind.INVALID_URL: "the text is not a URL",
    FailureKind.NUMERIC_VALUE_OUT_OF_RANGE: "the number has too many digits for its decimal type",
    FailureKind.RESULT_TOO_LARGE: f"the result has more than {MAX_VALUE_BYTES >> 20} MiB",
}

_REASONS_OF_CASTS = {
    FailureKind.CAST_INVALID_INPUT: "the value cannot be converted to {}",
    FailureKind.CAST_OVERFLOW: "the value is out of the range of {}",
}
SAFE = {
    FailureKind.INVALID_ARRAY_INDEX: "get",
    FailureKind.INVALID_ARRAY_INDEX_IN_ELEMENT_AT: "try_element_at",
}
"""The function with the same arguments that returns NULL instead of such a failure."""


def failure_text(kind: FailureKind, source: Expression) -> str:
    """Returns the message about a record for which the evaluation of `source` fails."""
    meaning = _REASONS[kind]
    if isinstance(source, Cast):
        meaning = _REASONS_OF_CASTS.get(kind, meaning).format(source.type)
    counted = isinstance(source, Call) and source.function == "sequence"
    if kind is FailureKind.RESULT_TOO_LARGE and counted:
        meaning = f"the array has more than {ELEMENTS_MAX:,} elements"
    text = f"{meaning} in `{text_of(source)}`"
    safe = SAFE.get(kind)
    if safe is None or not isinstance(source, Call):
        return text
    return f"{text}; write `{safe}({argument_text(source, 0)}, {argument_text(source, 1)})` for NULL instead"


@dataclass(frozen=True, slots=True)
class FailingRows:
    """The rows that fail, with a common kind and message. `condition` is true for them, false or NULL for others."""

    condition: pl.Expr
    kind: FailureKind
    message: str

    @classmethod
    def of(cls, kind: FailureKind, source: Expression, condition: pl.Expr) -> FailingRows:
        """Returns the rows for which the evaluation of `source` fails."""
        return cls(condition, kind, failure_text(kind, source))

    def guarded(self, guard: pl.Expr) -> FailingRows:
        """Returns the same failure, restricted to rows for which `guard` is true."""
        return replace(self, condition=guard & self.condition)

    def failure(self, row: int) -> RecordFailure:
        """Returns the failure of one of these rows."""
        return RecordFailure(row, self.kind, self.message)


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that is ready to run. `source` is the expression that was compiled, for constants and messages."""

    value: pl.Expr
    source: Expression
    failures: tuple[FailingRows, ...] = ()
    outcomes: tuple[tuple[FailureKind, str], ...] = ()
    """If there are outcomes, `value` is a struct of `value` and `failure`: the index of the outcome with which a row
    fails, or NULL. The compiler stores the struct in a column and splits it, so that it is computed once."""

    @property
    def type(self) -> DataType:
        """The type of the value."""
        return self.source.type

    @property
    def is_null_literal(self) -> bool:
        """Whether the value is a bare NULL."""
        return isinstance(self.source, Literal) and self.source.value is None

    @property
    def constant(self) -> bool | int | float | str | None:
        """The value of a literal; None if it is not a literal (or is NULL)."""
        return self.source.value if isinstance(self.source, Literal) else None


class CompileCall(Protocol):
    """The compiler of one function, whose arguments have been compiled."""

    def __call__(self, call: Call, arguments: Sequence[Compiled]) -> Compiled:
        """Returns the compiled call."""


COMPILERS: dict[str, CompileCall] = {}
"""By the name in `Call.function`. The other modules of this package fill it."""


def compiles(*names: str) -> Callable[[CompileCall], CompileCall]:
    """Registers a `CompileCall` for these functions."""

    def register(function: CompileCall) -> CompileCall:
        for name in names:
            if name in COMPILERS:
                raise KeyError(f"two compilers for {name}")
            COMPILERS[name] = function
        return function

    return register


def strict(source: Call, arguments: Sequence[Compiled], value: pl.Expr, *own: tuple[FailureKind, pl.Expr]) -> Compiled:
    """Compiles a call that is NULL if an argument is NULL, and evaluates its arguments from the left until one is.

    `own`: kind and condition of each failure of the call itself. A NULL condition counts as false.
    """
    failures = list(sequence(arguments))
    failures += [FailingRows.of(kind, source, condition) for kind, condition in own]
    return Compiled(value, source, tuple(failures))


def plain(functions: Mapping[str, Callable[..., pl.Expr]]) -> None:
    """Registers functions that are NULL if an argument is NULL, and cannot fail, by their expressions of the values."""
    for name, function in functions.items():
        compiles(name)(partial(_plain, function))


def _plain(function: Callable[..., pl.Expr], call: Call, arguments: Sequence[Compiled]) -> Compiled:
    first, *others = arguments
    return strict(call, arguments, function(with_rows_of(first, others), *(one.value for one in others)))


def sequence(arguments: Sequence[Compiled]) -> list[FailingRows]:
    """Returns the failures of arguments that are evaluated from the left until one is NULL."""
    failures: list[FailingRows] = []
    for index, argument in enumerate(arguments):
        if argument.is_null_literal:
            break
        if not argument.failures:
            continue
        before = [one.value.is_not_null() for one in arguments[:index] if not isinstance(one.source, Literal)]
        reached = pl.all_horizontal(before) if before else None
        failures += [failure if reached is None else failure.guarded(reached) for failure in argument.failures]
    return failures


def with_rows_of(argument: Compiled, others: Sequence[Compiled]) -> pl.Expr:
    """Returns the value of an argument with as many rows as the others; NULL where their first column is NULL.

    Not every function of Polars repeats a constant that it is called on: `splitn` splits it by only the first of
    several separators, and `list.slice` returns wrong numbers for a constant list of decimals.
    """
    columns = [one.value for one in others if columns_of(one.source)]
    if columns_of(argument.source) or not columns:
        return argument.value
    return pl.when(columns[0].is_not_null()).then(argument.value)


def eager(source: Call, arguments: Sequence[Compiled], value: pl.Expr) -> Compiled:
    """Compiles a call that evaluates all its arguments, even if some are NULL."""
    return Compiled(value, source, tuple(failure for argument in arguments for failure in argument.failures))


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
