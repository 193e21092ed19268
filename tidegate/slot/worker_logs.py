"""Sends a slot's logs to the daemon: the handler never blocks the slot loop and never fills its memory.

Records travel on the control connection with everything else. While too many messages are queued there, further records
are dropped and counted, and a warning with their number precedes the next record that is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tidegate.process.logs import quiet_libraries, redact, render_exception, shorten
from tidegate.task.messages import LogRecord

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
