"""`event_time` as a step: gives rows another event time, and makes watermarks from it.

`runtime.py` has the runtime. ADR 76 explains the design.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.records import Idle, IdleMode, render_idle
from tidegate.config.fields.types import ExpressionText, duration
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, INT, STRING
from tidegate.expressions.bounds import Bound, Bounds, derive_bound
from tidegate.expressions.event_time import find_event_time_problem
from tidegate.expressions.expression import ColumnReference, Expression, columns_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.fingerprint import Lineages, digest, digest_expression
from tidegate.operators.spec import Columns, Requirement, StepOperator
from tidegate.operators.step import StepContext, StepKind
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, declare_list

PARTITION: Final = "__tidegate_partition"
TOPIC: Final = "__tidegate_topic"
_FROM: Final = StateField("event_time", STRING, nullable=False)
"""The expression that the times are of. Those of another one are of no use."""
TIMES: Final = declare_list(
    "times",
    (_FROM, StateField("before_ms", BIGINT, nullable=False), StateField("time_ms", BIGINT, nullable=False)),
    StateForm.UNION,
)
"""Event times of rows with the event times that they had before: what the watermark follows."""
MARKS: Final = declare_list(
    "marks",
    (
        _FROM,
        StateField("topic", STRING, nullable=False),
        StateField("partition", INT, nullable=False),
        StateField("watermark_ms", BIGINT, nullable=False),
    ),
    StateForm.UNION,
)
"""The watermark of each partition of the source, by which its rows are late."""


class StepWatermarkSettings(Settings):
    """Event time of a step: how its watermark follows the event times that it gives to records.

    The watermark is the highest event time of the records up to an instant, less `delay` and a millisecond. The instant
    is the watermark of the input: records are compared in the order of the event time that they had before the step.
    """

    TITLE: ClassVar[str] = "Watermarks of a step"
    delay_ms: Annotated[
        int,
        duration("0s", "366d"),
        Field(
            alias="delay",
            description="How much older a record may be than the newest one before it without being late. `0s` is for "
            "records whose event time grows as it did before the step.",
        ),
    ] = 0
    idle: Annotated[
        IdleMode,
        Field(
            description="`caught-up`: the step is idle while its input is. `{advance: wall-clock}`: while its input is "
            "idle, its watermark follows the clock, minus `delay`."
        ),
    ] = Idle.CAUGHT_UP
    ahead_ms: Annotated[
        int | None,
        duration("0s", "366d"),
        Field(
            alias="ahead",
            description="How far the event time of a record may be after the one that it had before the step. A "
            "record that is further ahead is bad. Without `ahead` any time is accepted.",
        ),
    ] = None


class EventTimeSettings(Settings):
    """The keys of a step that gives records an event time."""

    event_time: Annotated[
        ExpressionText | None,
        Field(
            description="Gives records another event time: a column, or an expression over the columns, that gives a "
            "timestamp, or a bigint in ms since 1970. A record for which it is NULL, cannot be computed, or is outside "
            "the years 1 to 9999 is a bad record."
        ),
    ] = None
    watermark: Annotated[
        StepWatermarkSettings | None, Field(description="How event time advances after this step.")
    ] = None


class EventTimeOperator(StepOperator, frozen=True, tag="event_time"):
    """Replaces the event time of rows, and the watermarks that arrive by watermarks of its own."""

    ASSIGNS_TIME: ClassVar[bool] = True

    expression: Expression
    written: str
    """The text of the expression."""
    columns: Columns
    bad_records: BadRecordPolicy
    delay_ms: int
    idle: Idle
    ahead_ms: int | None
    partition: tuple[str, ...]
    """The system columns that identify the partition of the source; empty if its rows do not arrive in their order."""

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.columns

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {name for name, _ in self.pruned_columns()} | columns_of(self.expression)

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        """Returns event time: rows are compared in the order of the one that they have, and its watermarks and idleness
        tell how far the input is.
        """
        topic = {Requirement.TOPIC} if TOPIC in self.partition else set()
        return frozenset({Requirement.EVENT_TIME} | topic)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        return TIMES, MARKS

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        if Requirement.EVENT_TIME not in self.planned.carries:
            return lineages
        return tuple(
            msgspec.structs.replace(
                branch, time=digest("event time", digest_expression(self.expression, branch.columns))
            )
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        kept, passed = super().output_size(columns)
        return kept, derive_bound(self.expression, columns) + passed

    @override
    def describes(self) -> list[str]:
        delay, idle = render_duration(self.delay_ms), render_idle(self.idle)
        ahead = (
            "" if self.ahead_ms is None else f", at most {render_duration(self.ahead_ms)} after the event time before"
        )
        return [f"event time: {self.written}{ahead}; watermark: delay {delay}, idle {idle}"]


class EventTimeKind(StepKind):
    """The kind of a step with `event_time`."""

    key = "event_time"
    examples = ("event_time: at, watermark: {delay: 2s}", "event_time: timestamp_millis(id), watermark: {ahead: 1h}")
    settings = EventTimeSettings

    @override
    def expressions(self, step: EventTimeSettings) -> Mapping[Path, str]:
        return {} if step.event_time is None else {("event_time",): step.event_time}

    @override
    def refuses_changes(self, step: Any) -> str:
        return "could assign different times to the two rows of an update, of which only one is late"

    @override
    def build(self, step: EventTimeSettings, context: StepContext) -> None:
        assert step.event_time is not None
        context.declare_columns(context.columns)
        watermark = step.watermark or StepWatermarkSettings()
        if watermark.idle is Idle.NEVER:
            remedy = "set it at the source: its partitions can be idle"
            context.problem(("watermark", "idle"), "a step is idle when its input is", remedy)
            return
        text = step.event_time
        if text in context.columns:  # even if the name would parse as an expression
            found: Expression | None = ColumnReference(text, context.columns[text])
        else:
            found = context.expression(("event_time",), text)
        if found is None:
            return
        written = " ".join(text.split())
        problem = find_event_time_problem(found, written, is_column=text in context.columns, of="step's input")
        if problem is not None:
            context.problem(("event_time",), *problem)
            return
        context.add(
            EventTimeOperator(
                context.name,
                found,
                written,
                tuple(context.columns.items()),
                context.policy,
                watermark.delay_ms,
                watermark.idle,
                watermark.ahead_ms,
                _partition_of(context),
            )
        )


def _partition_of(context: StepContext) -> tuple[str, ...]:
    if not context.in_partition_order:
        return ()
    several = any(one.source is None or len(one.source.topics) != 1 for one in context.origins())
    return (TOPIC, PARTITION) if several else (PARTITION,)


KIND = EventTimeKind()
