"""Several names in `from` and no other key: a union."""

from __future__ import annotations

from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.operators.builtin.union import UnionOperator
from tidegate.operators.step import StepContext, StepKind


class UnionKind(StepKind):
    """The kind of a step without the key of another kind."""

    key = ""
    examples = ("from: [rows, more]",)
    settings = Settings

    @override
    def build(self, step: Settings, context: StepContext) -> None:
        if context.several:  # otherwise it does nothing, which the checks of the file report
            context.declare_columns(context.columns)
            context.add(UnionOperator(context.name, tuple(context.columns.items()), context.policy))


KIND = UnionKind()
