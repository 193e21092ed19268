"""A compiled expression: a Polars expression that never raises, and the conditions under which a record fails.

Spark in ANSI mode stops a query at a division by zero; here only the record may fail, so every value is made total
(NULL or anything where it has no meaning) and the failure is a condition of its own. A condition is guarded by
whatever keeps Spark from evaluating that part: NULL in an earlier argument, or a branch that is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.expression import Call, Expression, Literal, text_of


@dataclass(frozen=True, slots=True)
class Failure:
    """`condition` is true in the records that fail; false or NULL in the others."""

    condition: pl.Expr
    reason: str

    def guarded(self, guard: pl.Expr) -> Failure:
        """The same failure, only where `guard` is true."""
        return Failure(guard & self.condition, self.reason)


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression ready to run. `source` is what it was made from, for constants and messages."""

    value: pl.Expr
    source: Expression
    failures: tuple[Failure, ...] = ()

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
        """The value of a literal; None when it is not one (or is NULL)."""
        return self.source.value if isinstance(self.source, Literal) else None


class CompileCall(Protocol):
    """Compiles one function whose arguments are compiled already."""

    def __call__(self, call: Call, arguments: Sequence[Compiled]) -> Compiled:
        """The compiled call."""


COMPILERS: dict[str, CompileCall] = {}
"""By the name in `Call.function`; the modules beside this one fill it."""


def compiles(*names: str) -> Callable[[CompileCall], CompileCall]:
    """Register a `CompileCall` for these functions."""

    def register(function: CompileCall) -> CompileCall:
        for name in names:
            if name in COMPILERS:
                raise KeyError(f"two compilers for {name}")
            COMPILERS[name] = function
        return function

    return register


def strict(source: Call, arguments: Sequence[Compiled], value: pl.Expr, *own: tuple[str, pl.Expr]) -> Compiled:
    """A call that is NULL when an argument is NULL and evaluates its arguments from the left until one is.

    :param own: Spark's error class and the condition of each failure of the call itself; NULL counts as false.
    """
    failures = list(sequence(arguments))
    failures += [Failure(condition, reason(error, source)) for error, condition in own]
    return Compiled(value, source, tuple(failures))


def sequence(arguments: Sequence[Compiled]) -> list[Failure]:
    """The failures of arguments that are evaluated from the left until one is NULL."""
    failures: list[Failure] = []
    for index, argument in enumerate(arguments):
        if not argument.failures:
            continue
        before = [one.value.is_not_null() for one in arguments[:index] if not isinstance(one.source, Literal)]
        reached = pl.all_horizontal(before) if before else None
        failures += [failure if reached is None else failure.guarded(reached) for failure in argument.failures]
    return failures


def eager(source: Call, arguments: Sequence[Compiled], value: pl.Expr) -> Compiled:
    """A call that evaluates all its arguments, NULL or not."""
    return Compiled(value, source, tuple(failure for argument in arguments for failure in argument.failures))


def reason(error: str, source: Expression) -> str:
    """What a failed record is reported with."""
    return f"{error} in `{text_of(source)}`"
