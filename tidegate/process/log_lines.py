"""Writes log lines on a thread, so that no other thread ever waits for the output.

Standard error may be a pipe that is not read, a stopped terminal (Ctrl-S) or a full disk. Lines wait in a queue of
bounded size. Lines that do not fit or could not be written are counted, and a separate line reports their number.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TextIO


def discard(stream: TextIO) -> None:
    """Redirects the stream to nothing, so that later writes neither block nor fail.

    The exit of the interpreter writes to it, for example.
    """
    descriptor = find_descriptor(stream)
    if descriptor is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
    if stream is sys.stderr:  # a thread may be blocked in a write to it, holding the lock of its buffer
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        vars(sys)["__stderr__"] = sys.stderr  # the interpreter restores this one at its exit


def find_descriptor(stream: TextIO) -> int | None:
    """Returns the descriptor; None if there is none (io.UnsupportedOperation) or the stream is closed."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


Write = Callable[[int, str], None]
"""Writes one line, given its level and its text; may block. An exception is the reason why the line was not written."""

LINES_MAX: Final = 10_000
CHARACTERS_MAX: Final = 16 * 1024 * 1024
"""Limit for all waiting lines; a traceback may be long."""
END_S: Final = 5.0
"""How long the exit of the process waits for lines that are not written yet."""


class _Line(NamedTuple):
    level: int
    text: str


class LineHandler(logging.Handler):
    """Formats a record where it is logged, and passes its line to a thread that calls `write`.

    Lines keep their order. `flush` waits up to END_S, `close` does not wait.
    """

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write
        self._changed = threading.Condition()
        self._waiting: deque[_Line] = deque()
        """The first one is being written."""
        self._characters = 0
        self._dropped = 0
        self._failed = 0
        self._failure = ""
        """Why the last line was not written; empty if it was."""
        self._closed = False
        threading.Thread(target=self._run, name="log-writer", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues the line and returns at once. Called under the handler's lock."""
        with self._changed:
            if len(self._waiting) >= LINES_MAX or self._characters >= CHARACTERS_MAX:
                self._dropped += 1
                return
        try:
            text = self.format(record)
        except Exception as error:  # noqa: BLE001 - arguments that do not fit, or that raise when rendered
            place = f"{record.pathname}:{record.lineno}"
            text = self._render(logging.ERROR, f"what is logged at {place} cannot be formatted", error)
        with self._changed:
            self._tell_dropped()
            self._append(record.levelno, text)

    def flush(self) -> None:
        """Waits until all lines are written, up to END_S."""
        with self._changed:
            self._tell_dropped()
            self._changed.wait_for(lambda: not self._waiting, END_S)

    def close(self) -> None:
        """Closes the handler; the thread ends when it has written the waiting lines."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    @property
    def is_stuck(self) -> bool:
        """True if lines are waiting, or the last one could not be written."""
        with self._changed:
            return bool(self._waiting or self._failure)

    def _tell_dropped(self) -> None:
        if self._dropped:
            text = f"{self._dropped} log lines were dropped here: they come faster than they are read or written"
            self._dropped = 0
            self._append(logging.WARNING, self._render(logging.WARNING, text))

    def _append(self, level: int, text: str) -> None:
        self._waiting.append(_Line(level, text))
        self._characters += len(text)
        self._changed.notify_all()

    def _render(self, level: int, text: str, error: Exception | None = None) -> str:
        attributes: dict[str, object] = {
            "name": __name__,
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "msg": text,
        }
        if error is not None:
            attributes["exc_info"] = (type(error), error, error.__traceback__)
        return self.format(logging.makeLogRecord(attributes))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                line = self._waiting[0]
            self._try_writing(line)
            with self._changed:
                self._waiting.popleft()
                self._characters -= len(line.text)
                self._changed.notify_all()

    def _try_writing(self, line: _Line) -> None:
        try:
            if self._failed:
                text = f"{self._failed} log lines could not be written: {self._failure}"
                self._write(logging.WARNING, self._render(logging.WARNING, text))
                self._failed = 0
            self._write(*line)
        except Exception as error:  # noqa: BLE001 - only this line is lost; the next one that is written reports it
            self._failed += 1
            self._failure = str(error) or type(error).__name__
        else:
            self._failure = ""


class StreamLines:
    """Writes lines to a stream, or to its descriptor if it has one.

    The interpreter flushes standard error at its exit, and aborts if another thread is blocked in a write to its
    buffer.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = find_descriptor(stream)
        self._encoding, self._errors = stream.encoding or "utf-8", stream.errors or "backslashreplace"
        self._is_torn = False
        """True if only a part of the last line was written."""

    def __call__(self, _level: int, text: str) -> None:
        """Writes a line; blocks while the reader does. Raises OSError."""
        if self._descriptor is None:
            self._stream.write(f"{text}\n")
            self._stream.flush()
            return
        start = "\n" if self._is_torn else ""
        rest = memoryview(f"{start}{text}\n".encode(self._encoding, self._errors))
        while rest:
            try:
                written = os.write(self._descriptor, rest)
            except BlockingIOError:  # another process sharing the pipe or terminal made it non-blocking
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
                continue
            rest = rest[written:]
            self._is_torn = bool(rest)
