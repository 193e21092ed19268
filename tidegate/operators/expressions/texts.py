"""Functions of strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import polars as pl

from tidegate.operators.expressions.compiled import Compiled, compiles, eager, strict
from tidegate.plan.expression import Call

_ONE: dict[str, Callable[[pl.Expr], pl.Expr]] = {
    "upper": lambda value: value.str.to_uppercase(),
    "lower": lambda value: value.str.to_lowercase(),
    "trim": lambda value: value.str.strip_chars(" "),
}
_TWO: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "contains": lambda value, part: value.str.contains(part, literal=True),
    "startswith": lambda value, part: value.str.starts_with(part),
    "endswith": lambda value, part: value.str.ends_with(part),
}


@compiles(*_ONE)
def _one(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, _ONE[call.function](arguments[0].value))


@compiles(*_TWO)
def _two(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return strict(call, arguments, _TWO[call.function](arguments[0].value, arguments[1].value))


@compiles("length")
def _length(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    value = arguments[0].value
    size = value.bin.size() if arguments[0].type.kind == "binary" else value.str.len_chars()
    return strict(call, arguments, size.cast(pl.Int32))


@compiles("concat")
def _concat(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return eager(call, arguments, pl.concat_str([argument.value for argument in arguments]))
