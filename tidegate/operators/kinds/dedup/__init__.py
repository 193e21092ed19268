"""`dedup`: the first record of each key within a time, by event time.

`runtime.py` has what runs, and says what exactly is a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field

from tidegate.datatypes import BIGINT
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.late import REASONS, LateSettings, columns_read, derive_late, pass_late
from tidegate.operators.meaning import Branches, Meaning, combine_digests, digest
from tidegate.operators.spec import LATE, Columns, Emits, Requirement, Rest, Slot, StepOperator
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.settings.base import Settings
from tidegate.settings.fields import Keys, duration
from tidegate.settings.units import render_duration
from tidegate.state.declaration import Serializer, StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

SEEN: Final = StateName("seen")


class DedupSettings(Settings):
    """What a duplicate is. Records that are late, that is, not newer than the watermark of their own partition, cannot
    be judged any more: they do not pass, and are counted, or go to the sink that `late` names.
    """

    TITLE: ClassVar[str] = "Deduplication"
    key: Annotated[Keys, Field(description="Column or columns that duplicates have in common.")]
    within_ms: Annotated[
        int,
        duration("1ms", "365d"),
        Field(
            alias="within",
            description="A record is a duplicate when one with the same key has passed before it whose event time is "
            "not further from its own, earlier or later. Keys are kept for this time and up to as long again.",
        ),
    ]


class DedupStepSettings(LateSettings):
    """The keys of a step without duplicates."""

    dedup: Annotated[
        DedupSettings | None, Field(description="Drops duplicates: of each key the first record within a time passes.")
    ] = None


class DedupOperator(StepOperator, frozen=True, tag="dedup"):
    """Passes the first row per key within a time; drops duplicates and late rows."""

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: Columns
    within_ms: int
    output: Columns
    bad_records: BadRecordPolicy
    late: Columns = ()
    """What late rows have besides the columns of the engine; none where nobody reads them."""

    def output_columns(self, output: str = "") -> Columns:
        """See Operator."""
        return self.late if output == LATE else self.output

    def reads(self, port: int = 0) -> set[str]:  # noqa: ARG002  # there is one
        """See Operator."""
        return {name for name, _ in (*self.keys, *self.pruned_columns())} | columns_read(self.pruned_columns(LATE))

    def side_outputs(self) -> tuple[str, ...]:
        """See Operator."""
        return (LATE,) if self.late else ()

    def preserves_record(self, output: str = "") -> bool:  # noqa: ARG002  # all of them
        """See Operator."""
        return True

    def emits(self) -> Emits:
        """See Operator."""
        return Emits.INSERTS

    def requires(self, port: int = 0) -> frozenset[Requirement]:  # noqa: ARG002  # there is one
        """See Operator."""
        return frozenset({Requirement.EVENT_TIME})

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """See Operator. The event times that have passed, by a bucket of time and key: there is one at most in each.

        The size of the buckets is part of the shape: entries of another size would not be found.
        """
        shape = StateShape(
            keys=tuple(StateField(name, kind) for name, kind in self.keys),
            values=(StateField("time_ms", BIGINT, nullable=False),),
            key_hash=KEY_HASH,
            max_parallelism=max_parallelism,
            serializer=Serializer(parameters={"bucket": render_duration(self.within_ms)}),
        )
        return declare_time_ordered(StateDeclaration(SEEN, shape)), WATERMARK

    def passes(self, branches: Branches) -> Branches:
        """See Operator."""
        return tuple(
            msgspec.structs.replace(branch, conditions=branch.conditions | {self._digest(branch.columns)})
            for branch in branches
        )

    def passes_at(self, output: str, branches: Branches) -> Branches:
        """See Operator."""
        return pass_late(self.name, branches) if output == LATE else self.passes(branches)

    def means(self, branches: Branches, port: int = 0) -> Meaning:  # noqa: ARG002  # there is one
        """See Operator."""
        return combine_digests(
            (
                branch.origin,
                "what a duplicate is",
                digest(digest("conditions", *sorted(branch.conditions)), self._digest(branch.columns), branch.time),
            )
            for branch in branches
        )

    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # noqa: ARG002  # there is one
        """See Operator."""
        late = self.pruned_columns(LATE)
        kept = {name: columns[name] for name, _ in (*self.pruned_columns(), *late) if name in columns}
        kept |= {name: Bound({}, FIXED_BYTES) for name, _ in (REASONS if late else ())}
        return kept, sum_bounds(kept.values())

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        return {"key": [name for name, _ in self.keys], "within": render_duration(self.within_ms)}

    def describes(self) -> list[str]:
        """See Operator."""
        within, keys = render_duration(self.within_ms), ", ".join(name for name, _ in self.keys)
        return [f"the first record per {keys} within {within} of event time", f"keyed state by {keys}, for that time"]

    def open(self, slot: Slot) -> OperatorRuntime:
        """See StepOperator."""
        from tidegate.operators.kinds.dedup.runtime import DedupRuntime

        return DedupRuntime(self, slot)

    def _digest(self, columns: Mapping[str, str]) -> str:
        return digest("dedup", str(self.within_ms), *(columns[name] for name, _ in self.keys))


class DedupKind(StepKind):
    """See StepKind."""

    word = "dedup"
    examples = ("dedup: {key: id, within: 20s}",)
    settings = DedupStepSettings

    def counts(self, step: Any) -> bool:  # noqa: ARG002  # all of them
        """See StepKind."""
        return True

    def refuses_changes(self, step: Any) -> str:  # noqa: ARG002  # all of them
        """See StepKind."""
        return NEEDS_RETRACTION

    def build(self, step: DedupStepSettings, context: StepContext) -> None:
        """See StepKind."""
        assert step.dedup is not None
        context.gives(context.columns)
        late = derive_late(step, context)
        usable = [context.key(("dedup", "key", index), key) for index, key in enumerate(step.dedup.key)]
        if all(usable) and late is not None:
            keys = tuple((key, context.columns[key]) for key in step.dedup.key)
            columns = tuple(context.columns.items())
            judged = step.dedup.within_ms, columns, context.policy, tuple(late.items())
            operator = DedupOperator(context.name, keys, *judged)
            context.add(operator, step.dedup.key)


KIND = DedupKind()
