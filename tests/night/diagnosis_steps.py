"""User code of the story `diagnosis`, next to the pipeline files of its situations."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from tidegate.python import Out, Row, Settings, Step, Value

POISON = "poison"
ROW_S = 0.004
BLOB_BYTES = 1 << 19
_never = threading.Event()


def die_of_poison(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ends the process at a certain record, as a library in C that crashes does."""
    if row["key"] == POISON:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"id": row["id"], "key": row["key"]}


class Slow(Step):
    """Takes four milliseconds a row."""

    count = Value("bigint", default=0)

    def process(self, row: Row, out: Out) -> None:
        _never.wait(ROW_S)
        self.count.set(self.count.get() + 1)
        out.emit(id=row["id"], key=row["key"])


class Hoarder(Step):
    """Keeps a megabyte for each key, and another one after each row."""

    blob = Value("string", default="")

    def open(self, settings: Settings) -> None:
        """Needs no settings."""

    def process(self, row: Row, out: Out) -> None:
        self.blob.set(os.urandom(BLOB_BYTES).hex())
        out.emit(id=row["id"], key=row["key"])
