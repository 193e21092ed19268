"""Limits the rows that a subtask takes at a time, so that a barrier never waits long for one batch. Pure.

A call of the head of a vertex lasts as long as the batch takes to pass through the vertex. When two consecutive calls
exceed `CALL_MS`, the next one gets fewer rows. One long call is not enough: it may only mean that the process was not
scheduled for a moment. Much shorter calls let the limit grow again.

Only the time per additional row counts: the slope of a line through the recent calls. A call has a fixed cost whatever
its rows are, and on a machine with too little CPU the fixed cost alone may exceed `CALL_MS`. Fewer rows would then
shorten no call and only slow the subtask down. A call of `STALL_MS` or more is always attributed to its rows. If this
reduces the limit to one row, a call with two rows is tried now and then, since calls of one size reveal no slope.
"""

from __future__ import annotations

from typing import Final

from tidegate.operators.runtime import ROWS_MAX

CALL_MS: Final = 50.0
STALL_MS: Final = 500.0
MEMORY: Final = 0.8
"""Factor by which the weight of a call shrinks with each later call."""
TRIAL: Final = 16
"""Number of one-row calls after which two rows are tried."""
ORIGIN: Final = 0.1
"""Weight of the point (0 rows, 0 ms), the only other known point while all calls have the same number of rows."""


class BatchPacer:
    """The row limit of one subtask."""

    def __init__(self) -> None:
        self.rows = ROWS_MAX
        """The maximum number of rows at a time; at least 1."""
        self._long = False
        self._single = 0
        """Calls since the limit became one row."""
        self._forget()

    def observe(self, rows: int, elapsed_ms: float) -> None:
        """Records the number of rows and the duration of a call."""
        if elapsed_ms >= STALL_MS:
            self._forget()
        row_ms = self._row_ms(rows, elapsed_ms)
        before, self._long = self._long, elapsed_ms > CALL_MS
        long = before and self._long
        self._single = self._single + 1 if self.rows == 1 else 0
        if self._single == TRIAL:
            self.rows = 2
        elif long and row_ms * self.rows > CALL_MS:
            self.rows = max(1, int(CALL_MS / row_ms))
        elif (long or elapsed_ms + row_ms * rows < CALL_MS) and rows >= self.rows:
            self.rows = min(ROWS_MAX, self.rows * 2)

    def _forget(self) -> None:
        self._calls = self._sum_rows = self._sum_ms = self._sum_squares = self._sum_products = 0.0

    def _row_ms(self, rows: int, elapsed_ms: float) -> float:
        """Returns the time per additional row: the slope of the least-squares line."""
        self._calls = self._calls * MEMORY + 1
        self._sum_rows = self._sum_rows * MEMORY + rows
        self._sum_ms = self._sum_ms * MEMORY + elapsed_ms
        self._sum_squares = self._sum_squares * MEMORY + rows * rows
        self._sum_products = self._sum_products * MEMORY + rows * elapsed_ms
        points = self._calls + ORIGIN
        rise = points * self._sum_products - self._sum_rows * self._sum_ms
        run = points * self._sum_squares - self._sum_rows * self._sum_rows
        return max(0.0, min(rise / run, elapsed_ms / rows))
