"""A step that does what no step should do, as its rows tell it. Sent to the slots by `test_misbehaving_code.py`."""

from __future__ import annotations

import decimal
import os
import sys
import threading
import time
from pathlib import Path

from typing_extensions import override

from tidegate.python import Out, Row, Settings, Step, Value

GONE = bytearray()


class Visits(Step):
    """Counts the rows of a user that do not fail."""

    visits = Value("bigint", default=0)

    @override
    def open(self, settings: Settings) -> None:
        self.place = Path(settings["place"])

    @override
    def process(self, row: Row, out: Out) -> None:
        self.visits.set(self.visits.get() + 1)
        what = row["what"]
        if what != "fine":
            getattr(self, what)()
        out.emit(n=row["n"], visits=self.visits.get())

    def prints(self) -> None:
        """Prints on both streams, and directly."""
        print("hello from", self.key[0])
        print("and an error", file=sys.stderr)
        os.write(1, b"past Python\n")

    def exits(self) -> None:
        """Asks the process to exit."""
        sys.exit(3)

    def recurses(self) -> None:
        """Never returns."""
        self.recurses()

    def allocates(self) -> None:
        """Asks for more memory than any machine has."""
        GONE.extend(bytearray(1 << 50))

    def meddles(self) -> None:
        """Changes the process, and starts a thread that outlives the row."""
        os.environ["PATH"] = "/nowhere"
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        os.chdir("/")
        decimal.getcontext().prec = 2
        sys.setrecursionlimit(500)
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def blocks(self) -> None:
        """Waits for a file."""
        while not (self.place / "released").exists():
            threading.Event().wait(0.05)

    def ends(self) -> None:
        """Ends the process, once."""
        if not (self.place / "ended").exists():
            (self.place / "ended").touch()
            os._exit(7)
