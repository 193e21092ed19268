"""The queue in front of a sink's client: encoded rows and barriers, in order, with a limit. Pure.

Everything given to a sink must be sent before the next barrier, and nothing overtakes it here. So a sink takes only
what fits into the client, and the rest waits in the channels, where barriers can overtake it (ADR 14).
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from tidegate.formats.records import OutputRecords
from tidegate.ids import CheckpointId

WAITING_BYTES_MAX: Final = 16 << 20
"""Limit of the memory that the queue occupies, in addition to the client's queue; one batch is always accepted."""


class QueuedBarrier(msgspec.Struct, frozen=True):
    """A barrier between rows."""

    checkpoint: CheckpointId
    at_s: float
    """When it arrived, by the monotonic clock."""


class Backlog:
    """Rows and barriers to be written by one client. `queue_max` is the number of records that the client holds."""

    def __init__(self, queue_max: int) -> None:
        self._queue_max = queue_max
        self._room_min = max(1, queue_max // 4)
        self._waiting: deque[OutputRecords | QueuedBarrier] = deque()
        self._place = 0
        self._rows = 0
        self._bytes = 0
        self._blocked = False

    def add(self, rows: OutputRecords) -> None:
        """Queues rows to be written."""
        if len(rows):
            self._waiting.append(rows)
            self._rows += len(rows)
            self._bytes += rows.memory_bytes

    def add_barrier(self, barrier: QueuedBarrier) -> None:
        """Queues a barrier: earlier rows belong to its checkpoint, later ones do not."""
        self._waiting.append(barrier)

    @property
    def head(self) -> OutputRecords | QueuedBarrier | None:
        """The next rows or barrier."""
        return self._waiting[0] if self._waiting else None

    @property
    def place(self) -> int:
        """Index of the first row of the head that is not written."""
        return self._place

    @property
    def has_barrier(self) -> bool:
        """Whether a barrier waits for the rows in front of it."""
        return any(isinstance(each, QueuedBarrier) for each in self._waiting)

    def pass_barrier(self) -> None:
        """Removes the barrier at the head; its checkpoint's rows are all written."""
        self._waiting.popleft()

    def advance(self, place: int) -> bool:
        """Records that the rows of the head up to index `place` are written.

        Returns whether all of them are; otherwise the client is full.
        """
        head = self._waiting[0]
        assert isinstance(head, OutputRecords)
        self._rows -= place - self._place
        self._place = place
        self._blocked = place < len(head)
        if self._blocked:
            return False
        self._waiting.popleft()
        self._place = 0
        self._bytes -= head.memory_bytes
        return True

    def room(self, client_room: int | None) -> int:
        """Returns the rows that may be added: the client's free room, or 0 until a quarter of its queue is free.

        `client_room` is None while the next client is not open yet.
        """
        if self._blocked or self._bytes >= WAITING_BYTES_MAX:
            return 0
        room = (self._queue_max if client_room is None else client_room) - self._rows
        return room if room >= self._room_min else 0
