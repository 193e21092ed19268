"""What every operator of a slot offers to the loop. Called from the loop's one thread; nothing here blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Protocol

import polars as pl

from tidegate.formats.bisection import evaluate_rows, internal_failure
from tidegate.formats.failures import RecordFailure, gather_failures
from tidegate.task.elements import SYSTEM_PREFIX
from tidegate.task.ports import OperatorState


class OperatorRuntime(Protocol):
    """Filter, select, aggregate, union."""

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """Rows in, rows out, order kept; None when nothing is left.

        A row that makes an expression raise fails by itself: what is raised here is no record's fault.
        """

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


Apply = Callable[[pl.DataFrame], tuple[pl.DataFrame, list[RecordFailure]]]


def apply_to_rows(frame: pl.DataFrame, apply: Apply) -> tuple[pl.DataFrame, list[RecordFailure]]:
    """`apply` to a frame; rows that make it raise are failures among the others."""
    parts, raising = evaluate_rows(
        frame.height, lambda start, end: apply(frame if end - start == frame.height else frame[start:end])
    )
    if not raising and len(parts) == 1:
        return parts[0][1]
    failures = gather_failures(starmap(internal_failure, raising), ((start, found) for start, (_, found) in parts))
    kept = [result for _, (result, _) in parts] or [apply(frame.clear())[0]]
    return pl.concat(kept), failures
