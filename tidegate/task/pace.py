"""How many rows a subtask takes at a time, so that a barrier never waits long for one batch. Pure.

A call of the head of a vertex lasts as long as everything that the batch goes through in the vertex. When two calls in
a row have lasted longer than `CALL_MS`, the next one gets fewer rows; two and not one, because a process that was not
run for a moment says nothing about its rows. Calls that are much shorter let the limit grow again.
"""

from __future__ import annotations

from typing import Final

from tidegate.operators.runtime import ROWS_MAX

CALL_MS: Final = 50.0


class Pace:
    """The limit of one subtask."""

    def __init__(self) -> None:
        self.rows = ROWS_MAX
        """At most so many at a time; at least 1."""
        self._long = False

    def observe(self, rows: int, elapsed_ms: float) -> None:
        """A call with so many rows has lasted so long."""
        long, self._long = self._long, elapsed_ms > CALL_MS
        if long and self._long:
            self.rows = max(1, min(self.rows, int(rows * CALL_MS / elapsed_ms)))
        elif elapsed_ms < CALL_MS / 2 and rows >= self.rows:
            self.rows = min(ROWS_MAX, self.rows * 2)
