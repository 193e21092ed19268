"""What a step's code may use while it is called: the current key and row, and the undo log of what it writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn

from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.operators.kinds.python.running.values import EPOCH, reader_of
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.operators.spec import Slot
from tidegate.python.step import StepScope
from tidegate.state.base import Key
from tidegate.user_code.running import RUNNING

Undo = tuple[Callable[[Any, Any], object], Any, Any]
"""A function that puts an old value back, and its arguments."""


class RunningScope(StepScope):
    """The current call of the step's code. The thread that makes the call is the only one that may use it."""

    def __init__(self, step: str, key_kinds: Sequence[DataType], slot: Slot) -> None:
        self._step = step
        self.thread = 0
        """The thread in which the step's code is called; 0 between calls."""
        self.row = 0
        """A number that no other row and no other timer has."""
        self.state_key: Key = None
        """The current key as states have it."""
        self.time_ms: int | None = None
        """The event time of the row or of the timer."""
        self.reached_ms = LOWEST
        """The event time of the row, or the watermark of its partition when it was read if that was later."""
        self.wall_ms = 0
        """The slot's clock at the beginning of the batch; 0 if no state needs it."""
        self.watermark_ms = LOWEST
        """The watermark that has arrived."""
        self.watermark_of: Callable[[Key], int] | None = None
        """Returns the watermark of a key, which a restart may have restored; None for a step without its own."""
        self.ending = False
        """Whether the timers of an end of time fire."""
        self.rescheduled: list[tuple[str, Key]] | None = None
        """The timers that the current call has set, by name and key; None while rows are processed."""
        self.past_due = False
        """Whether a row has set a timer to a time that the watermark has passed."""
        self.undo: list[Undo] = []
        """What the current row has changed first, in this order."""
        self.emitted_many = False
        """True if what has been emitted should leave before the next row is processed."""
        self.now_ms = slot.now_ms
        self._files = slot.files
        self._readers = [reader_of(kind) for kind in key_kinds]

    def begin(self) -> None:
        """Begins the calls of a batch, in this thread."""
        self.thread = get_ident()
        RUNNING.enter(self._step)

    def end(self) -> None:
        """Ends the calls of a batch."""
        RUNNING.leave()
        self.thread = 0
        self.state_key = None

    def roll_back(self) -> None:
        """Undoes what the current row has written."""
        for put, key, old in reversed(self.undo):
            put(key, old)
        self.undo.clear()

    def check(self) -> None:
        """Raises RuntimeError for a use outside a call of the step's code."""
        if self.thread != get_ident():
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raises RuntimeError for a use outside a call of the step's code."""
        if self.thread:
            raise RuntimeError(
                "state, timers and outputs belong to the thread that calls `process`: pass values to other "
                "threads, and use their results here"
            )
        raise RuntimeError("state, timers and outputs can be used only in `process` and `on_timer`, while they run")

    @property
    @override
    def key(self) -> tuple[Any, ...]:
        if self.thread != get_ident():
            self.refuse()
        if not self._readers:
            raise RuntimeError(
                "there is no current key: the step has no `key`, or gets batches with rows of several keys"
            )
        values = (self.state_key,) if len(self._readers) == 1 else self.state_key
        return tuple(
            value if value is None or read is None else read(value)
            for read, value in zip(self._readers, values, strict=True)
        )

    @property
    @override
    def watermark(self) -> dt.datetime | None:
        watermark_ms = self.watermark_ms
        if self.watermark_of is not None and self.thread:
            watermark_ms = max(watermark_ms, self.watermark_of(self.state_key))
        if watermark_ms == LOWEST:
            return None
        if watermark_ms == END_OF_TIME:
            return dt.datetime.max.replace(tzinfo=dt.UTC)
        return EPOCH + dt.timedelta(milliseconds=watermark_ms)

    @override
    def now(self) -> dt.datetime:
        return EPOCH + dt.timedelta(milliseconds=self.now_ms())

    @override
    def file(self, name: str) -> Path:
        return self._files(name)
