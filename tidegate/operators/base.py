"""What every operator of a slot offers to the loop. Called from the loop's one thread; nothing here blocks."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from tidegate.operators.failures import RecordFailure
from tidegate.task.elements import SYSTEM_PREFIX
from tidegate.task.ports import OperatorState


class OperatorRuntime(Protocol):
    """Filter, select, aggregate, union."""

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Rows in, rows out, order kept; None when nothing is left."""

    def take_failures(self) -> list[RecordFailure]:
        """Failed rows of the last frame, once; empty almost always."""

    @property
    def state(self) -> OperatorState | None:
        """What is in its snapshots, restored before the first frame; None for an operator without state."""


class Stateless:
    """The parts that operators without state share; subclasses set `_failures` when rows fail."""

    def __init__(self) -> None:
        self._failures: list[RecordFailure] = []

    def take_failures(self) -> list[RecordFailure]:
        """See OperatorRuntime."""
        taken, self._failures = self._failures, []
        return taken

    @property
    def state(self) -> None:
        """See OperatorRuntime."""
        return


def system_columns(frame: pl.DataFrame) -> list[str]:
    """The engine's own columns of a frame."""
    return [name for name in frame.columns if name.startswith(SYSTEM_PREFIX)]
