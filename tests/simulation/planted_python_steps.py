"""Known bugs of steps in Python, planted as those of `planted.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tidegate.operators.kinds.python import CLOCK_TIMERS, EVENT_TIMERS
from tidegate.operators.kinds.python.running.batches import BatchValue
from tidegate.operators.kinds.python.running.rows import RowsRuntime
from tidegate.operators.kinds.python.running.states import RunningScope
from tidegate.operators.kinds.python.running.timers import TimersRuntime
from tidegate.operators.runtime import Out
from tidegate.state.base import Share
from tidegate.state.memory import MemoryState

Patch = pytest.MonkeyPatch


def writes_of_a_row_that_raises_kept(patch: Patch) -> None:
    patch.setattr(RunningScope, "roll_back", lambda self: self.undo.clear())


def writes_of_a_batch_kept_for_the_next_try(patch: Patch) -> None:
    keep, forget = BatchValue.keep, BatchValue.undo

    def undo(self: BatchValue) -> None:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(BatchValue, "undo", forget)
            keep(self)

    patch.setattr(BatchValue, "undo", undo)


def state_of_a_step_written_after_the_barrier(patch: Patch) -> None:
    """What the last batch before a barrier has changed is written with the next batch."""
    flush, load = RowsRuntime._flush, RowsRuntime._load

    def load_after(self: RowsRuntime, keys: Iterable[Any]) -> None:
        flush(self)
        load(self, keys)

    patch.setattr(RowsRuntime, "_flush", lambda self: None)
    patch.setattr(RowsRuntime, "_load", load_after)


def timers_of_a_step_missing_from_the_snapshot(patch: Patch) -> None:
    real = MemoryState.restore

    def restore(self: MemoryState[Any], files: Iterable[bytes], share: Share) -> None:
        real(self, () if self.declaration.name in (EVENT_TIMERS, CLOCK_TIMERS) else files, share)

    patch.setattr(MemoryState, "restore", restore)


def timers_fire_before_rows_of_the_same_time(patch: Patch) -> None:
    real = TimersRuntime.emit_due

    def emit_due(self: TimersRuntime, watermark_ms: int, rows_max: int, out: Out) -> bool:
        return real(self, watermark_ms + 1, rows_max, out)

    patch.setattr(TimersRuntime, "emit_due", emit_due)


def watermark_that_a_step_sees_not_restored(patch: Patch) -> None:
    """After a restart a step takes rows as in time although timers have reported their silence before."""
    patch.setattr(RunningScope, "watermark_of", property(lambda self: None, lambda self, of_key: None), raising=False)
