"""Logs line by line what Spark's driver JVM, and the Python workers below it, print.

The JVM writes to a pipe, and a thread reads it. Known messages of a start are logged at debug level; anything else is
unexpected and logged as a warning. The last lines are kept for the message when Spark does not start.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

logger = logging.getLogger("spark")

TAIL_LINES: Final = 20
LINE_BYTES_MAX: Final = 8192
READ_BYTES: Final = 65_536
CHATTER: Final = re.compile(
    r"WARNING: (Using incubator modules|package |A terminally deprecated|A restricted method|sun\.misc\.Unsafe|"
    r"java\.lang\.|Please consider reporting|Use --enable-native|Restricted methods)"
    r"|Using Spark's |Setting (default|Spark) log level|To adjust logging level|NOTE: |Picked up "
)
LATE_WORK: Final = re.compile(r"java\.util\.concurrent\.RejectedExecutionException: .*\[(Shutting down|Terminated), ")
"""Spark's pools are notified of tasks that end while the pools are being closed.

Applies only at the end of a session.
"""
TRACE_PARTS: Final = ("\tat ", "\t... ", "Caused by: ")


class JvmOutput:
    """The read end of the pipe. `writer()` provides the descriptor for the JVM's stdout and stderr, once."""

    def __init__(self) -> None:
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._ending = False
        self._hushed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def writer(self) -> Iterator[int]:
        """Opens the pipe while the JVM is started; the write end is then closed, so that the JVM's exit ends it."""
        read, write = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(read,), name="jvm-output", daemon=True)
        self._thread.start()
        try:
            yield write
        finally:
            os.close(write)

    @property
    def tail(self) -> str:
        """The last unexpected lines; may be empty."""
        return "\n".join(self._tail)

    def session_ends(self) -> None:
        """Treats work that is too late for Spark's pools, with its stack trace, as a known message from now on."""
        self._ending = True

    def wait_end(self, timeout_s: float) -> None:
        """Waits until all output of an ended JVM has been read."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, read: int) -> None:
        rest = b""
        while chunk := os.read(read, READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tell(line)
            if len(rest) > LINE_BYTES_MAX:
                self._tell(rest)
                rest = b""
        self._tell(rest)
        os.close(read)

    def _tell(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode(errors="replace").rstrip()
        if not text:
            return
        if self._is_chatter(text):
            logger.debug("%s", text)
            return
        self._tail.append(text)
        logger.warning("%s", text)

    def _is_chatter(self, text: str) -> bool:
        if not text.startswith(TRACE_PARTS):
            self._hushed = self._ending and LATE_WORK.match(text) is not None
        return self._hushed or CHATTER.match(text) is not None
