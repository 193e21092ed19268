"""The nodes of a syntax tree: an expression after its grammar is known and before it has names and types."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.datatypes import DataType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. A decimal keeps its text; `type` months or interval is for arithmetic with time only."""

    start: int
    value: bool | int | float | str | None
    type: DataType
    lost: str = ""
    """See `Token`."""


@dataclass(frozen=True, slots=True)
class Name:
    """The first part of a column reference."""

    start: int
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """`base.name`."""

    start: int
    base: Syntax
    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A function or operator; operators have their sign as name, CASE is `case` (condition, value, ..., default)."""

    start: int
    function: str
    arguments: tuple[Syntax, ...]
    span: tuple[int, int] = (0, 0)
    """Where it begins and ends in the text; nowhere when the grammar has added it."""


@dataclass(frozen=True, slots=True)
class Qualified:
    """A call with `FILTER (WHERE condition)`, `IGNORE NULLS` or `RESPECT NULLS`, for aggregate functions only."""

    start: int
    call: Apply
    condition: Syntax | None
    ignore_nulls: bool | None
    """None where neither is written."""


@dataclass(frozen=True, slots=True)
class CastTo:
    """CAST, TRY_CAST and `::`."""

    start: int
    operand: Syntax
    type: DataType
    attempt: bool
    span: tuple[int, int] = (0, 0)
    """See `Apply`."""


@dataclass(frozen=True, slots=True)
class Star:
    """The star of `count(*)`."""

    start: int


@dataclass(frozen=True, slots=True)
class Arrow:
    """A lambda function: `x -> body`, `(x, i) -> body`. Only an argument can be one."""

    start: int
    parameters: tuple[str, ...]
    body: Syntax


Syntax = Constant | Name | Member | Apply | Qualified | CastTo | Star | Arrow
