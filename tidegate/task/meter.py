"""What each operator of a subtask does: rows, and whose time it is. Counted a batch at a time, never a row.

The operators of a subtask call each other in one thread, so their time is one line that is cut wherever the work of one
of them is done. A piece belongs to the operator that has done it, and one look at the clock serves both its ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.operators.spec import Rest
from tidegate.task.report import OperatorCounts


class OperatorMeter:
    """Of one subtask. `rests` says for every node what its rows are that go nowhere; `elapsed_ms` never goes back."""

    __slots__ = ("_elapsed_ms", "_rests", "_since_ms", "counts")

    def __init__(self, rests: Sequence[Rest], elapsed_ms: Callable[[], float]) -> None:
        self.counts = [OperatorCounts() for _ in rests]
        """By node."""
        self._rests = rests
        self._elapsed_ms = elapsed_ms
        self._since_ms = 0.0

    def begin(self) -> float:
        """The loop calls an operator: what was before is nobody's time. Returns the clock."""
        self._since_ms = now_ms = self._elapsed_ms()
        return now_ms

    def spent(self, node: int) -> float:
        """What has passed since the last cut was a node's work. Returns the clock."""
        now_ms = self._elapsed_ms()
        self.counts[node].busy_ms += now_ms - self._since_ms
        self._since_ms = now_ms
        return now_ms

    def gave(self, node: int, rows: int) -> None:
        """It emits a batch: from now on others work."""
        self.spent(node)
        self.counts[node].rows_out += rows

    def failed(self, node: int, rows: int) -> None:
        """So many rows of the batch that it looks at could not be processed."""
        self.counts[node].failed += rows

    def blocked(self, waited_ms: float) -> None:
        """Nothing leaves the subtask: counted for its first operator, which takes nothing meanwhile."""
        self.counts[0].blocked_ms += waited_ms

    def reached(self, node: int, time_ms: int) -> None:
        """It has come so far in event time."""
        counts = self.counts[node]
        counts.watermarks += 1
        counts.watermark_ms = time_ms

    def took(self, node: int, rows: int) -> float:
        """It is done with a batch. Returns the clock."""
        counts, rest = self.counts[node], self._rests[node]
        counts.rows_in += rows
        if rest is Rest.FILTERED:
            counts.filtered = counts.rows_in - counts.rows_out - counts.failed
        elif rest is Rest.WRITTEN:
            counts.rows_out = counts.rows_in - counts.failed
        return self.spent(node)
