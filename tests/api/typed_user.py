"""What a user writes, as a type checker sees it: mypy reports a wrong type, and each mistake that it must find.

It is checked with the project, and by `test_typing.py` as a file of a user; the functions are never called.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

import polars as pl
from typing_extensions import override

import tidegate
from tidegate.python import List, Map, Out, Row, Settings, Step, Timer, Value


class Visits(Step):
    """Counts clicks until a user is quiet."""

    version = 2
    clicks = Value("bigint", default=0)
    last = Value("timestamp")
    pages = Map("string", "timestamp", ttl="30d")
    recent = List("string")
    quiet = Timer("event-time")
    gap: timedelta

    @override
    def open(self, settings: Settings) -> None:
        self.gap = assert_type(settings.duration("gap"), timedelta)

    @override
    def process(self, row: Row, out: Out) -> None:
        assert_type(self.clicks.get(), int)
        assert_type(self.last.get(), datetime | None)
        assert_type(self.pages.get("/"), datetime | None)
        assert_type(self.recent.get(), list[str])
        assert_type(self.now(), datetime)
        assert_type(self.key, tuple[Any, ...])
        self.clicks.set(self.clicks.get() + 1)
        self.pages["/"] = row.time
        self.quiet.set(row.time + self.gap)
        out.emit(user=row["user"], clicks=self.clicks.take())
        out.to("ended", {**row, "at": row.time})
        self.clicks.set("one")  # type: ignore[arg-type]  # a mistake that is found
        self.recent.append(1)  # type: ignore[arg-type]  # a mistake that is found
        self.quiet.set(5)  # type: ignore[arg-type]  # a mistake that is found
        self.quiet.clar()  # type: ignore[attr-defined]  # a mistake that is found

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        out.emit(at=at)


def double(row: Row, settings: Settings) -> dict[str, object]:
    """A function of a row."""
    return {"twice": 2 * row["n"], "unit": settings["unit"]}


def use(frame: pl.DataFrame) -> None:
    """Uses a pipeline from Python."""
    pipeline = assert_type(tidegate.load("orders.yaml"), tidegate.Pipeline)
    result = assert_type(pipeline.test({"orders": frame}, at="visits", watermark=None), tidegate.Frames)
    assert_type(result["visits"], pl.DataFrame)
    assert_type(result.bad_records, dict[str, int])
    assert_type(pipeline.test({"orders": [{"id": 1}]}, now=datetime(2026, 1, 1))["out"], pl.DataFrame)  # noqa: DTZ001  # as users do
    assert_type(pipeline.explain(), str)
    assert_type(pipeline.explain(format="json"), dict[str, Any])
    assert_type(pipeline.columns("visits"), dict[str, str])
    assert_type(pipeline.run_cases(), list[tidegate.CaseReport])
    pipeline.tesst({})  # type: ignore[attr-defined]  # a mistake that is found
    pipeline.test({"orders": 5})  # type: ignore[dict-item]  # a mistake that is found
    pipeline.test({}, watermark="start")  # type: ignore[arg-type]  # a mistake that is found
    tidegate.lod("orders.yaml")  # type: ignore[attr-defined]  # a mistake that is found
