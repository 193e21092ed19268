"""`dedup`: passes the first record of each key within a time, by event time.

`runtime.py` has the runtime and the exact definition of a duplicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import Keys, duration
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_digests, digest
from tidegate.operators.late import LateKeyedOperator, LateSettings, derive_late
from tidegate.operators.spec import Emits, Slot
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import Serializer, StateDeclaration, StateField
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

SEEN: Final = StateName("seen")


class DedupSettings(Settings):
    """Defines what a duplicate is. Late records, that is, those not newer than the watermark of their own partition,
    can no longer be judged: they do not pass, and are counted, or go to the sink that `late` names.
    """

    TITLE: ClassVar[str] = "Deduplication"
    key: Annotated[Keys, Field(description="Column or columns that duplicates have in common.")]
    within_ms: Annotated[
        int,
        duration("1ms", "365d"),
        Field(
            alias="within",
            description="A record is a duplicate if one with the same key has passed before it whose event time "
            "is at most this far away, earlier or later. Keys are kept for this time and up to as long again.",
        ),
    ]


class DedupStepSettings(LateSettings):
    """The keys of a step without duplicates."""

    dedup: Annotated[
        DedupSettings | None, Field(description="Drops duplicates: passes the first record of each key within a time.")
    ] = None


class DedupOperator(LateKeyedOperator, frozen=True, tag="dedup"):
    """Passes the first row per key within a time; drops duplicates and late rows."""

    within_ms: int

    @override
    def emits(self) -> Emits:
        return Emits.INSERTS

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the event times that have passed, by time bucket and key, with at most one entry in each.

        The bucket size is part of the shape: entries of another size would not be found.
        """
        shape = msgspec.structs.replace(
            self.shape((StateField("time_ms", BIGINT, nullable=False),), max_parallelism),
            serializer=Serializer(parameters={"bucket": render_duration(self.within_ms)}),
        )
        return declare_time_ordered(StateDeclaration(SEEN, shape)), WATERMARK

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        return combine_digests(
            (
                branch.origin,
                "what a duplicate is",
                digest(digest("conditions", *sorted(branch.conditions)), digest(*self.digested(branch)), branch.time),
            )
            for branch in lineages
        )

    @override
    def describes(self) -> list[str]:
        within, keys = render_duration(self.within_ms), ", ".join(self.keys)
        return [f"the first record per {keys} within {within} of event time", f"keyed state by {keys}, for that time"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.kinds.dedup.runtime import DedupRuntime

        return DedupRuntime(self, slot)


class DedupKind(StepKind):
    """The kind of a step with `dedup`."""

    key = "dedup"
    examples = ("dedup: {key: id, within: 20s}",)
    settings = DedupStepSettings

    @override
    def counts(self, step: Any) -> bool:
        return True

    @override
    def refuses_changes(self, step: Any) -> str:
        return NEEDS_RETRACTION

    @override
    def build(self, step: DedupStepSettings, context: StepContext) -> None:
        assert step.dedup is not None
        context.declare_columns(context.columns)
        late = derive_late(step, context)
        usable = [context.key(("dedup", "key", index), key) for index, key in enumerate(step.dedup.key)]
        if all(usable) and late is not None:
            columns, within_ms = tuple(context.columns.items()), step.dedup.within_ms
            operator = DedupOperator(
                context.name, step.dedup.key, columns, context.policy, within_ms, late=tuple(late.items())
            )
            context.add(operator, step.dedup.key)


KIND = DedupKind()
