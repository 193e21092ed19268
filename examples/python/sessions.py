"""Sessions of a website: clicks of a user with no longer pause than `gap` between them."""

from datetime import datetime
from typing import Any

from tidegate.python import Map, Out, Row, Settings, Step, Timer


class Sessions(Step):
    """Emits a session when its pause is over. Clicks may come in any order: one can join two sessions."""

    opened: Map[datetime, dict[str, Any]] = Map("timestamp", "struct<ended timestamp, clicks bigint, entry string>")
    closes = Timer("event-time")

    def open(self, settings: Settings) -> None:
        self.gap = settings.duration("gap")

    def process(self, row: Row, out: Out) -> None:
        if self.watermark is not None and row.time + self.gap <= self.watermark:
            out.to("too_late", row)
            return
        began = ended = row.time
        clicks, entry = 1, row["page"]
        for start, other in self.opened.items():
            if start <= ended + self.gap and began <= other["ended"] + self.gap:
                if start <= began:
                    began, entry = start, other["entry"]
                ended, clicks = max(ended, other["ended"]), clicks + other["clicks"]
                del self.opened[start]
        self.opened[began] = {"ended": ended, "clicks": clicks, "entry": entry}
        self._set_timer()

    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        for began, session in self.opened.items():
            if session["ended"] + self.gap <= at:
                out.emit(user=self.key[0], began=began, **session)
                del self.opened[began]
        self._set_timer()

    def _set_timer(self) -> None:
        ends = [session["ended"] for _, session in self.opened.items()]
        if ends:
            self.closes.set(min(ends) + self.gap)
