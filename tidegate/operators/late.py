"""Late rows as an output of a step: the key `late` of the file, and the columns of that output. Pure.

The runtime is in `lateness.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import StepName
from tidegate.datatypes import STRING, TIMESTAMP, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.operators.fingerprint import Lineages, digest
from tidegate.operators.keyed import KeyedOperator
from tidegate.operators.spec import LATE, Columns, Requirement
from tidegate.operators.step import StepContext

REASONS: Final[Columns] = (("_reason", STRING), ("_watermark", TIMESTAMP))
"""What late rows have besides the columns that arrive: the reason, and the watermark that makes them late."""


class LateSettings(Settings):
    """The key of steps that can find a record late."""

    late: Annotated[
        StepName | None,
        Field(
            description="A sink without `from` that gets the late records, with the columns `_reason` and "
            "`_watermark`. Without it they are only counted."
        ),
    ] = None


def derive_late(step: LateSettings, context: StepContext) -> dict[str, DataType] | None:
    """Returns the columns of the step's late rows. Empty if late rows are not requested; None if they are impossible,
    which is reported.

    Declares the columns as the step's output `late`.
    """
    if step.late is None:
        return {}
    taken = [name for name, _ in REASONS if name in context.columns]
    if taken:
        remedy = "rename it in a `select` before this step"
        context.problem(("late",), f"`{taken[0]}` is a column of late records, and of these records", remedy)
        return None
    late = {**context.columns, **dict(REASONS)}
    context.declare_columns(late, LATE)
    return late


def columns_read(late: Columns) -> set[str]:
    """Returns the columns of late rows that arrive from the input."""
    return {name for name, _ in late} - dict(REASONS).keys()


def pass_late(name: str, lineages: Lineages) -> Lineages:
    """Returns the lineages of a step's late rows, which leave as they arrived (see `fingerprint.py`)."""
    reasons = {column: digest("late", name, column) for column, _ in REASONS}
    return tuple(msgspec.structs.replace(branch, columns={**branch.columns, **reasons}) for branch in lineages)


class LateKeyedOperator(KeyedOperator, frozen=True, kw_only=True):
    """A step with keys that detects late rows and emits them on its output `late` if anything reads it."""

    late: Columns = ()
    """The columns of late rows, without system columns; empty if nothing reads them."""

    @override
    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().parameters().items() if name != "late"}

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.late if output == LATE else super().output_columns()

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (LATE,) if self.late else ()

    @override
    def reads(self, port: int = 0) -> set[str]:
        return super().reads(port) | columns_read(self.pruned_columns(LATE))

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        return pass_late(self.name, lineages) if output == LATE else super().lineage(lineages)

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        outgoing, _ = super().output_size(columns, port)
        reasons = REASONS if self.pruned_columns(LATE) else ()
        whole = {**outgoing, **{name: Bound({}, FIXED_BYTES) for name, _ in reasons}}
        return whole, sum_bounds(whole.values())
