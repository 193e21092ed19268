"""`sample`: keeps every n-th row of a subtask. A kind of operator as docs/extending.md describes it, for one test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.runtime import OperatorRuntime, Out, Runtime
from tidegate.operators.spec import Columns, Slot, StepOperator
from tidegate.operators.step import StepContext, StepKind
from tidegate.settings.base import Settings
from tidegate.settings.fields import integer

if TYPE_CHECKING:
    import polars as pl


class SampleSettings(Settings):
    """The keys of a sample."""

    sample: Annotated[int | None, integer(1, 1000), Field(description="Keeps every n-th record.")] = None


class SampleOperator(StepOperator, frozen=True, tag="sample"):
    """Keeps every n-th row."""

    every: int
    output: Columns
    bad_records: BadRecordPolicy

    def output_columns(self, output: str = "") -> Columns:
        return self.output

    def reads(self, port: int = 0) -> set[str]:
        return {name for name, _ in self.output}

    def describes(self) -> list[str]:
        return [f"every {self.every}th record"]

    def open(self, slot: Slot) -> OperatorRuntime:
        return _Sample(self.every)


class _Sample(Runtime):
    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        start = -self._seen % self._every
        self._seen += batch.height
        out.emit(batch[start :: self._every])


class SampleKind(StepKind):
    word = "sample"
    settings = SampleSettings

    def build(self, step: SampleSettings, context: StepContext) -> None:
        assert step.sample is not None
        context.gives(context.columns)
        context.add(SampleOperator(context.name, step.sample, tuple(context.columns.items()), context.policy))


KIND = SampleKind()
