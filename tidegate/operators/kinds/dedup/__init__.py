"""`dedup`: passes the first record of each key within a time, by event time.

`runtime.py` has the runtime and the exact definition of a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import Keys, duration
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_digests, digest
from tidegate.operators.keyed import KeyedKind, LateKeyedOperator, LateSettings
from tidegate.operators.spec import Emits
from tidegate.operators.step import StepContext
from tidegate.state.declaration import Serializer, StateDeclaration, StateField
from tidegate.state.time_ordered import declare_time_ordered

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


class DedupKind(KeyedKind):
    """The kind of a step with `dedup`."""

    key = "dedup"
    needs: ClassVar[Mapping[str, str]] = {}
    examples = ("dedup: {key: id, within: 20s}",)
    settings = DedupStepSettings
    operator = DedupOperator

    @override
    def keys_of(self, step: Any) -> tuple[Path, tuple[str, ...]]:
        return ("dedup", "key"), step.dedup.key

    @override
    def fields(self, step: Any, context: StepContext) -> dict[str, Any]:
        return {"within_ms": step.dedup.within_ms}


KIND = DedupKind()
