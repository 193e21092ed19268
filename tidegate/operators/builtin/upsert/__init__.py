"""What a sink writes of changes: the plan puts it before each sink that gets rows with kinds. No step of a file is one.

A row that an update takes back is no record of its own where the row that it adds goes to the same key. Where that row
went elsewhere (a filter, another key or topic), it is a tombstone in a topic of upserts, and nothing in any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from tidegate.expressions.bounds import Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.spec import Columns, Rest, Slot, StepOperator

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime


class UpsertOperator(StepOperator, frozen=True, tag="upsert"):
    """See the module. It drops rows and sets `deleted`; no row fails in it."""

    REST: ClassVar[Rest] = Rest.FILTERED

    output: Columns
    place: tuple[str, ...]
    """The columns that say which records replace each other: of the key, and of topic and partition where rows name
    theirs."""
    deleted: str | None
    """The column that says which records are tombstones; None: there are none, and what is taken back is dropped."""
    bad_records: BadRecordPolicy = BadRecordPolicy.FAIL

    @override
    def output_columns(self, output: str = "") -> Columns:  # there is one
        return self.output

    @override
    def reads(self, port: int = 0) -> set[str]:  # there is one
        return {name for name, _ in self.pruned_columns()}

    @override
    def preserves_record(self, output: str = "") -> bool:  # there is one
        return True

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # there is one
        kept = {name: columns[name] for name, _ in self.pruned_columns()}
        return kept, sum_bounds(kept.values())

    @override
    def explains(self) -> dict[str, Any]:
        return {"place": list(self.place), "tombstones": self.deleted}

    @override
    def describes(self) -> list[str]:
        if self.deleted is None:
            return ["drops what an update takes back"]
        return [f"what an update takes back by {', '.join(self.place)} and adds nowhere is a tombstone"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:  # no state
        from tidegate.operators.builtin.upsert.runtime import UpsertRuntime

        return UpsertRuntime(self)
