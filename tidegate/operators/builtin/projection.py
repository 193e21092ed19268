"""A projection: computes new columns from the input columns, all at once."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from typing_extensions import override

from tidegate.expressions.bounds import Bound, Bounds, derive_value_bound, sum_bounds
from tidegate.expressions.expression import Expression, columns_of, text_of
from tidegate.expressions.secrets import is_random
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.fingerprint import Lineages, digest_expression
from tidegate.operators.runtime import OperatorRuntime, system_columns
from tidegate.operators.spec import Columns, Slot, StepOperator


class SelectOperator(StepOperator, frozen=True, tag="select"):
    """A projection by expressions. If one expression of a row cannot be evaluated, the whole row fails."""

    columns: tuple[tuple[str, Expression], ...]
    output: Columns
    bad_records: BadRecordPolicy

    @property
    def pruned_expressions(self) -> tuple[tuple[str, Expression], ...]:
        """The expressions of the columns that it emits."""
        kept = {name for name, _ in self.pruned_columns()}
        return tuple(one for one in self.columns if one[0] in kept)

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {name for _, expression in self.pruned_expressions for name in columns_of(expression)}

    @override
    def computes(self) -> Mapping[str, Expression]:
        return dict(self.columns)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        return tuple(
            msgspec.structs.replace(
                branch, columns={name: digest_expression(one, branch.columns) for name, one in self.columns}
            )
            for branch in lineages
        )

    def unrepeatable(self) -> tuple[str, ...]:
        """Returns the columns with random encryption, which produces different bytes every time."""
        return tuple(name for name, expression in self.columns if is_random(expression))

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        made = {name: derive_value_bound(expression, columns) for name, expression in self.pruned_expressions}
        return {name: value for name, (value, _) in made.items()}, sum_bounds(whole for _, whole in made.values())

    @override
    def describes(self) -> list[str]:
        return [f"{name} = {text_of(expression)}" for name, expression in self.pruned_expressions]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.expressions.compiled import compile_projection
        from tidegate.operators.rowwise import RowWise

        projection = compile_projection(self.pruned_expressions)
        return RowWise(lambda part: projection.apply(part, system_columns(part)))


def make_projection(name: OperatorName, columns: Mapping[str, Expression], policy: BadRecordPolicy) -> SelectOperator:
    """Creates a projection from typed expressions."""
    output = tuple((column, expression.type) for column, expression in columns.items())
    return SelectOperator(name, tuple(columns.items()), output, policy)
