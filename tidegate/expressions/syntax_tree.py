"""The nodes of a syntax tree: an expression that has been parsed but not resolved to names and types."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.datatypes import DataType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. A decimal is kept as text. The `type` months or interval is only for date and time arithmetic."""

    start: int
    value: bool | int | float | str | None
    type: DataType
    lost: str = ""
    """The first escape that loses its backslash, as in `Token`."""


@dataclass(frozen=True, slots=True)
class Name:
    """The first part of a column reference."""

    start: int
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """A field access, `base.name`."""

    start: int
    base: Syntax
    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A function or operator. The name of an operator is its sign. CASE is `case` (condition, value, ..., default)."""

    start: int
    function: str
    arguments: tuple[Syntax, ...]
    span: tuple[int, int] = (0, 0)
    """Where it begins and ends in the text; (0, 0) if the grammar has added it."""


@dataclass(frozen=True, slots=True)
class Qualified:
    """A call with `FILTER (WHERE condition)`, `IGNORE NULLS` or `RESPECT NULLS`, for aggregate functions only."""

    start: int
    call: Apply
    condition: Syntax | None
    ignore_nulls: bool | None
    """None if neither clause is written."""


@dataclass(frozen=True, slots=True)
class CastTo:
    """CAST, TRY_CAST or `::`."""

    start: int
    operand: Syntax
    type: DataType
    attempt: bool
    span: tuple[int, int] = (0, 0)
    """Where it begins and ends in the text, as in `Apply`."""


@dataclass(frozen=True, slots=True)
class Star:
    """The star of `count(*)`."""

    start: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A lambda function: `x -> body`, `(x, i) -> body`. It can only be an argument."""

    start: int
    parameters: tuple[str, ...]
    body: Syntax


Syntax = Constant | Name | Member | Apply | Qualified | CastTo | Star | Arrow
