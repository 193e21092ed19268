"""Operators whose results become due by the watermark: windows, rankings, joins, absence."""

from __future__ import annotations

from typing_extensions import override

from tidegate.operators.event_time import EventClock
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX, OperatorRuntime, Out


class DueResultsRuntime(OperatorRuntime):
    """Emits what a watermark makes due, in several calls if it is much, before it passes the watermark on (W20).

    A higher watermark replaces one that waits for its results. The end of time does not, because it makes less due: it
    repeats nothing.

    A subclass implements `emit_due`, and sets `_clock`.
    """

    _clock: EventClock
    _pending_ms: int | None = None
    """The watermark that waits for its results."""
    _ends: bool = False
    """Whether the end of time follows that watermark."""
    _status_after: bool | None = None
    """The status to pass on after that watermark."""

    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:
        """Emits some of the results that a watermark makes due, at most about `rows_max`. Returns True if more are
        due.
        """
        raise NotImplementedError

    def advance(self, watermark_ms: int) -> None:
        """Begins with a watermark: from now on, lateness is judged by it."""
        self._clock.advance(watermark_ms)

    def passed_on(self, watermark_ms: int) -> int:
        """Returns the watermark that follows the results of a watermark."""
        return watermark_ms

    @property
    @override
    def settled(self) -> bool:
        return self._pending_ms is None

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        if watermark_ms == END_OF_TIME and self._pending_ms is not None:
            self._ends = True
            return
        self.advance(watermark_ms)
        self._pending_ms = watermark_ms
        self._go_on(ROWS_MAX, out)

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        """Holds a status back while a watermark waits, because nothing may be emitted between idle and active (W05)."""
        if self._pending_ms is None:
            out.status(idle)
        else:
            self._status_after = idle

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        if self._pending_ms is None:
            return False
        self._go_on(rows_max, out)
        return True

    @override
    def before_snapshot(self) -> None:
        self._clock.before_snapshot()

    def _go_on(self, rows_max: int, out: Out) -> None:
        watermark_ms = self._pending_ms
        assert watermark_ms is not None
        if self.emit_due(watermark_ms, rows_max, out):
            return
        self._pending_ms = None
        out.watermark(self.passed_on(watermark_ms))
        if self._ends:
            self._ends = False
            self.on_watermark(END_OF_TIME, out)
        elif self._status_after is not None:
            idle, self._status_after = self._status_after, None
            out.status(idle)
