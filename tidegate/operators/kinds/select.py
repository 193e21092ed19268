"""`select`: computes new columns from the input columns. `config/fields/steps.py` has the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.steps import AllColumns, Selection
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.expressions.expression import ColumnReference, Expression
from tidegate.expressions.parse import names_in
from tidegate.operators.builtin.projection import make_projection
from tidegate.operators.step import StepContext, StepKind


class SelectSettings(Settings):
    """The keys of a select."""

    select: Annotated[
        Selection | None,
        Field(
            description="New columns by Spark SQL expressions; all others are dropped. Or all columns with "
            'changes: `{"*": all, except: [debug], rename: {cust: customer}, add: {net: "amount / 1.2"}}`.'
        ),
    ] = None


class SelectKind(StepKind):
    """The kind of a step with `select`."""

    key = "select"
    examples = ("select: {id: id, double: amount * 2}",)
    settings = SelectSettings

    @override
    def expressions(self, step: SelectSettings) -> Mapping[Path, str]:
        place, texts = _texts_of(step)
        return {(*place, column): text for column, text in texts.items()}

    @override
    def build(self, step: SelectSettings, context: StepContext) -> None:
        made: dict[str, Expression] = {}
        place, texts = _texts_of(step)
        for column, text in texts.items():
            path = (*place, column)
            if _reports_new_name(step.select, path, text, context):
                continue
            expression = context.expression(path, text)
            if expression is not None:
                made[column] = expression
        kept = _kept_columns(step.select, context) if isinstance(step.select, AllColumns) else {}
        if kept is None or len(made) < len(texts):
            return  # the columns are unknown, so readers of this step are not checked
        columns = kept | made
        if not columns:
            context.problem(("select", "except"), "no column is left", "leave one out of the list, or add one")
            return
        context.declare_columns({column: expression.type for column, expression in columns.items()})
        context.add(make_projection(context.name, columns, context.policy))


def _texts_of(step: SelectSettings) -> tuple[Path, Mapping[str, str]]:
    """Returns the place of the expressions in the file, and the expressions."""
    if isinstance(step.select, AllColumns):
        return ("select", "add"), step.select.add
    return ("select",), step.select or {}


def _reports_new_name(select: object, path: Path, text: str, context: StepContext) -> bool:
    """Returns True, and reports it, if an expression uses the new name of a renamed column instead of the old one."""
    renamed = select.rename if isinstance(select, AllColumns) else {}
    for old, new in renamed.items():
        if new not in context.columns and old in context.columns and new in names_in(text):
            remedy = f"write `{old}`: expressions of `add` have the names of the columns that arrive"
            context.problem(path, f"`{new}` is the new name of `{old}`", remedy)
            return True
    return False


def _kept_columns(select: AllColumns, context: StepContext) -> dict[str, Expression] | None:
    """Returns the input columns that remain, by their new names, or None after reporting what is wrong."""
    known = [context.column(("select", "except", index), name) for index, name in enumerate(select.except_)]
    usable = all(kind is not None for kind in known)
    for old, new in select.rename.items():
        usable &= _can_rename(old, new, select, context)
    if not usable:
        return None
    return {
        select.rename.get(name, name): ColumnReference(name, kind)
        for name, kind in context.columns.items()
        if name not in select.except_
    }


def _can_rename(old: str, new: str, select: AllColumns, context: StepContext) -> bool:
    path: Path = ("select", "rename", old)
    if old not in context.columns:
        message, remedy = f"there is no column `{old}`", derive_suggestion(old, context.columns)
        context.problem(path, message, remedy, at_key=True)
        return False
    if old in select.except_:
        context.problem(path, f"`{old}` is left out by `except`", "remove it from one of the two", at_key=True)
        return False
    others = [name for name in context.columns if name != old and name not in select.except_]
    if new in [select.rename.get(name, name) for name in others]:
        remedy = "choose another name, or leave the other column out by `except`"
        context.problem(path, f"another column is named `{new}`", remedy)
        return False
    return True


KIND = SelectKind()
