"""Steps as users write them, which the tests of `python` run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from typing_extensions import override

from tidegate.python import List, Map, Out, Row, Settings, Step, Timer, Value

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
                row["n"] = 1  # type: ignore[index]  # a mistake on purpose
            case "time":
                _ = row.time
            case "text":
                self.clicks.set("one")  # type: ignore[arg-type]  # as above
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
            case "interrupt":
                raise KeyboardInterrupt
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


class Sessions(Step):
    """Counts the rows of a session, which ends when no row has come for a time."""

    rows = Value("bigint", default=0)
    quiet = Timer("event-time")

    @override
    def open(self, settings: Settings) -> None:
        self.gap = settings.duration("gap")

    @override
    def process(self, row: Row, out: Out) -> None:
        if row["n"] == 0:
            self.quiet.clear()
            return
        self.rows.set(self.rows.get() + 1)
        self.quiet.set(row.time + self.gap)
        if row["n"] < 0:
            raise ValueError("a row that fails")

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        if self.rows.get() == 13:
            self.rows.set(0)
            self.quiet.set(at)
            out.emit(user="nobody", clicks=0)
            raise ValueError("a timer that fails")
        out.emit(user=self.key[0], clicks=self.rows.take())
        if self.quiet.get() is not None:
            raise AssertionError("it is gone when it fires")


class Expiring(Sessions):
    """Has a `ttl` besides timers."""

    seen = Value("boolean", ttl="1s")

    @override
    def process(self, row: Row, out: Out) -> None:
        super().process(row, out)
        self.seen.set(True)


class Beats(Step):
    """Emits a row each second of event time and each minute of the clock, three times."""

    beats = Value("bigint", default=0)
    later = Timer("event-time")
    minute = Timer("clock")

    @override
    def process(self, row: Row, out: Out) -> None:
        self.later.set(row.time + timedelta(seconds=row["n"]))
        self.minute.set(self.now() + timedelta(minutes=1))

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        self.beats.set(self.beats.get() + 1)
        out.emit(user=name, clicks=int(at.timestamp()))
        if name == "later" and self.beats.get() < 1000:
            self.later.set(at + timedelta(seconds=1))
        if name == "minute":
            self.minute.set(at)


class Seen(Step):
    """Knows the values of `n` of a key with a map, and their order with a list."""

    seen: Map[int, datetime] = Map("bigint", "timestamp")
    order = List("bigint")

    @override
    def process(self, row: Row, out: Out) -> None:
        n = row["n"]
        if n == 100:
            self.seen.clear()
            self.order.clear()
        elif n == 101:
            self.order.set(self.order.get()[-2:])
        elif n == 102:
            for key in list(self.seen):
                if key % 2:
                    del self.seen[key]
        elif n < 0:
            self.order.append(n)
            raise ValueError("a row that fails")
        elif n > 102:
            self.seen[n] = EPOCH
            self.seen.delete(1)
            self.order.set([n])
            self.order.append(n)
            raise ValueError("a row that fails")
        elif n not in self.seen:
            self.seen[n] = EPOCH + timedelta(days=n)
            self.order.append(n)
        shown = ",".join(f"{key}:{value.day}" for key, value in self.seen.items())
        out.emit(user=f"{shown} {self.order.get()}", clicks=len(self.order) + len(self.seen))


class Forgetting(Step):
    """Counts rows, and forgets them after ten seconds of event time or of the clock."""

    by_time = Value("bigint", default=0, ttl="10s")
    by_clock = Value("bigint", default=0, ttl={"processing_time": "10s"})
    pages: Map[str, int] = Map("string", "bigint", ttl="10s")
    recent = List("bigint", ttl="10s")

    @override
    def process(self, row: Row, out: Out) -> None:
        self.by_time.set(self.by_time.get() + 1)
        self.by_clock.set(self.by_clock.get() + 1)
        self.pages[f"p{row['n']}"] = row["n"]
        self.recent.append(row["n"])
        shown = f"{self.by_time.get()} {self.by_clock.get()} {self.pages.keys()} {self.recent.get()}"
        out.emit(user=shown, clicks=len(self.pages) + len(self.recent))


class Scripted(Step):
    """Does what the digits of `n` say, one after the other, and emits everything that its key has."""

    value = Value("bigint", default=0)
    entries: Map[int, int] = Map("bigint", "bigint")
    elements = List("bigint")
    first = Timer("event-time")
    second = Timer("event-time")

    @override
    def process(self, row: Row, out: Out) -> None:
        for place, digit in enumerate(str(row["n"])):
            match digit:
                case "1":
                    self.value.set(self.value.get() + 1)
                case "2":
                    self.entries[place] = self.entries.get(place, 0) + 1
                case "3":
                    self.elements.append(place)
                case "4":
                    self.first.set(row.time + timedelta(milliseconds=10 * place))
                case "5":
                    self.second.set(row.time + timedelta(milliseconds=15))
                case "6":
                    self.first.clear()
                case "7":
                    self.entries.clear()
                    self.value.clear()
                case "8":
                    self.elements.set(self.elements.get()[place:])
                case "9":
                    out.emit(user="never", clicks=0)
                    raise ValueError("as the row says")
        self.show("row", out)

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        self.elements.append(100)
        self.value.set(self.value.get() + 10)
        if self.value.get() % 7 == 3:
            raise ValueError("as the value says")
        if name == "first" and self.value.get() % 3 == 0:
            self.second.set(at + timedelta(milliseconds=5))
        self.show(f"{name} {at.microsecond // 1000}", out)

    def show(self, what: str, out: Out) -> None:
        """Emits all state of the key."""
        text = f"{self.key[0]} {what} {self.entries.items()} {self.elements.get()} {len(self.elements)}"
        out.emit(user=text, clicks=self.value.get())
