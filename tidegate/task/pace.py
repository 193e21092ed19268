"""How many rows a subtask takes at a time, so that a barrier never waits long for one batch. Pure.

A call of the head of a vertex lasts as long as everything that the batch goes through in the vertex. When two calls in
a row have lasted longer than `CALL_MS`, the next one gets fewer rows; two and not one, because a process that was not
run for a moment says nothing about its rows. Calls that are much shorter let the limit grow again.

Only the time that more rows take counts: the slope of a line through the last calls. A call takes some time whatever
its rows are, and on a machine with too little CPU that alone may be longer than `CALL_MS`: fewer rows would make no
call shorter, and the subtask ever slower. A call of `STALL_MS` or more is put down to its rows in any case; a limit of
one row that came of that is tried again with two now and then, since calls of the same rows say nothing about a row.
"""

from __future__ import annotations

from typing import Final

from tidegate.operators.runtime import ROWS_MAX

CALL_MS: Final = 50.0
STALL_MS: Final = 500.0
MEMORY: Final = 0.8
"""What a call counts when another one has come after it."""
TRIAL: Final = 16
"""Every so many calls of one row."""
ORIGIN: Final = 0.1
"""What it counts that no rows take no time: all that is known while calls have the same number of rows."""


class BatchPacer:
    """The limit of one subtask."""

    def __init__(self) -> None:
        self.rows = ROWS_MAX
        """At most so many at a time; at least 1."""
        self._long = False
        self._single = 0
        """Calls since the limit is one row."""
        self._forget()

    def observe(self, rows: int, elapsed_ms: float) -> None:
        """A call with so many rows has lasted so long."""
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
        """What one more row takes: the slope of the line with the least squares."""
        self._calls = self._calls * MEMORY + 1
        self._sum_rows = self._sum_rows * MEMORY + rows
        self._sum_ms = self._sum_ms * MEMORY + elapsed_ms
        self._sum_squares = self._sum_squares * MEMORY + rows * rows
        self._sum_products = self._sum_products * MEMORY + rows * elapsed_ms
        points = self._calls + ORIGIN
        rise = points * self._sum_products - self._sum_rows * self._sum_ms
        run = points * self._sum_squares - self._sum_rows * self._sum_rows
        return max(0.0, min(rise / run, elapsed_ms / rows))
