"""A projection: computes new columns from old ones, all at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tidegate.expressions.bounds import Bound, Bounds, derive_value_bound, sum_bounds
from tidegate.expressions.expression import Expression, can_fail, columns_of, text_of
from tidegate.expressions.secrets import is_random
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.meaning import Branches, digest_expression
from tidegate.operators.runtime import OperatorRuntime, system_columns
from tidegate.operators.spec import Columns, Slot, StepOperator, keep_columns, texts_of


class SelectOperator(StepOperator, frozen=True, tag="select"):
    """A row of which one expression cannot be evaluated fails as a whole."""

    columns: tuple[tuple[str, Expression], ...]
    output: Columns
    bad_records: BadRecordPolicy

    def produces(self) -> Columns:
        """See Operator."""
        return self.output

    def reads(self) -> set[str]:
        """See Operator."""
        return {name for _, expression in self.columns for name in columns_of(expression)}

    def narrowed(self, needed: set[str]) -> SelectOperator:
        """See Operator."""
        fallible = {name for name, expression in self.columns if can_fail(expression)}
        output = keep_columns(self.output, needed | fallible)
        kept = {name for name, _ in output}
        columns = tuple(column for column in self.columns if column[0] in kept)
        return msgspec.structs.replace(self, columns=columns, output=output)

    def computes(self) -> Mapping[str, Expression]:
        """See Operator."""
        return dict(self.columns)

    def carries_headers(self, output: str = "") -> bool:  # noqa: ARG002  # there is one
        """See Operator."""
        return True

    def passes(self, branches: Branches) -> Branches:
        """See Operator."""
        return tuple(
            msgspec.structs.replace(
                branch, columns={name: digest_expression(one, branch.columns) for name, one in self.columns}
            )
            for branch in branches
        )

    def unrepeatable(self) -> tuple[str, ...]:
        """See Operator: what is encrypted with a random vector is other bytes the next time."""
        return tuple(name for name, expression in self.columns if is_random(expression))

    def makes(self, columns: Bounds) -> tuple[Bounds, Bound]:
        """See Operator."""
        made = {name: derive_value_bound(expression, columns) for name, expression in self.columns}
        return {name: value for name, (value, _) in made.items()}, sum_bounds(whole for _, whole in made.values())

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        texts = {name: text_of(expression) for name, expression in self.columns}
        return {"select": texts, "output": texts_of(self.output), "bad_records": self.bad_records}

    def describes(self) -> list[str]:
        """See Operator."""
        return [f"{name} = {text_of(expression)}" for name, expression in self.columns]

    def open(self, slot: Slot) -> OperatorRuntime:  # noqa: ARG002  # no state
        """See StepOperator."""
        from tidegate.expressions.compiled import compile_projection
        from tidegate.operators.rowwise import RowWise

        projection = compile_projection(self.columns)
        return RowWise(lambda part: projection.apply(part, system_columns(part)))


def make_projection(name: OperatorName, columns: Mapping[str, Expression], policy: BadRecordPolicy) -> SelectOperator:
    """A select of typed expressions."""
    output = tuple((column, expression.type) for column, expression in columns.items())
    return SelectOperator(name, tuple(columns.items()), output, policy)
