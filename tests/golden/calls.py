"""The user code of `pipeline.yaml`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from typing_extensions import override

from tidegate.python import List, Map, Out, Row, Step, Timer, Value


async def answer(row: dict[str, Any]) -> dict[str, Any]:
    """Of a row that was in flight at the checkpoint, too."""
    return {"word": f"word of {row['id']}"}


class Visits(Step):
    """Has every kind of state, and a timer of each clock."""

    count = Value("bigint", default=0)
    last = Value("struct<id bigint, price decimal(10,2)>")
    days: Map[Any, int] = Map("date", "bigint", ttl="365d")
    ids = List("bigint")
    quiet = Timer("event-time")
    reminder = Timer("clock")

    @override
    def process(self, row: Row, out: Out) -> None:
        self.count.set(self.count.get() + 1)
        self.last.set({"id": row["id"], "price": row["price"]})
        self.days[row["day"]] = self.days.get(row["day"], 0) + 1
        self.ids.append(row["id"])
        self.quiet.set(row.time + timedelta(seconds=20))
        self.reminder.set(datetime(2100, 1, 1, tzinfo=UTC))

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        out.emit(customer=self.key[0], n=self.count.take(), ids=self.ids.get(), days=len(self.days), at=at)
        self.ids.clear()
