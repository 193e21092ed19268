"""Events in the order of their event time."""

from datetime import datetime

from tidegate.python import List, Out, Row, Step, Timer


class Sort(Step):
    """Keeps events until the watermark has passed them: nothing that is not late can come before them then."""

    waiting = List("struct<at: timestamp, move: string>")
    next = Timer("event-time")

    def process(self, row: Row, out: Out) -> None:
        if self.watermark is not None and row.time <= self.watermark:
            out.to("too_late", row)
            return
        self.waiting.append({"at": row["at"], "move": row["move"]})
        self.next.set(min(row["at"], self.next.get() or row["at"]))

    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        waiting = sorted(self.waiting.get(), key=lambda one: one["at"])
        later = [one for one in waiting if one["at"] > at]
        for one in waiting[: len(waiting) - len(later)]:
            out.emit(game=self.key[0], move=one["move"], at=one["at"])
        self.waiting.set(later)
        if later:
            self.next.set(later[0]["at"])
