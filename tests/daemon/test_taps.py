"""A tap is a sample of the rows of all slots, and ends in time whatever they do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tidegate.daemon.taps import BYTES_MAX, SlotTaps, TapEnd, TappedRows, choose_rows
from tidegate.ids import SlotIndex, VertexId
from tidegate.plan.taps import TapPoint
from tidegate.task.messages import DriverMessage, EndTap, RowsTapped, TapRows

POINTS = (TapPoint(VertexId("read"), 0, "", ("k",)),)
NEVER_S = 3600.0


class Slots:
    """Two slots that answer as a test says."""

    def __init__(self) -> None:
        self.sent: list[DriverMessage] = []
        self.taps = SlotTaps(self.sent.append, 2)

    def rows(self, slot: int, *rows: str, tap: int = 1, full: bool = False) -> None:
        self.taps.on_rows(SlotIndex(slot), RowsTapped(tap, tuple(row.encode() for row in rows), full))

    async def tapped(self, rows_max: int, answer: Callable[[], None]) -> TappedRows:
        copying = asyncio.create_task(self.taps.copy(POINTS, rows_max))
        await asyncio.sleep(0)
        answer()
        return await copying


def play(story: Callable[[Slots], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(Slots())

    asyncio.run(run())


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the slots say ends a tap."""
    monkeypatch.setattr("tidegate.daemon.taps.TAP_S", NEVER_S)
    monkeypatch.setattr("tidegate.daemon.taps.GATHER_S", NEVER_S)


@pytest.mark.usefixtures("patient")
def test_rows_are_taken_from_all_slots_in_turn() -> None:
    async def story(slots: Slots) -> None:
        def answer() -> None:
            slots.rows(1, "a", "b", "c")
            slots.rows(0, "1", "2")

        assert await slots.tapped(3, answer) == TappedRows((b"1", b"a", b"2"), TapEnd.ROWS)
        assert slots.sent == [TapRows(1, POINTS, 3, BYTES_MAX), EndTap(1)]
        slots.rows(0, "late")  # a slot had not heard of the end yet

    play(story)


@pytest.mark.usefixtures("patient")
def test_a_full_slot_ends_the_tap() -> None:
    async def story(slots: Slots) -> None:
        def answer() -> None:
            slots.rows(1, "a")
            slots.rows(0, full=True)

        assert await slots.tapped(3, answer) == TappedRows((b"a",), TapEnd.BYTES)

    play(story)


@pytest.mark.usefixtures("patient")
def test_the_end_of_the_attempt_ends_the_tap_with_what_there_is() -> None:
    async def story(slots: Slots) -> None:
        def answer() -> None:
            slots.rows(1, "a")
            slots.taps.close()

        assert await slots.tapped(3, answer) == TappedRows((b"a",), TapEnd.RESTART)
        assert await slots.taps.copy(POINTS, 3) == TappedRows((), TapEnd.RESTART)

    play(story)


def test_a_silent_output_ends_the_tap_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.daemon.taps.TAP_S", 0.01)

    async def story(slots: Slots) -> None:
        assert await slots.tapped(3, lambda: slots.rows(0, "1")) == TappedRows((b"1",), TapEnd.TIME)
        assert slots.sent[-1] == EndTap(1)

    play(story)


def test_a_slot_without_rows_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.daemon.taps.TAP_S", NEVER_S)
    monkeypatch.setattr("tidegate.daemon.taps.GATHER_S", 0.01)

    async def story(slots: Slots) -> None:
        assert await slots.tapped(2, lambda: slots.rows(0, "1", "2")) == TappedRows((b"1", b"2"), TapEnd.ROWS)

    play(story)


@pytest.mark.usefixtures("patient")
def test_a_tap_that_is_cancelled_ends_in_the_slots() -> None:
    async def story(slots: Slots) -> None:
        copying = asyncio.create_task(slots.taps.copy(POINTS, 3))
        await asyncio.sleep(0)
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
        assert slots.sent[-1] == EndTap(1)

    play(story)


def test_no_row_is_taken_beyond_the_limit_of_bytes() -> None:
    rows = {SlotIndex(0): [b"12345", b"6"], SlotIndex(1): [b"abcdef"]}
    assert choose_rows(rows, 10, 12) == ((b"12345", b"abcdef", b"6"), False)
    assert choose_rows(rows, 10, 11) == ((b"12345", b"abcdef"), True)
    assert choose_rows(rows, 10, 10) == ((b"12345",), True)
    assert choose_rows({}, 10, 10) == ((), False)
