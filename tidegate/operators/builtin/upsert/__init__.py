"""Turns changes into the records of a sink. The plan adds it in front of each sink that receives rows with kinds; no
step creates it.

The retracted row of an update is not written if the added row goes to the same key. If the added row goes elsewhere (a
filter, another key or topic), the retracted row becomes a tombstone in a topic of upserts, and nothing in any other.
"""

from __future__ import annotations

from typing import ClassVar

from typing_extensions import override

from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.spec import Columns, Rest, StepOperator


class UpsertOperator(StepOperator, frozen=True, tag="upsert"):
    """Drops retracted rows or marks them in the column `deleted`. No row fails in it."""

    REST: ClassVar[Rest] = Rest.FILTERED

    output: Columns
    place: tuple[str, ...]
    """The columns that decide which records replace each other: those of the key, and of topic and partition if set per
    row.
    """
    deleted: str | None
    """The column that marks tombstones. None: there are no tombstones, and retracted rows are dropped."""
    bad_records: BadRecordPolicy = BadRecordPolicy.FAIL

    @override
    def describes(self) -> list[str]:
        if self.deleted is None:
            return ["drops the retracted row of an update"]
        return [f"writes a tombstone if an update changes {', '.join(self.place)}"]
