"""Steps in Python as a user writes them, for `shapes/python_steps.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.python import List, Map, Out, Row, Settings, Step, Timer, Value

MS: Final = timedelta(milliseconds=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Visits(Step):
    """Numbers the records of a key, passes them on once more after a pause, and reports when none has come for a while.

    A record that fails has written to every state by then, and so has a timer that fails.
    """

    number = Value("bigint", default=0)
    times: Map[int, int] = Map("bigint", "bigint")
    """Event time -> records, until the silence after them has been reported."""
    waiting = List("bigint")
    silent = Timer("event-time")
    fails = Timer("event-time")
    flush = Timer("clock")

    @override
    def open(self, settings: Settings) -> None:
        self.gap = settings.duration("gap")
        self.pause = settings.duration("pause")
        self.fails_of: int = settings["fails_of"]

    @override
    def process(self, row: Row, out: Out) -> None:
        fails = row["id"] % self.fails_of in (3, 6)
        if not fails and self.watermark is not None and row.time <= self.watermark:
            out.to("behind", id=row["id"])
            return
        self._count(row)
        out.emit(id=row["id"], sku=row["sku"], number=self.number.get())
        if row["id"] % self.fails_of == 3:
            raise ValueError(f"record {row['id']} cannot be processed")
        if fails:
            out.emit(id=str(row["id"]), sku=row["sku"], number=0)

    def _count(self, row: Row) -> None:
        number = self.number.get() + 1
        self.number.set(number)
        at_ms = (row.time - EPOCH) // MS
        self.times[at_ms] = self.times.get(at_ms, 0) + 1
        self.waiting.append(row["id"])
        due, before = row.time + self.gap, self.silent.get()
        if before is None or due < before:
            self.silent.set(due)
        if number == 1:
            self.fails.set(due)
        if self.flush.get() is None:
            self.flush.set(self.now() + self.pause)

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        if name == "silent":
            self._report(at, out)
        elif name == "fails":
            self._fail(out)
        else:
            for number in self.waiting.get():
                out.to("again", id=number, sku=self.key[0])
            self.waiting.clear()

    def _report(self, at: datetime, out: Out) -> None:
        """Reports the silences up to `at`, and sets the timer for the end of the next one."""
        times = self.times.items()
        visit: list[tuple[int, int]] = []
        for index, (at_ms, records) in enumerate(times):
            visit.append((at_ms, records))
            if index + 1 < len(times) and (times[index + 1][0] - at_ms) * MS <= self.gap:
                continue
            due = EPOCH + at_ms * MS + self.gap
            if due > at:
                self.silent.set(due)
                return
            out.to("silent", sku=self.key[0], last_ms=at_ms, records=sum(count for _, count in visit))
            for one, _ in visit:
                del self.times[one]
            visit = []

    def _fail(self, out: Out) -> None:
        self.number.set(-100)
        self.waiting.clear()
        self.times.clear()
        self.silent.clear()
        self.flush.clear()
        out.to("silent", sku=self.key[0], last_ms=0, records=0)
        raise RuntimeError("this timer always fails")


class Numbers(Step):
    """Numbers the records of each key, a batch at a time. A batch with a record that fails has written its state."""

    number = Value("bigint", default=0)

    @override
    def open(self, settings: Settings) -> None:
        self.fails_of: int = settings["fails_of"]

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        """Numbers a batch."""
        newest = dict(zip(keys["sku"], self.number.get_many(keys), strict=True))
        numbers = []
        for sku in frame["sku"]:
            newest[sku] += 1
            numbers.append(newest[sku])
        self.number.set_many(keys, pl.Series(list(newest.values()), dtype=pl.Int64))
        out.emit(pl.DataFrame([frame["id"], frame["sku"], pl.Series("number", numbers, dtype=pl.Int64)]))
        failing = [one for one in frame["id"] if one % self.fails_of == 3]
        if failing:
            raise ValueError(f"records {failing} cannot be processed")
