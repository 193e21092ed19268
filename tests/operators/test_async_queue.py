"""The queue of an asynchronous step: what may leave, and when (contract W26-W32)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tidegate.operators.async_queue import (
    CallQueue,
    Mark,
    PendingCall,
    StatusMark,
    WatermarkMark,
)
from tidegate.operators.runtime import END_OF_TIME

BOTH = pytest.mark.parametrize("ordered", [True, False])
MANY = 1000


def add(queue: CallQueue, *rows: int) -> list[PendingCall]:
    calls = [PendingCall(None, row) for row in rows]
    for call in calls:
        queue.put(call)
    return calls


def drain(queue: CallQueue, calls_max: int = MANY) -> list[int | Mark]:
    """Everything that may leave now, in order."""
    left: list[int | Mark] = []
    while True:
        mark = queue.take_mark()
        calls = [] if mark is not None else queue.take_calls(calls_max)
        if mark is None and not calls:
            return left
        left += [mark] if mark is not None else [call.row for call in calls]


def test_W29_only_the_head_of_an_ordered_queue_may_leave() -> None:
    queue = CallQueue(10, ordered=True)
    first, second, third = add(queue, 1, 2, 3)
    queue.complete(second)
    queue.complete(third)
    assert drain(queue) == []
    queue.complete(first)
    assert drain(queue) == [1, 2, 3]


def test_W29_a_watermark_keeps_its_place_and_counts_for_the_capacity() -> None:
    queue = CallQueue(3, ordered=True)
    (first,) = add(queue, 1)
    queue.put(WatermarkMark(10))
    (second,) = add(queue, 2)
    assert (len(queue), queue.room) == (3, 0)
    queue.complete(second)
    assert drain(queue) == []
    queue.complete(first)
    assert drain(queue) == [1, WatermarkMark(10), 2]
    assert queue.room == 3


@BOTH
def test_W27_a_full_queue_has_no_room_and_drops_nothing(ordered: bool) -> None:
    queue = CallQueue(2, ordered=ordered)
    calls = add(queue, 1, 2, 3)
    assert queue.room == 0
    for call in calls:
        queue.complete(call)
    assert drain(queue) == [1, 2, 3]
    assert queue.room == 2


def test_W30_what_is_done_leaves_an_unordered_queue_but_never_beyond_a_watermark() -> None:
    queue = CallQueue(10, ordered=False)
    first, second = add(queue, 1, 2)
    queue.put(WatermarkMark(10))
    (third,) = add(queue, 3)
    queue.complete(third)
    queue.complete(second)
    assert drain(queue) == [2]
    queue.complete(first)
    assert drain(queue) == [1, WatermarkMark(10), 3]


def test_W30_within_a_segment_rows_leave_as_they_are_answered() -> None:
    queue = CallQueue(10, ordered=False)
    calls = add(queue, 1, 2, 3)
    for index in (2, 0, 1):
        queue.complete(calls[index])
    assert drain(queue, calls_max=1) == [3, 1, 2]


def test_W31_a_watermark_has_a_segment_of_its_own_and_an_empty_last_one_is_used_again() -> None:
    queue = CallQueue(10, ordered=False)
    assert segments(queue) == [0]
    queue.put(WatermarkMark(1))
    assert segments(queue) == ["mark", 0], "the empty segment is the watermark's now, and a fresh one follows"
    (call,) = add(queue, 1)
    queue.put(WatermarkMark(2))
    queue.put(StatusMark(idle=True))
    assert segments(queue) == ["mark", 1, "mark", "mark", 0]
    queue.complete(call)
    assert drain(queue) == [WatermarkMark(1), 1, WatermarkMark(2), StatusMark(idle=True)]
    assert segments(queue) == [0], "drained segments go, but for the last"


def segments(queue: CallQueue) -> list[object]:
    """Calls of each segment, or that it is a mark's."""
    return ["mark" if one.entry is not None else len(one.calls) for one in queue._segments]


@BOTH
def test_W32_an_unknown_element_is_refused_loudly(ordered: bool) -> None:
    queue = CallQueue(10, ordered=ordered)
    with pytest.raises(TypeError, match="cannot hold a str: only rows, watermarks and statuses"):
        queue.put("barrier")  # type: ignore[arg-type]  # what is refused
    assert len(queue) == 0


@BOTH
def test_a_watermark_directly_after_another_takes_its_place(ordered: bool) -> None:
    queue = CallQueue(10, ordered=ordered)
    (call,) = add(queue, 1)
    for time_ms in range(100):
        queue.put(WatermarkMark(time_ms))
    assert len(queue) == 2
    queue.complete(call)
    assert drain(queue) == [1, WatermarkMark(99)]


@BOTH
def test_the_end_of_time_leaves_the_watermark_before_it_in_its_place(ordered: bool) -> None:
    queue = CallQueue(10, ordered=ordered)
    (call,) = add(queue, 1)
    for time_ms in (7, 8, END_OF_TIME):
        queue.put(WatermarkMark(time_ms))
    queue.complete(call)
    assert drain(queue) == [1, WatermarkMark(8), WatermarkMark(END_OF_TIME)]


@BOTH
def test_marks_behind_a_call_that_hangs_stay_few(ordered: bool) -> None:
    queue = CallQueue(10, ordered=ordered)
    (call,) = add(queue, 1)
    for time_ms in range(100):
        queue.put(StatusMark(idle=False))
        queue.put(WatermarkMark(time_ms))
        queue.put(StatusMark(idle=True))
    assert len(queue) == 4
    queue.complete(call)
    assert drain(queue) == [1, StatusMark(idle=False), WatermarkMark(99), StatusMark(idle=True)]


class Naive:
    """The same by hand: a list of everything, looked through from its beginning."""

    def __init__(self, *, ordered: bool) -> None:
        self.ordered = ordered
        self.elements: list[int | Mark] = []
        self.done: list[int] = []

    def put(self, element: int | Mark) -> None:
        last = self.elements[-1] if self.elements else None
        if isinstance(element, WatermarkMark) and isinstance(last, WatermarkMark):
            self.elements[-1] = element
        else:
            self.elements.append(element)

    def leave(self) -> list[int | Mark]:
        left: list[int | Mark] = []
        while self.elements:
            head = self.elements[0]
            segment = list(takewhile(lambda one: isinstance(one, int), self.elements))
            candidates = segment[:1] if self.ordered else segment
            ready = [one for one in self.done if one in candidates]
            if not isinstance(head, int):
                left.append(self.elements.pop(0))
            elif ready:
                left.append(ready[0])
                self.elements.remove(ready[0])
            else:
                break
        return left


Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "call", "watermark", "complete", "complete", "leave"]), st.integers(0, 1000)),
    max_size=60,
)


@BOTH
@given(steps=STEPS)
@settings(max_examples=100 * DEPTH)
def test_W29_W30_whatever_the_order_of_answers_the_queue_does_what_a_naive_one_does(
    ordered: bool, steps: list[Step]
) -> None:
    queue, naive = CallQueue(10, ordered=ordered), Naive(ordered=ordered)
    waiting: list[PendingCall] = []
    left, expected = list[int | Mark](), list[int | Mark]()
    for number, (word, choice) in enumerate(steps):
        if word == "call":
            waiting += add(queue, number)
            naive.put(number)
        elif word == "watermark":
            queue.put(WatermarkMark(number))
            naive.put(WatermarkMark(number))
        elif word == "complete" and waiting:
            call = waiting.pop(choice % len(waiting))
            queue.complete(call)
            naive.done.append(call.row)
        elif word == "leave":
            left += drain(queue, 1 + choice % 5)
            expected += naive.leave()
        assert len(queue) == len(naive.elements)
        assert [call.row for call in queue.waiting()] == [one for one in naive.elements if isinstance(one, int)]
    for call in waiting:
        queue.complete(call)
        naive.done.append(call.row)
    left += drain(queue)
    expected += naive.leave()
    assert left == expected
    assert len(queue) == 0


@given(marks=st.lists(st.booleans() | st.integers(0, 9), max_size=20), ordered=st.booleans())
def test_a_shortened_run_of_marks_means_what_the_whole_run_meant(marks: list[bool | int], ordered: bool) -> None:
    """To somebody who heeds no watermark of who is idle: the last status, and the highest watermark while active."""
    queue = CallQueue(10, ordered=ordered)
    (call,) = add(queue, 0)
    active, watermark, given_marks = True, -1, list[Mark]()
    for mark in marks:
        if isinstance(mark, bool):
            given_marks.append(StatusMark(idle=mark))
            active = not mark
        elif active and mark > watermark:  # the only ones that arrive: nobody idle sends one, and none goes back
            given_marks.append(WatermarkMark(mark))
            watermark = mark
    for one in given_marks:
        queue.put(one)
    queue.complete(call)
    assert queue.take_calls(1) == [call]
    heard = hear(take_marks(queue.take_mark))
    assert heard == hear(given_marks)


def take_marks(take: Callable[[], Mark | None]) -> list[Mark]:
    taken: list[Mark] = []
    while (mark := take()) is not None:
        taken.append(mark)
    return taken


def hear(marks: list[Mark]) -> tuple[bool, int]:
    idle, watermark = False, -1
    for mark in marks:
        if isinstance(mark, StatusMark):
            idle = mark.idle
        elif isinstance(mark, WatermarkMark) and not idle:
            watermark = max(watermark, mark.time_ms)
    return idle, watermark
