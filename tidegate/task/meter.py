"""What each operator of a subtask does: its rows and its time. Counted per batch, never per row.

The operators of a subtask call each other in one thread, so their time is a single line, cut wherever an operator
finishes its work. Each piece belongs to the operator that did the work, and one reading of the clock ends a piece and
starts the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegate.operators.spec import Rest
from tidegate.task.report import OperatorCounts


class OperatorMeter:
    """Meter of one subtask. `rests` classifies, per node, the rows that it does not emit; `elapsed_ms`
    never goes back.
    """

    __slots__ = ("_elapsed_ms", "_folded", "_rests", "_since_ms", "counts")

    def __init__(self, rests: Sequence[Rest], elapsed_ms: Callable[[], float]) -> None:
        self.counts = [OperatorCounts() for _ in rests]
        """Counts by node."""
        self._rests = rests
        self._folded = [0] * len(rests)
        """By node the rows of other ports than 0: they change what is made of those of port 0."""
        self._elapsed_ms = elapsed_ms
        self._since_ms = 0.0

    def begin(self) -> float:
        """Starts measuring when the loop calls an operator; earlier time is not counted. Returns the clock."""
        self._since_ms = now_ms = self._elapsed_ms()
        return now_ms

    def spent(self, node: int) -> float:
        """Adds the time since the last cut to a node. Returns the clock."""
        now_ms = self._elapsed_ms()
        self.counts[node].busy_ms += now_ms - self._since_ms
        self._since_ms = now_ms
        return now_ms

    def gave(self, node: int, rows: int) -> None:
        """Records that the node emits a batch; the time that follows belongs to other operators."""
        self.spent(node)
        self.counts[node].rows_out += rows

    def failed(self, node: int, rows: int, port: int = 0) -> None:
        """Records rows of the current batch that could not be processed."""
        self.counts[node].failed += rows
        if port:
            self._folded[node] -= rows

    def blocked(self, waited_ms: float) -> None:
        """Adds time in which nothing leaves the subtask to its first operator, which accepts nothing meanwhile."""
        self.counts[0].blocked_ms += waited_ms

    def reached(self, node: int, time_ms: int) -> None:
        """Records the watermark that the node has reached."""
        counts = self.counts[node]
        counts.watermarks += 1
        counts.watermark_ms = time_ms

    def took(self, node: int, rows: int, port: int = 0) -> float:
        """Records that the node has finished a batch. Returns the clock."""
        counts, rest = self.counts[node], self._rests[node]
        counts.rows_in += rows
        if port:
            self._folded[node] += rows
        if rest is Rest.FILTERED:
            counts.filtered = counts.rows_in - counts.rows_out - counts.failed - self._folded[node]
        elif rest is Rest.WRITTEN:
            counts.rows_out = counts.rows_in - counts.failed
        return self.spent(node)
