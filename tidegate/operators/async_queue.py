"""What waits in an asynchronous step: rows without their answers, watermarks and statuses between them. Pure.

Contract W26-W32 (seed 003), after Flink's `OrderedStreamElementQueue` and `UnorderedStreamElementQueue`. A queue says
what may leave; who asks and who answers is in `calls/`. Everything that waits counts for the capacity.

Statuses keep their place as watermarks do (W05). A run of them at the end of the queue is kept short: only the newest
watermark and the newest status count, so a call that hangs does not let it grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from tidegate.formats.failures import FailureKind

TRAILING_MAX: Final = 3
"""Marks at the end of the queue: active, the newest watermark, the newest status."""


class WatermarkMark(msgspec.Struct, frozen=True):
    """A watermark at its place among the rows, ms since 1970."""

    time_ms: int


class StatusMark(msgspec.Struct, frozen=True):
    """A status at its place among the rows."""

    idle: bool


Mark = WatermarkMark | StatusMark


class CallFailure(msgspec.Struct, frozen=True):
    """Why a row has no answer."""

    kind: FailureKind
    message: str


class PendingCall:
    """A row that waits for its answer: `row` of `batch`, which is opaque here. It is done when `complete` says so."""

    __slots__ = ("answer", "batch", "done", "failure", "row", "segment")

    def __init__(self, batch: object, row: int) -> None:
        self.batch = batch
        self.row = row
        self.done = False
        self.answer: object = None
        self.failure: CallFailure | None = None
        self.segment: _Segment | None = None


class CallQueue(Protocol):
    """A queue of either order."""

    def put(self, element: PendingCall | Mark) -> None:
        """At the end. Raises TypeError for an element that is neither (W32)."""

    def complete(self, call: PendingCall) -> None:
        """Its answer, or its failure, is there."""

    def take_mark(self) -> Mark | None:
        """The mark that may leave next; None when a call is next, or nothing."""

    def take_calls(self, calls_max: int) -> list[PendingCall]:
        """The calls that may leave next, up to a mark; none while none may."""

    def waiting(self) -> Iterator[PendingCall]:
        """Every call that has not left, oldest first."""

    @property
    def room(self) -> int:
        """How many elements fit until the capacity is reached (W27)."""

    def __len__(self) -> int:
        """Calls and marks that have not left."""


class _Entry:
    """A mark in its place; what it says may be replaced by what comes directly after it."""

    __slots__ = ("mark",)

    def __init__(self, mark: Mark) -> None:
        self.mark = mark


class _Trailing:
    """The marks after the last call, oldest first: a run of at most `TRAILING_MAX`."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()

    def absorb(self, mark: Mark) -> bool:
        """Whether the marks that are there say all of it now; else it needs an entry of its own."""
        entries = self._entries
        if entries and type(entries[-1].mark) is type(mark):
            entries[-1].mark = mark
            return True
        if len(entries) < TRAILING_MAX:
            return False
        marks = [*(entry.mark for entry in entries), mark]
        newest: Mark = next(one for one in reversed(marks) if isinstance(one, WatermarkMark))
        status: Mark = next(one for one in reversed(marks) if isinstance(one, StatusMark))
        # Nobody heeds a watermark of who is idle (W08), so it goes out as active.
        run: tuple[Mark, ...] = (StatusMark(idle=False), newest, status)
        for entry, one in zip(entries, run, strict=True):
            entry.mark = one
        return True

    def append(self, entry: _Entry) -> None:
        self._entries.append(entry)

    def left(self, entry: _Entry) -> None:
        if self._entries and self._entries[0] is entry:
            self._entries.popleft()

    def clear(self) -> None:
        self._entries.clear()


class OrderedQueue(CallQueue):
    """Only the head may leave (W29)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._elements: deque[PendingCall | _Entry] = deque()
        self._trailing = _Trailing()

    @override
    def put(self, element: PendingCall | Mark) -> None:
        if isinstance(element, PendingCall):
            self._trailing.clear()
            self._elements.append(element)
        elif not self._trailing.absorb(_known(element)):
            entry = _Entry(element)
            self._trailing.append(entry)
            self._elements.append(entry)

    @override
    def complete(self, call: PendingCall) -> None:
        call.done = True

    @override
    def take_mark(self) -> Mark | None:
        if not self._elements or not isinstance(head := self._elements[0], _Entry):
            return None
        self._elements.popleft()
        self._trailing.left(head)
        return head.mark

    @override
    def take_calls(self, calls_max: int) -> list[PendingCall]:
        elements, taken = self._elements, list[PendingCall]()
        while elements and len(taken) < calls_max:
            head = elements[0]
            if not isinstance(head, PendingCall) or not head.done:
                break
            taken.append(head)
            elements.popleft()
        return taken

    @override
    def waiting(self) -> Iterator[PendingCall]:
        return (one for one in self._elements if isinstance(one, PendingCall))

    @property
    @override
    def room(self) -> int:
        return max(0, self._capacity - len(self._elements))

    @override
    def __len__(self) -> int:
        return len(self._elements)


class _Segment:
    """Calls between two marks, or one mark (W31): in any order, but all before anything of the next segment."""

    __slots__ = ("calls", "done", "entry")

    def __init__(self) -> None:
        self.calls: dict[PendingCall, None] = {}
        """Those that have not left, oldest first."""
        self.done: deque[PendingCall] = deque()
        """Those of them that are done, in the order in which they came to be."""
        self.entry: _Entry | None = None

    @property
    def drained(self) -> bool:
        return not self.calls and self.entry is None


class UnorderedQueue(CallQueue):
    """What is done may leave, but never beyond a mark (W30)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._length = 0
        self._segments: deque[_Segment] = deque([_Segment()])
        self._trailing = _Trailing()

    @override
    def put(self, element: PendingCall | Mark) -> None:
        last = self._segments[-1]
        if isinstance(element, PendingCall):
            self._trailing.clear()
            last.calls[element] = None
            element.segment = last
        elif self._trailing.absorb(_known(element)):
            return
        else:
            if not last.drained:
                last = _Segment()
                self._segments.append(last)
            last.entry = _Entry(element)
            self._trailing.append(last.entry)
            self._segments.append(_Segment())
        self._length += 1

    @override
    def complete(self, call: PendingCall) -> None:
        call.done = True
        assert call.segment is not None
        call.segment.done.append(call)

    @override
    def take_mark(self) -> Mark | None:
        first = self._segments[0]
        if first.entry is None:
            return None
        entry, first.entry = first.entry, None
        self._length -= 1
        self._trailing.left(entry)
        self._drop_drained()
        return entry.mark

    @override
    def take_calls(self, calls_max: int) -> list[PendingCall]:
        first, taken = self._segments[0], list[PendingCall]()
        while first.done and len(taken) < calls_max:
            call = first.done.popleft()
            del first.calls[call]
            call.segment = None
            taken.append(call)
        self._length -= len(taken)
        self._drop_drained()
        return taken

    @override
    def waiting(self) -> Iterator[PendingCall]:
        return (call for segment in self._segments for call in segment.calls)

    @property
    @override
    def room(self) -> int:
        return max(0, self._capacity - self._length)

    @override
    def __len__(self) -> int:
        return self._length

    def _drop_drained(self) -> None:
        while len(self._segments) > 1 and self._segments[0].drained:
            self._segments.popleft()


def make_queue(capacity: int, *, ordered: bool) -> CallQueue:
    """An empty queue."""
    return OrderedQueue(capacity) if ordered else UnorderedQueue(capacity)


def _known(element: object) -> Mark:
    if isinstance(element, WatermarkMark | StatusMark):
        return element
    raise TypeError(f"an asynchronous step cannot hold a {type(element).__name__}: only rows, watermarks and statuses")
