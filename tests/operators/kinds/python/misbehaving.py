"""Steps that do what no step should do, by the text of the column `user`."""

from __future__ import annotations

import decimal
import os
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.python import Map, Out, Row, Step, Value


class Ends(Exception):
    """An exception that ends the process when it is shown."""

    @override
    def __str__(self) -> str:  # noqa: PLE0307  # on purpose
        sys.exit(9)


def recurse() -> None:
    """Never returns."""
    recurse()


class Rows(Step):
    """Counts the rows that do not fail."""

    clicks = Value("bigint", default=0)
    price = Value("decimal(12,2)")
    pages = Map("string", "bigint")

    @override
    def process(self, row: Row, out: Out) -> None:
        self.clicks.set(self.clicks.get() + 1)
        match row["user"]:
            case "recursion":
                recurse()
            case "memory":
                bytearray(1 << 50)
            case "text":
                raise Ends
            case "replaces":
                self.clicks = self.clicks.get() + 1  # type: ignore[assignment]  # a mistake on purpose
            case "context":
                decimal.getcontext().prec = 2
                os.environ["TIDEGATE_TEST_OF_MISBEHAVIOUR"] = "x"
            case "price":
                self.price.set(Decimal("1234567890.12"))
                assert self.price.get() == Decimal("1234567890.12")
            case "state":
                _ = self.pages["a"]
        out.emit(user=row["user"], clicks=self.clicks.get())


def endless(row: Row) -> Iterator[dict[str, Any]]:
    """Yields rows for ever if it is told to."""
    yield {"user": row["user"], "clicks": 1}
    while row["user"] == "endless":
        yield {"user": "more", "clicks": 2}


def silent(row: Row) -> None:
    """Emits nothing, ever."""


def change_in_place(frame: pl.DataFrame) -> pl.DataFrame:
    """Changes what it gets."""
    numbers = frame["n"]
    numbers[0] = 99
    frame[1, "n"] = 77
    frame.insert_column(0, frame["n"].alias("again"))
    frame.drop_in_place("n")
    return pl.DataFrame({"user": frame["user"], "clicks": frame["again"]})


class Batches(Step):
    """Counts the rows of batches that do not fail."""

    clicks = Value("bigint", default=0)

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        """Counts before it looks."""
        clicks = self.clicks.get_many(frame) + pl.Series(range(1, frame.height + 1))
        self.clicks.set_many(frame, clicks)
        for what in frame["user"]:
            match what:
                case "exit":
                    sys.exit(3)
                case "memory":
                    bytearray(1 << 50)
                case "recursion":
                    recurse()
                case "keys":
                    keys[0, "n"] = 5
        out.emit(pl.DataFrame({"user": frame["user"], "clicks": clicks}))
