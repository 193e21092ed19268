"""What waits in front of a sink's client: encoded rows and barriers, in order, and how much more it may be. Pure.

What a sink was given must be sent before the next barrier, and nothing overtakes it here. So it takes only what fits
into the client, and the rest waits in the channels, where barriers overtake it (ADR 14).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from tidegate.formats.records import OutputRecords
from tidegate.ids import CheckpointId

WAITING_BYTES_MAX: Final = 8 << 20
"""Bounds what waits here, together with the size of the client's queue; one batch is always taken."""


class QueuedBarrier(msgspec.Struct, frozen=True):
    """A barrier between rows."""

    checkpoint: CheckpointId
    at_s: float
    """When it came, by the monotonic clock."""


class Backlog:
    """See the module. `queue_max`: how many records the client holds."""

    def __init__(self, queue_max: int) -> None:
        self._queue_max = queue_max
        self._room_min = max(1, queue_max // 4)
        self._waiting: deque[OutputRecords | QueuedBarrier] = deque()
        self._place = 0
        self._rows = 0
        self._bytes = 0
        self._blocked = False

    def add(self, rows: OutputRecords) -> None:
        """Rows to be written."""
        if len(rows):
            self._waiting.append(rows)
            self._rows += len(rows)
            self._bytes += rows.size_bytes

    def add_barrier(self, barrier: QueuedBarrier) -> None:
        """What is here belongs to its checkpoint, what comes does not."""
        self._waiting.append(barrier)

    @property
    def head(self) -> OutputRecords | QueuedBarrier | None:
        """What is next."""
        return self._waiting[0] if self._waiting else None

    @property
    def place(self) -> int:
        """Index of the first row of the head that is not written."""
        return self._place

    @property
    def has_barrier(self) -> bool:
        """Whether somebody waits for what is in front."""
        return any(isinstance(each, QueuedBarrier) for each in self._waiting)

    def pass_barrier(self) -> None:
        """Its checkpoint's rows are all written."""
        self._waiting.popleft()

    def advance(self, place: int) -> bool:
        """The rows of the head up to index `place` are written. Whether all are: else the client is full."""
        head = self._waiting[0]
        assert isinstance(head, OutputRecords)
        self._rows -= place - self._place
        self._place = place
        self._blocked = place < len(head)
        if self._blocked:
            return False
        self._waiting.popleft()
        self._place = 0
        self._bytes -= head.size_bytes
        return True

    def room(self, client_room: int | None) -> int:
        """Rows that may come: those that the client has room for, 0 until that is a quarter of what it holds.

        `client_room` is None while there is no client to write to, but one to come.
        """
        if self._blocked or self._bytes >= WAITING_BYTES_MAX:
            return 0
        room = (self._queue_max if client_room is None else client_room) - self._rows
        return room if room >= self._room_min else 0
