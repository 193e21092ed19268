"""What a start would continue from, as facts, and who finds them out."""

from __future__ import annotations

from typing import Protocol

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import LostRange
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan


class Comparison(msgspec.Struct, frozen=True):
    """The pipeline and the cluster as they are now, compared with what a start would restore. It fits but for these."""

    lost: tuple[LostRange, ...] = ()
    """Input that retention has removed."""
    ahead: tuple[SourceOperator, ...] = ()
    """Sources whose `until` lies in the future."""
    goes_back: bool = False
    """The newest checkpoint is not what would be restored."""


class StartTarget(Protocol):
    """What a start would continue from. Nothing is changed by asking."""

    async def try_storage(self) -> None:
        """Write, read and delete an object. Raises StorageError."""

    async def read_journal(self) -> JournalState:
        """Read the journal. Raises JournalRefused, StorageError."""

    async def compare(self, plan: Plan) -> Comparison:
        """Compare the pipeline with what would be restored. Raises RestoreRefused and whatever else a recovery does."""
