"""Steps as users write them, which the tests of `python` run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar

from typing_extensions import override

from tidegate.python import Out, Row, Settings, Step, Value


class Visits(Step):
    """Counts rows per key. A row with `n` below zero raises after it has written and emitted."""

    clicks = Value("bigint", default=0)

    @override
    def process(self, row: Row, out: Out) -> None:
        self.clicks.set(self.clicks.get() + 1)
        out.emit(user=row["user"], clicks=self.clicks.get())
        if row["n"] < 0:
            raise ValueError(f"no {row['n']}")


class Typed(Step):
    """Keeps a value of every type, and emits what it has kept before."""

    price = Value("decimal(10,2)")
    at = Value("timestamp")
    local = Value("timestamp_ntz")
    day = Value("date")
    share = Value("double")
    small = Value("float")
    parts = Value("array<struct<name: string, n: int>>")
    counts = Value("map<string, bigint>")
    raw = Value("binary")
    flag = Value("boolean", default=False)
    NAMES: ClassVar = ("price", "at", "local", "day", "share", "small", "parts", "counts", "raw", "flag")

    @override
    def process(self, row: Row, out: Out) -> None:
        out.emit({name: getattr(self, name).get() for name in self.NAMES})
        for name in self.NAMES:
            if row[name] is not None:
                getattr(self, name).set(row[name])


class Split(Step):
    """Emits every word of a text on the output `words`, and whether there are any on the main one."""

    @override
    def open(self, settings: Settings) -> None:
        self.longest = settings.duration("gap", "5s")
        self.separator = settings["separator"]

    @override
    def process(self, row: Row, out: Out) -> None:
        words = row["user"].split(self.separator) if row["user"] else []
        for word in words:
            out.to("words", word=word, n=row["n"])
        out.emit({"user": row["user"], "clicks": len(words)})


class Taking(Step):
    """Tries what a step may not do, by the text of the column `user`; what it raises fails the row."""

    clicks = Value("bigint", default=0)
    name = Value("string")

    @override
    def process(self, row: Row, out: Out) -> None:
        self.clicks.set(self.clicks.get() + 1)
        match row["user"]:
            case "change":
                row["n"] = 1
            case "time":
                _ = row.time
            case "text":
                self.clicks.set("one")  # type: ignore[arg-type]  # a mistake on purpose
            case "none":
                self.clicks.set(None)  # type: ignore[arg-type]  # as above
            case "half":
                self.name.set("\ud83d")
            case "wrong":
                out.emit(user=1, clicks=1)
            case "missing":
                out.emit(user="x")
            case "output":
                out.to("nowhere", user="x")
            case "row":
                out.emit([1])  # type: ignore[arg-type]  # as above
            case "exit":
                raise SystemExit(3)
            case "thread":
                _raise_in_thread(lambda: self.clicks.set(5))
            case "silent":
                raise Silent
        out.emit(user=row["user"], clicks=self.clicks.get())


class Silent(Exception):
    """An exception whose text cannot be had."""

    @override
    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise_in_thread(call: Any) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001  # raised again below
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]


class Lives(Step):
    """Records when it is opened and closed."""

    calls: ClassVar[list[str]] = []
    seen = Value("bigint", default=0)

    @override
    def open(self, settings: Settings) -> None:
        self.calls.append(f"open {dict(settings)}")
        if settings.get("read"):
            self.seen.get()

    @override
    def process(self, row: Row, out: Out) -> None:
        self.calls.append("process")
        out.emit(user=f"{self.key} {self.now():%H:%M} {self.watermark}", clicks=self.seen.take())
        self.seen.set(7)

    @override
    def close(self) -> None:
        self.calls.append("close")


def double(row: Row) -> dict[str, Any] | None:
    """A row for each row with a user."""
    return {"user": row["user"], "clicks": row["n"] * 2, "more": "is ignored"} if row["user"] else None


def repeat(row: Row, settings: Settings) -> Iterator[dict[str, Any]]:
    """As many rows as a setting says."""
    for number in range(settings["times"]):
        yield {"user": row["user"], "clicks": number}
        if row["n"] < 0:
            raise KeyError("below zero")


def many(row: Row) -> list[dict[str, Any]]:
    """As many rows as `n`."""
    return [{"user": row["user"], "clicks": number} for number in range(row["n"])]


def wrong(row: Row) -> Any:
    """What no function may return."""
    return row["user"]


def later(row: Row) -> dict[str, Any]:
    """The event time in an hour."""
    return {"user": (row.time + timedelta(hours=1)).isoformat(), "clicks": 1}
