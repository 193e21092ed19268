"""What every operator of a slot offers to the loop. Called from the loop's one thread; nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import polars as pl

from tidegate.operators.failures import RecordFailure
from tidegate.task.elements import SYSTEM_PREFIX


class OperatorRuntime(Protocol):
    """Filter, select, aggregate, union."""

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Rows in, rows out, order kept; None when nothing is left."""

    def take_failures(self) -> list[RecordFailure]:
        """Failed rows of the last frame, once; empty almost always."""

    def capture(self) -> Callable[[], bytes] | None:
        """The synchronous part of a snapshot (F23); None for an operator without state."""

    def restore(self, files: Sequence[bytes], key_groups: range) -> None:
        """Load the entries of `key_groups` from state files, before the first frame. Raises StateUnreadable."""

    @property
    def state_keys(self) -> int:
        """Number of keys held."""


class Stateless:
    """The parts that operators without state share; subclasses set `_failures` when rows fail."""

    def __init__(self) -> None:
        self._failures: list[RecordFailure] = []

    def take_failures(self) -> list[RecordFailure]:
        """See OperatorRuntime."""
        taken, self._failures = self._failures, []
        return taken

    def capture(self) -> None:
        """See OperatorRuntime."""
        return

    def restore(self, files: Sequence[bytes], key_groups: range) -> None:  # noqa: ARG002  # the protocol's signature
        """Files for an operator without state mean that plan and checkpoint do not belong together."""
        if files:
            raise ValueError("state files were given to an operator without state")

    @property
    def state_keys(self) -> int:
        """See OperatorRuntime."""
        return 0


def system_columns(frame: pl.DataFrame) -> list[str]:
    """The engine's own columns of a frame."""
    return [name for name in frame.columns if name.startswith(SYSTEM_PREFIX)]
