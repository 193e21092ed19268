"""Sends a slot's logs to the daemon: the handler never blocks the slot loop and never fills its memory.

Records travel on the control connection with everything else. While too many messages are queued there, further records
are dropped and counted, and a warning with their number precedes the next record that is sent.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

from tidegate.process.logs import MESSAGE_CHARACTERS_MAX, quiet_libraries, redact, render_exception, shorten
from tidegate.task.messages import LogRecord
from tidegate.user_code.running import RUNNING, RunningCode

WAITING_MAX: Final = 1000


class SlotLogHandler(logging.Handler):
    """A handler that passes records to `send`, which must return at once.

    `waiting` returns how many messages are not sent yet. From `capacity` on, records are dropped: heartbeats and acks
    share the connection.
    """

    def __init__(
        self, send: Callable[[LogRecord], None], waiting: Callable[[], int], capacity: int = WAITING_MAX
    ) -> None:
        super().__init__()
        self.dropped = 0
        """Records lost since the start."""
        self._send = send
        self._waiting = waiting
        self._capacity = capacity
        self._told = 0

    def install(self, level: int) -> None:
        """Makes this the only handler of the process, from `level` on."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(level)
        quiet_libraries(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Sends the record or counts it as dropped; called under the handler's lock."""
        if self._waiting() >= self._capacity:
            self.dropped += 1
            return
        try:
            message = _derive_message(record)
        except Exception:  # noqa: BLE001 - arguments that do not fit the message, or whatever they raise when shown
            self.handleError(record)
            return
        if self.dropped > self._told:
            text = f"{self.dropped - self._told} log records of this slot were dropped: it logs faster than it can send"
            self._send(LogRecord(logging.WARNING, __name__, text, message.time_ms))
            self._told = self.dropped
        self._send(message)


def _derive_message(record: logging.LogRecord) -> LogRecord:
    return LogRecord(
        level=record.levelno,
        logger=record.name,
        message=shorten(redact(record.getMessage())),
        time_ms=int(record.created * 1000),
        exception=render_exception(record),
    )


logger = logging.getLogger(__name__)

_inside = threading.local()
"""`logging` is true on a thread while it logs a line."""


class PrintedLines(io.TextIOBase):
    """A text stream that logs what user code prints, line by line, with the name of its step. Any thread may print.

    Otherwise the output would reach the standard error of Spark's executor at some time, or be lost in a buffer when
    the process ends. What a library in C or a child process writes still goes there.
    """

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
