"""The queue of an asynchronous step: rows that wait for answers, with watermarks and statuses between them. Pure.

Contract W26-W32 (seed 003), after Flink's `OrderedStreamElementQueue` and `UnorderedStreamElementQueue`. A queue
decides which elements may leave; `calls/` makes and answers the calls. All waiting elements count towards the capacity.

Statuses keep their place as watermarks do (W05). A run of them at the end of the queue is compacted: only the newest
watermark and the newest status matter, so a hanging call does not let it grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.formats.failures import FailureKind
from tidegate.operators.runtime import END_OF_TIME

TRAILING_MAX: Final = 3
"""The maximum number of marks at the end of the queue: active, the newest watermark, the newest status."""


class WatermarkMark(msgspec.Struct, frozen=True):
    """A watermark at its place among the rows, ms since 1970."""

    time_ms: int


class StatusMark(msgspec.Struct, frozen=True):
    """A status at its place among the rows."""

    idle: bool


class CaughtUpMark(msgspec.Struct, frozen=True):
    """The marker of catching up at its place among the rows. There is at most one."""


Mark = WatermarkMark | StatusMark | CaughtUpMark


class CallFailure(msgspec.Struct, frozen=True):
    """Why a row has no answer."""

    kind: FailureKind
    message: str


class PendingCall:
    """A row that waits for its answer: `row` of `batch`, which is opaque here."""

    __slots__ = ("answer", "batch", "failure", "row", "segment")

    def __init__(self, batch: object, row: int) -> None:
        self.batch = batch
        self.row = row
        self.answer: object = None
        self.failure: CallFailure | None = None
        self.segment: _Segment | None = None


class _Entry:
    """A mark in its place. A mark that directly follows may replace its value."""

    __slots__ = ("mark",)

    def __init__(self, mark: Mark) -> None:
        self.mark = mark


class _Trailing:
    """The marks after the last call, oldest first: a run of at most `TRAILING_MAX`."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()

    def absorb(self, mark: Mark) -> bool:
        """Merges a mark into the existing run. Returns False if it needs an entry of its own."""
        entries = self._entries
        if isinstance(mark, CaughtUpMark) or mark == WatermarkMark(END_OF_TIME):
            entries.clear()  # what follows it begins another run; both come only once
            return False
        if entries and type(entries[-1].mark) is type(mark):
            entries[-1].mark = mark
            return True
        if len(entries) < TRAILING_MAX:
            return False
        marks = [*(entry.mark for entry in entries), mark]
        newest: Mark = next(one for one in reversed(marks) if isinstance(one, WatermarkMark))
        status: Mark = next(one for one in reversed(marks) if isinstance(one, StatusMark))
        # Watermarks are ignored while idle (W08), so the newest one is sent as active.
        run: tuple[Mark, ...] = (StatusMark(idle=False), newest, status)
        for entry, one in zip(entries, run, strict=True):
            entry.mark = one
        return True

    def append(self, entry: _Entry) -> None:
        if not isinstance(entry.mark, CaughtUpMark):
            self._entries.append(entry)

    def left(self, entry: _Entry) -> None:
        if self._entries and self._entries[0] is entry:
            self._entries.popleft()

    def clear(self) -> None:
        self._entries.clear()


class _Segment:
    """Calls between two marks, or one mark (W31). Calls leave in any order, but before the next segment."""

    __slots__ = ("calls", "done", "entry")

    def __init__(self) -> None:
        self.calls: dict[PendingCall, None] = {}
        """The calls that have not left, oldest first."""
        self.done: deque[PendingCall] = deque()
        """The calls that are done, in order of completion."""
        self.entry: _Entry | None = None

    @property
    def drained(self) -> bool:
        return not self.calls and self.entry is None


class CallQueue:
    """A queue of segments, of which only the first may leave.

    Unordered, any completed call may leave, but never past a mark (W30). Ordered, each call is a segment of its own, so
    only the head may leave (W29).
    """

    def __init__(self, capacity: int, *, ordered: bool) -> None:
        self._capacity = capacity
        self._ordered = ordered
        self._length = 0
        self._segments: deque[_Segment] = deque([_Segment()])
        self._trailing = _Trailing()

    def put(self, element: PendingCall | Mark) -> None:
        """Appends an element. Raises TypeError if it is neither a call nor a mark (W32)."""
        if isinstance(element, PendingCall):
            self._trailing.clear()
            last = self._open_segment() if self._ordered else self._segments[-1]
            last.calls[element] = None
            element.segment = last
        elif self._trailing.absorb(_known(element)):
            return
        else:
            last = self._open_segment()
            last.entry = _Entry(element)
            self._trailing.append(last.entry)
            self._segments.append(_Segment())
        self._length += 1

    def _open_segment(self) -> _Segment:
        """Returns the last segment if it is empty, else a new one."""
        if not self._segments[-1].drained:
            self._segments.append(_Segment())
        return self._segments[-1]

    def complete(self, call: PendingCall) -> None:
        """Marks a call as done. Its answer or its failure has been set."""
        assert call.segment is not None
        call.segment.done.append(call)

    def take_mark(self) -> Mark | None:
        """Removes and returns the next mark that may leave; None if a call is next or the queue is empty."""
        first = self._segments[0]
        if first.entry is None:
            return None
        entry, first.entry = first.entry, None
        self._length -= 1
        self._trailing.left(entry)
        self._drop_drained()
        return entry.mark

    def take_calls(self, calls_max: int) -> list[PendingCall]:
        """Removes and returns calls that may leave, up to the next mark; empty if none may."""
        taken: list[PendingCall] = []
        while len(taken) < calls_max and (done := self._segments[0].done):
            call = done.popleft()
            del self._segments[0].calls[call]
            call.segment = None
            taken.append(call)
            self._drop_drained()
        self._length -= len(taken)
        return taken

    def waiting(self) -> Iterator[PendingCall]:
        """Yields every call that has not left, oldest first."""
        return (call for segment in self._segments for call in segment.calls)

    @property
    def room(self) -> int:
        """How many elements fit until the capacity is reached (W27)."""
        return max(0, self._capacity - self._length)

    def __len__(self) -> int:
        """Returns the number of calls and marks that have not left."""
        return self._length

    def _drop_drained(self) -> None:
        while len(self._segments) > 1 and self._segments[0].drained:
            self._segments.popleft()


def _known(element: object) -> Mark:
    if isinstance(element, Mark):
        return element
    raise TypeError(f"an asynchronous step cannot hold a {type(element).__name__}: only rows, watermarks and statuses")
