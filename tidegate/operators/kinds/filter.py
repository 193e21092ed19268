"""`where`: keeps the rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import ExpressionText
from tidegate.expressions.bounds import Bound, Bounds, derive_bound
from tidegate.expressions.expression import Expression, columns_of, text_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.fingerprint import Lineages, derive_conjuncts, digest_expression
from tidegate.operators.spec import Columns, Rest, Slot, StepOperator
from tidegate.operators.step import StepContext, StepKind

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime


class FilterSettings(Settings):
    """The keys of a filter."""

    where: Annotated[
        ExpressionText | None, Field(description="Keeps the records for which this Spark SQL expression is true.")
    ] = None


class FilterOperator(StepOperator, frozen=True, tag="filter"):
    """Keeps the rows for which the predicate is true. NULL drops a row, as in SQL. A failing predicate fails the
    row.
    """

    REST: ClassVar[Rest] = Rest.FILTERED

    predicate: Expression
    output: Columns
    bad_records: BadRecordPolicy

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {name for name, _ in self.pruned_columns()} | columns_of(self.predicate)

    @override
    def selects_by(self) -> frozenset[str]:
        return columns_of(self.predicate)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        asked = list(derive_conjuncts(self.predicate))
        return tuple(branch.filtered(*(digest_expression(one, branch.columns) for one in asked)) for branch in lineages)

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        kept, passed = super().output_size(columns)
        return kept, derive_bound(self.predicate, columns) + passed

    @override
    def describes(self) -> list[str]:
        return [f"where {text_of(self.predicate)}"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.expressions.compiled import compile_predicate
        from tidegate.operators.rowwise import RowWise

        return RowWise(compile_predicate(self.predicate).apply)


class FilterKind(StepKind):
    """The kind of a step with `where`."""

    key = "where"
    examples = ("where: amount > 1",)
    settings = FilterSettings

    @override
    def expressions(self, step: FilterSettings) -> Mapping[Path, str]:
        return {} if step.where is None else {("where",): step.where}

    @override
    def build(self, step: FilterSettings, context: StepContext) -> None:
        assert step.where is not None
        context.declare_columns(context.columns)
        predicate = context.expression(("where",), step.where, condition=True)
        if predicate is not None:
            context.add(FilterOperator(context.name, predicate, tuple(context.columns.items()), context.policy))


KIND = FilterKind()
