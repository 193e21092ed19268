"""Channels between subtasks: bounded queues with credits in bytes. No sockets here.

The receiver grants `CREDIT_BYTES` and grants anew what it has consumed, so it always has room for what is on its way.
A sender with credit may send one whole frame, whatever its size; control elements cost nothing, since their number is
bounded by the checkpoints in flight. A blocked channel keeps receiving up to its credit (C35), the others go on.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from tidegate.task.elements import Batch, Element
from tidegate.task.wire import Kind, encode_element

CREDIT_BYTES: Final = 2 << 20
QUEUE_BYTES_MAX: Final = 1 << 20
"""A sender with more than this waiting takes no new input (backpressure)."""


class InputChannel:
    """The receiving end: elements in the order in which they were sent."""

    __slots__ = ("_consumed", "_elements", "queued_bytes")

    def __init__(self) -> None:
        self._elements: deque[Element] = deque()
        self._consumed = 0
        self.queued_bytes = 0

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def next_is_batch(self) -> bool:
        """Whether the oldest element is data; the queue must not be empty."""
        return isinstance(self._elements[0], Batch)

    def push(self, element: Element) -> None:
        """Append what arrived."""
        self._elements.append(element)
        if isinstance(element, Batch):
            self.queued_bytes += element.size_bytes

    def pop(self) -> Element:
        """Take the oldest element; its bytes become credit for the sender."""
        element = self._elements.popleft()
        if isinstance(element, Batch):
            self.queued_bytes -= element.size_bytes
            self._consumed += element.size_bytes
        return element

    def take_credit(self) -> int:
        """Bytes to grant anew: 0 until a quarter of the credit is consumed, so that grants stay few."""
        if self._consumed < CREDIT_BYTES // 4:
            return 0
        granted, self._consumed = self._consumed, 0
        return granted


class OutputChannel(Protocol):
    """The sending end."""

    def emit(self, element: Element) -> None:
        """Queue an element; never refuses (the caller asks `writable` before it takes new input)."""

    @property
    def writable(self) -> bool:
        """Whether the vertex may take another input batch."""


class LocalOutput:
    """To a subtask of the same slot: no serialisation."""

    def __init__(self, target: InputChannel) -> None:
        self._target = target

    def emit(self, element: Element) -> None:
        """Straight into the receiver's queue."""
        self._target.push(element)

    @property
    def writable(self) -> bool:
        """While the receiver's queue is below the credit."""
        return self._target.queued_bytes < CREDIT_BYTES


class RemoteOutput:
    """To a subtask of another slot: encoded at once, sent as credit allows. `sequence` numbers the frames."""

    def __init__(self, edge: int) -> None:
        self.edge = edge
        self.queued_bytes = 0
        self._frames: deque[tuple[Kind, bytes]] = deque()
        self._credit = CREDIT_BYTES
        self._sequence = 0

    def emit(self, element: Element) -> None:
        """Encode and queue."""
        kind, body = encode_element(element)
        self._frames.append((kind, body))
        self.queued_bytes += len(body)

    @property
    def writable(self) -> bool:
        """While little waits for credit or for the socket."""
        return self.queued_bytes < QUEUE_BYTES_MAX

    def grant(self, credit: int) -> None:
        """The receiver has consumed `credit` bytes."""
        self._credit += credit

    def take(self) -> tuple[Kind, int, bytes] | None:
        """The next frame that may leave now as (kind, sequence, body), or None."""
        if not self._frames:
            return None
        kind, body = self._frames[0]
        if kind is Kind.BATCH:
            if self._credit <= 0:
                return None
            self._credit -= len(body)
        self._frames.popleft()
        self.queued_bytes -= len(body)
        sequence, self._sequence = self._sequence, self._sequence + 1
        return kind, sequence, body
