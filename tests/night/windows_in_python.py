"""Windows as a user would write them in Python, whose results equal those of the built-in ones (`python_steps.py`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from typing_extensions import override

from tidegate.python import Map, Out, Row, Settings, Step, Timer

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MS: Final = timedelta(milliseconds=1)


class Tumbling(Step):
    """Counts the clicks of each user in each window."""

    clicks: Map[datetime, int] = Map("timestamp", "bigint")
    """Start of an open window -> its clicks."""
    closes = Timer("event-time")

    @override
    def open(self, settings: Settings) -> None:
        self.size = settings.duration("size")

    @override
    def process(self, row: Row, out: Out) -> None:
        start = row.time - (row.time - EPOCH) % self.size
        self.clicks[start] = self.clicks.get(start, 0) + 1
        due, before = start + self.size - MS, self.closes.get()
        if before is None or due < before:
            self.closes.set(due)

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        for start, clicks in self.clicks.items():
            end = start + self.size
            if end - MS > at:
                self.closes.set(end - MS)
                return
            out.emit(user=self.key[0], window_start=start, window_end=end, clicks=clicks)
            del self.clicks[start]


class Sessions(Step):
    """Counts the clicks of each user in each session."""

    sessions: Map[datetime, dict[str, Any]] = Map("timestamp", "struct<last: timestamp, clicks: bigint>")
    """Start of an open session -> its last click, and how many it has."""
    closes = Timer("event-time")

    @override
    def open(self, settings: Settings) -> None:
        self.gap = settings.duration("gap")

    @override
    def process(self, row: Row, out: Out) -> None:
        first, last, clicks = row.time, row.time, 1
        for start, session in self.sessions.items():
            if start - self.gap <= last and first <= session["last"] + self.gap:
                first, last = min(first, start), max(last, session["last"])
                clicks += session["clicks"]
                del self.sessions[start]
        self.sessions[first] = {"last": last, "clicks": clicks}
        self._set_timer()

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        for start, session in self.sessions.items():
            end = session["last"] + self.gap
            if end <= at:
                out.emit(user=self.key[0], window_start=start, window_end=end, clicks=session["clicks"])
                del self.sessions[start]
        self._set_timer()

    def _set_timer(self) -> None:
        ends = [session["last"] + self.gap for _, session in self.sessions.items()]
        if ends:
            self.closes.set(min(ends))
