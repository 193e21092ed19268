"""The common settings and spec of `async` and `http`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import StepOutput, choice, duration, integer
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, BINARY
from tidegate.expressions.bounds import GROWING, Bound, Bounds, derive_identity, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.row_kinds import ROW_KIND, UPDATE_BEFORE
from tidegate.operators.calls.caller import CallPolicy
from tidegate.operators.event_time import TIME
from tidegate.operators.fingerprint import Lineages
from tidegate.operators.runtime import system_columns
from tidegate.operators.spec import Columns, Requirement, StepOperator, render_columns
from tidegate.operators.step import StepContext, StepKind
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, declare_list
from tidegate.state.errors import StateUnreadable

if TYPE_CHECKING:
    import polars as pl

CAPACITY_MAX: Final = 10_000
VALUE_BYTES: Final = 4096
"""The assumed size of a text in an answer when batches are sized. Its real size is known only once it arrives."""

IN_FLIGHT: Final = declare_list(
    "in_flight",
    (
        StateField("subtask", BIGINT, nullable=False),
        StateField("parallelism", BIGINT, nullable=False),
        StateField("rows", BINARY, nullable=False),
    ),
    StateForm.UNION,
)
"""Rows whose answers are outstanding, as Arrow IPC, oldest first, with their subtask."""
_REMEDY: Final = (
    "start with the old definition, stop it with SIGTERM (its final checkpoint leaves nothing in flight), then "
    "change it"
)


class CallSettings(Settings):
    """The keys of every step that calls something outside."""

    output: StepOutput = None
    order: Annotated[
        str,
        choice("ordered", "unordered"),
        Field(
            description="`ordered`: rows leave in the order in which they arrived. `unordered`: as they are "
            "answered, which waits less; no row overtakes a watermark."
        ),
    ] = "ordered"
    capacity: Annotated[
        int,
        integer(1, CAPACITY_MAX),
        Field(description="Number of rows of a slot that may wait for answers; no more are accepted meanwhile."),
    ] = 100
    timeout_ms: Annotated[int, duration("1ms", "1h"), Field(alias="timeout", description="Timeout of one attempt.")] = (
        5000
    )
    retries: Annotated[
        int, integer(0, 100), Field(description="Number of further attempts after one that failed or timed out.")
    ] = 3
    backoff_ms: Annotated[
        int,
        duration("1ms", "30s"),
        Field(
            alias="backoff",
            description="Pause before the second attempt; it doubles up to 30s, and is shortened at random by "
            "up to half.",
        ),
    ] = 100
    budget_ms: Annotated[
        int,
        duration("1ms", "24h"),
        Field(
            alias="budget",
            description="Timeout of all attempts of a row, at least `timeout`; after that it is a bad record "
            "(`bad_records` of its source).",
        ),
    ] = 20_000


class CallOperator(StepOperator, frozen=True, kw_only=True):
    """Rows with the columns of their answers. A row without an answer fails."""

    input: Columns
    answers: Columns
    """All declared columns of an answer. Each is checked, even if it is not read."""
    output: Columns
    """The columns that are emitted: the input columns and those of the answer that are read."""
    ordered: bool
    capacity: int
    policy: CallPolicy
    bad_records: BadRecordPolicy

    def digest_answers(self, columns: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002  # for overrides
        """Returns the lineage of each column of an answer, given those of the input columns."""
        return {}

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        return tuple(branch.extended(self.digest_answers(branch.columns)) for branch in lineages)

    @override
    def unrepeatable(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.answers)

    @override
    def keeps_order(self) -> bool:
        return self.ordered

    @property
    def kept_answers(self) -> Columns:
        """The answer columns that are emitted."""
        names = {name for name, _ in self.pruned_columns()}
        return tuple(column for column in self.answers if column[0] in names)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:  # a list has no key groups
        return (msgspec.structs.replace(IN_FLIGHT, verify=self._verify),)

    def _verify(self, value: tuple[Any, ...]) -> None:
        """Raises StateUnreadable for rows that the current step could not request again."""
        _, _, rows = value
        self.decode_rows(rows)

    def decode_rows(self, rows: bytes) -> pl.DataFrame:
        """Returns rows in flight with the columns that the step has now. Raises StateUnreadable."""
        from tidegate.formats.arrow import decode_frame
        from tidegate.formats.columns import polars_type

        frame, reads = decode_frame(rows), self.reads()
        kept = [column for column in self.input if column[0] in reads]
        wrong = [
            f"have no column {name} {kind}"
            for name, kind in kept
            if name not in frame.columns or frame[name].dtype != polars_type(kind)
        ]
        if Requirement.EVENT_TIME in self.planned.carries and TIME not in frame.columns:
            wrong.append("have no event time, which a downstream step now needs")
        if Requirement.ROW_KIND in self.planned.carries and ROW_KIND not in frame.columns:
            wrong.append("have no row kind, which a downstream step now needs")
        elif not self.planned.some_kinds and ROW_KIND in frame.columns and (frame[ROW_KIND] == UPDATE_BEFORE).any():
            wrong.append("contain retractions, which no downstream step processes now")
        if wrong:
            raise StateUnreadable(
                f"{frame.height} rows in flight of {self.name} {wrong[0]} (they have "
                f"{render_columns(frame.schema.items())}); {_REMEDY}",
                operator=self.name,
                state=IN_FLIGHT.name,
            )
        return frame.select([name for name, _ in kept] + system_columns(frame))

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts texts of answers at a fixed size, because rows may wait and an answer belongs to no batch."""
        made = {name: Bound({}, derive_identity(name, kind).constant) for name, kind in self.answers}
        growing = Bound({}, VALUE_BYTES * sum(kind.kind in GROWING for _, kind in self.answers))
        return {**columns, **made}, sum_bounds([*columns.values(), *made.values(), growing])

    @override
    def describes(self) -> list[str]:
        attempt, whole = render_duration(self.policy.timeout_ms), render_duration(self.policy.budget_ms)
        retries = "1 retry" if self.policy.retries == 1 else f"{self.policy.retries} retries"
        order = "in order" if self.ordered else "unordered within watermarks"
        return [
            f"adds {render_columns(self.answers)}",
            f"{self.capacity} rows at a time, {order}",
            f"{attempt} an attempt, {retries}, {whole} in all",
        ]


class CallKind(StepKind):
    """The base of kinds of steps that call something outside; their settings are CallSettings."""

    @override
    def refuses_changes(self, step: Any) -> str:
        if step.order == "ordered":
            return ""
        return "needs `order: ordered`: otherwise an older change could overtake a newer one"


def derive_fields(step: CallSettings, context: StepContext) -> dict[str, Any] | None:
    """Returns the fields of the step's CallOperator, or None after reporting what is wrong."""
    answers = dict(step.output or {})
    sound = True
    for name in answers:
        if name in context.columns:
            sound = False
            message = f"there is already a column `{name}`"
            context.problem(("output", name), message, "give the answer's column another name", at_key=True)
    if step.budget_ms < step.timeout_ms:
        sound = False
        remedy = "make it at least as long as `timeout`: it is the limit of all attempts together"
        context.problem(("budget",), "is less than `timeout`", remedy)
    if not sound:
        return None
    return {
        "name": context.name,
        "input": tuple(context.columns.items()),
        "answers": tuple(answers.items()),
        "output": (*context.columns.items(), *answers.items()),
        "ordered": step.order == "ordered",
        "capacity": step.capacity,
        "policy": CallPolicy(step.timeout_ms, step.retries, step.backoff_ms, step.budget_ms),
        "bad_records": context.policy,
    }
