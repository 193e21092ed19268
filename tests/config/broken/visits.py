"""What `74_python.yaml` and `74_python_batches.yaml` name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from typing_extensions import override

from tidegate.python import List, Map, Out, Row, Settings, Step, Timer, Value


class Visits(Step):
    """With state, and one row at a time."""

    clicks = Value("bigint", default=0)

    @override
    def process(self, row: Row, out: Out) -> None:
        """Does nothing."""


class Sessions(Step):
    """With all kinds of state and a timer, for rows and for batches."""

    clicks = Value("bigint")
    urls = List("string")
    pages: Map[str, int] = Map("string", "bigint")
    quiet = Timer("event-time")

    @override
    def open(self, settings: Settings) -> None:
        """Does nothing."""

    @override
    def process(self, row: Row, out: Out) -> None:
        """Does nothing."""

    @override
    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        """Does nothing."""

    def process_batch(self, keys: Any, frame: Any, out: Out) -> None:
        """Does nothing."""


class Totals(Step):
    """Batches with keys, and no single rows."""

    total = Value("bigint")

    def process_batch(self, keys: Any, frame: Any, out: Out) -> None:
        """Does nothing."""


class Scored(Step):
    """Batches without keys, and no single rows."""

    def process_batch(self, frame: Any, out: Out) -> None:
        """Does nothing."""


class Other:
    """A class of something else."""

    def __call__(self, row: object) -> None:
        """Does nothing."""


def score(row: object) -> None:
    """A function without settings."""


async def resolve(row: object) -> None:
    """A function for `async`."""
