"""The columns of a union of inputs that do not have the same ones. Pure.

An input whose columns differ gets a projection in front of the union, which adds missing columns as NULL or leaves out
those that are not common.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tidegate.config.models import UNION_ALL
from tidegate.datatypes import DataType
from tidegate.expressions.expression import ColumnReference, Expression, Literal, cast_can_fail
from tidegate.expressions.typing_rules import can_cast

Columns = Mapping[str, DataType]

_CHOICES = (
    "write `columns: all` (a missing column is NULL) or `columns: common` in a step that reads them, or bring the "
    "inputs to the same columns with `select`"
)


class Disagreement(msgspec.Struct, frozen=True):
    """An input that cannot be read as one with those before it in `from`."""

    name: str
    message: str
    remedy: str


def find_disagreements(inputs: Mapping[str, Columns], mode: str | None) -> Iterator[Disagreement]:
    """Yields the inputs that cannot be read as one, with the first reason for each. `mode` is `columns` of the step."""
    (first_name, first), *others = inputs.items()
    seen = {column: (first_name, kind) for column, kind in first.items()}
    for name, columns in others:
        for column in dict.fromkeys((*first, *columns)):
            if mode is None and (column not in columns or column not in first):
                lacking, having = (name, first_name) if column not in columns else (first_name, name)
                yield Disagreement(name, f"`{lacking}` has no column `{column}`, but `{having}` has", _CHOICES)
                break
            if column not in columns:
                continue
            before, given = seen.setdefault(column, (name, columns[column]))
            if columns[column] != given:
                message = f"column `{column}` is {given} in `{before}` and {columns[column]} in `{name}`"
                yield Disagreement(name, message, _derive_cast(column, {before: given, name: columns[column]}))
                break
    if mode is not None and not derive_columns(inputs, mode):
        message = f"{', '.join(f'`{name}`' for name in inputs)} have no column in common"
        yield Disagreement([*inputs][-1], message, "write `columns: all`, or rename columns in a `select`")


def _derive_cast(column: str, types: Mapping[str, DataType]) -> str:
    """Returns the remedy for two types of a column: a cast of one input, if possible one that cannot fail."""
    (first, one), (second, other) = types.items()
    casts = [(name, old, new) for name, old, new in ((second, other, one), (first, one, other)) if can_cast(old, new)]
    if not casts:
        return "give one of them another name in a `select`"
    name, _, new = min(casts, key=lambda cast: cast_can_fail(cast[1], cast[2]))
    return f"read `{name}` through a `select` with `{column}: cast({column} as {new})`"


def derive_columns(inputs: Mapping[str, Columns], mode: str | None) -> dict[str, DataType]:
    """Returns the columns of inputs that agree: those of the first one, then others in the order of appearance."""
    merged: dict[str, DataType] = {}
    for columns in inputs.values():
        merged = {**merged, **{column: kind for column, kind in columns.items() if column not in merged}}
    if mode == UNION_ALL:
        return merged
    return {column: kind for column, kind in merged.items() if all(column in columns for columns in inputs.values())}


def derive_projection(columns: Columns, union: Columns) -> dict[str, Expression] | None:
    """Returns the expressions that give an input the columns of the union; None if it has them already."""
    if columns.keys() == union.keys():
        return None
    return {
        name: ColumnReference(name, kind) if name in columns else Literal(None, kind) for name, kind in union.items()
    }
