"""Logs what user code in a slot prints, line by line, with the name of its step.

Otherwise it would reach the standard error of Spark's executor at some time, or be lost in a buffer when the process
ends. What a library in C or a child process writes still goes there.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import override

from tidegate.process.logs import MESSAGE_CHARACTERS_MAX
from tidegate.user_code.running import RUNNING, RunningCode

logger = logging.getLogger(__name__)

_inside = threading.local()
"""`logging` is true on a thread while it logs a line."""


class PrintedLines(io.TextIOBase):
    """A text stream whose lines are logged at a level. Any thread may print."""

    def __init__(self, level: int, running: RunningCode = RUNNING) -> None:
        self._level = level
        self._running = running
        self._local = threading.local()
        """`rest`: the line of a thread that is not complete."""

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, text: str, /) -> int:
        """Logs the lines that are complete; a very long one in parts."""
        *lines, rest = (self._take_rest() + text).split("\n")
        for line in lines:
            self._log(line)
        while len(rest) > MESSAGE_CHARACTERS_MAX:
            self._log(rest[:MESSAGE_CHARACTERS_MAX])
            rest = rest[MESSAGE_CHARACTERS_MAX:]
        self._local.rest = rest
        return len(text)

    @override
    def flush(self) -> None:
        """Logs a line that is not complete."""
        self._log(self._take_rest())

    def _take_rest(self) -> str:
        rest: str = getattr(self._local, "rest", "")
        self._local.rest = ""
        return rest

    def _log(self, line: str) -> None:
        """Logs a line. What `logging` itself prints, such as the error of a handler, goes to the process's stream."""
        if not line.strip():
            return
        if getattr(_inside, "logging", False):
            if sys.__stderr__ is not None:
                print(line, file=sys.__stderr__)
            return
        _inside.logging = True
        try:
            step = self._running.step_here
            logger.log(self._level, "%s: %s", f"step {step}" if step else threading.current_thread().name, line)
        finally:
            _inside.logging = False


@contextmanager
def log_printed_lines() -> Iterator[None]:
    """Replaces the standard streams of the process: output is logged at INFO, errors at WARNING."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = output, errors = PrintedLines(logging.INFO), PrintedLines(logging.WARNING)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        output.flush()
        errors.flush()
