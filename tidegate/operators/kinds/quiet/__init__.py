"""`quiet`: a row per key when nothing has arrived for a time, and one when it is back.

`runtime.py` has the results of one key and the runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import Keys, duration
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, BOOLEAN, TIMESTAMP, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_digests, digest
from tidegate.operators.keyed import REASONS, KeyedKind, LateKeyedOperator, LateSettings
from tidegate.operators.spec import LATE, Columns, Emits, Rest
from tidegate.operators.step import StepContext
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.time_ordered import declare_time_ordered

QUIET: Final = "quiet"
LAST_AT: Final = "last_at"
ADDED: Final[Columns] = ((QUIET, BOOLEAN), (LAST_AT, TIMESTAMP))
ARRIVALS: Final = StateName("arrivals")
TIMERS: Final = StateName("timers")
REPEATS: Final = StateName("repeats")
_TIMES: Final = DataType("array", element=BIGINT)


class QuietSettings(Settings):
    """Defines when a key is quiet, by event time. Late records, that is, those not newer than the watermark of their
    own partition, do not count as arrivals: they are counted, or go to the sink that `late` names.

    The results are the key columns, `quiet`, and `last_at`, the event time of the last record of the key before. A
    result with `quiet` true has the event time `last_at` plus `for`. One with `quiet` false has the event time of the
    record with which the key is back. Each is emitted when the watermark reaches its event time.
    """

    TITLE: ClassVar[str] = "Absence"
    key: Annotated[Keys, Field(description="Column or columns that identify what can be quiet.")]
    for_ms: Annotated[
        int,
        duration("1ms", "365d"),
        Field(
            alias="for",
            description="A key is quiet when no record of it has an event time in this time after its last one. Each "
            "key that has ever had a record keeps an entry in the state, so that its return is noticed.",
        ),
    ]
    repeat_ms: Annotated[
        int | None,
        duration("1ms", "365d"),
        Field(
            alias="repeat",
            description="The result of a key that stays quiet is emitted again each time this much has passed. The "
            "end of a bounded input repeats nothing: results are repeated up to the event time of its newest record, "
            "less `delay`.",
        ),
    ] = None


class QuietStepSettings(LateSettings):
    """The keys of a step that detects absence."""

    quiet: Annotated[
        QuietSettings | None,
        Field(description="Emits a result per key when no record has arrived for a time, and one when it is back."),
    ] = None


class QuietOperator(LateKeyedOperator, frozen=True, tag="quiet"):
    """Emits the absence of keys, and their return."""

    REST: ClassVar[Rest] = Rest.FOLDED

    for_ms: int
    repeat_ms: int | None

    @override
    def added_columns(self) -> Columns:
        return ADDED

    @override
    def output_columns(self, output: str = "") -> Columns:
        if output == LATE:
            return self.late
        kinds = dict(self.columns)
        return (*((key, kinds[key]) for key in self.keys if key in kinds), *ADDED)

    @override
    def preserves_record(self, output: str = "") -> bool:
        """Returns True for late rows, which leave as they arrived."""
        return output == LATE

    @override
    def emits(self) -> Emits:
        return Emits.INSERTS

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the arrivals of each key, and a timer for the next result of a key.

        The timers of repeated results have a state of their own, because an end of time does not reach them.
        """
        arrivals = self.shape(
            (
                StateField("times_ms", _TIMES, nullable=False),
                StateField("absences", BIGINT, nullable=False),
                StateField("timer_ms", BIGINT),
            ),
            max_parallelism,
        )
        timers = self.shape((), max_parallelism)
        return (
            StateDeclaration(ARRIVALS, arrivals),
            *(declare_time_ordered(StateDeclaration(name, timers)) for name in (TIMERS, REPEATS)),
            WATERMARK,
        )

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        return combine_digests(
            (
                branch.origin,
                "when a key is quiet",
                digest(digest("conditions", *sorted(branch.conditions)), digest(*self.digested(branch)), branch.time),
            )
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts nothing for timers: their results are emitted in parts."""
        late = {name: columns[name] for name, _ in self.pruned_columns(LATE) if name in columns}
        fixed = {name: Bound({}, FIXED_BYTES) for name, _ in (*ADDED, *(REASONS if late else ()))}
        outgoing = late | {key: columns[key] for key in self.keys} | fixed
        return outgoing, sum_bounds(outgoing.values())

    @override
    def describes(self) -> list[str]:
        again = "" if self.repeat_ms is None else f", again every {render_duration(self.repeat_ms)}"
        keys = ", ".join(self.keys)
        silence = render_duration(self.for_ms)
        return [
            f"a result per {keys} after {silence} without a record{again}, and one when it is back",
            f"keyed state by {keys}: an entry for each key that has ever had a record",
        ]


class QuietKind(KeyedKind):
    """The kind of a step with `quiet`."""

    key = QUIET
    needs: ClassVar[Mapping[str, str]] = {}
    examples = (
        "quiet: {key: customer, for: 3s}",
        "quiet: {key: [customer, id], for: 2s, repeat: 5s}, late: late",
    )
    settings = QuietStepSettings
    operator = QuietOperator

    @override
    def counts(self, step: Any) -> bool:
        return False

    @override
    def keys_of(self, step: Any) -> tuple[Path, tuple[str, ...]]:
        return (QUIET, "key"), step.quiet.key

    @override
    def fields(self, step: Any, context: StepContext) -> dict[str, Any]:
        return {"for_ms": step.quiet.for_ms, "repeat_ms": step.quiet.repeat_ms}


KIND = QuietKind()
