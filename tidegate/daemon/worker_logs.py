"""Logs of a slot on their way to the daemon: a handler that never blocks the slot loop.

Records are turned into messages where they are made, queued up to a bound and handed over by a thread of their own.
What does not fit is dropped and counted, and the next message that does go says how many.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Final

from tidegate.daemon.logs import quiet_libraries, redact, render_exception, shorten
from tidegate.task.messages import LogRecord

QUEUE_RECORDS_MAX: Final = 1000
CLOSE_TIMEOUT_S: Final = 2.0


class SlotLogHandler(logging.Handler):
    """Hands records to `deliver`, called from the handler's own thread; it may block and may raise OSError.

    `capacity` records wait at most. Records that `deliver` itself logs are not forwarded: they would never end.
    """

    def __init__(self, deliver: Callable[[LogRecord], None], capacity: int = QUEUE_RECORDS_MAX) -> None:
        super().__init__()
        self.dropped = 0
        """Records lost since the start, for a full queue or a broken connection."""
        self._deliver = deliver
        self._told = 0
        self._waiting: queue.Queue[LogRecord | None] = queue.Queue(capacity)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slot-logs", daemon=True)
        self._thread.start()

    def install(self, level: int) -> None:
        """Make this the only handler of the process, from `level` on."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(level)
        quiet_libraries(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the record or count it as dropped; called under the handler's lock."""
        if threading.current_thread() is self._thread:
            return
        try:
            self._waiting.put_nowait(_derive_message(record))
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Deliver what waits, for CLOSE_TIMEOUT_S at most."""
        if not self._closing.is_set():
            self._closing.set()
            with contextlib.suppress(queue.Full):  # a full queue ends the thread by the flag, when it is empty
                self._waiting.put_nowait(None)
            self._thread.join(CLOSE_TIMEOUT_S)
        super().close()

    def _run(self) -> None:
        while not (self._closing.is_set() and self._waiting.empty()):
            message = self._waiting.get()
            if message is None:
                return
            self._hand_over(message)
            lost = self.dropped
            if lost > self._told:
                text = f"{lost - self._told} log records of this slot were dropped: it logs faster than it can send"
                self._hand_over(LogRecord(logging.WARNING, __name__, text, message.time_ms))
                self._told = lost

    def _hand_over(self, message: LogRecord) -> None:
        try:
            self._deliver(message)
        except OSError:
            self.dropped += 1  # the connection is gone; the slot finds that out by itself and ends


def _derive_message(record: logging.LogRecord) -> LogRecord:
    return LogRecord(
        level=record.levelno,
        logger=record.name,
        message=redact(shorten(record.getMessage())),
        time_ms=int(record.created * 1000),
        exception=redact(render_exception(record)),
    )
