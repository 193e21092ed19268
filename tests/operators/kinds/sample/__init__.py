"""`sample`: passes every n-th record of a key."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import GroupKeys, integer
from tidegate.datatypes import BIGINT
from tidegate.operators.keyed import KeyedKind, KeyedOperator
from tidegate.operators.step import StepContext
from tidegate.state.declaration import StateField


class SampleSettings(Settings):
    """How many records of a key there are for each one that passes."""

    every: Annotated[int, integer(1, 1000), Field(description="The first record of a key passes, then every n-th.")]


class SampleStepSettings(Settings):
    """The keys of a step that samples."""

    key: GroupKeys = None
    sample: Annotated[SampleSettings | None, Field(description="Passes every n-th record of a key.")] = None


class SampleOperator(KeyedOperator, frozen=True, tag="sample"):
    """Counts the records of each key."""

    every: int

    @override
    def state_values(self) -> tuple[StateField, ...]:
        return (StateField("seen", BIGINT, nullable=False),)


class SampleKind(KeyedKind):
    """A step with `key` and `sample`."""

    key = "sample"
    settings = SampleStepSettings
    operator = SampleOperator
    examples = ("key: customer, sample: {every: 3}",)

    @override
    def fields(self, step: Any, context: StepContext) -> dict[str, Any]:
        return {"every": step.sample.every}


KIND = SampleKind()
