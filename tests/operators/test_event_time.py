"""An operator's watermark over restarts: nothing that was closed is open again, at whatever parallelism."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ids import CheckpointId, SlotIndex
from tidegate.operators.event_time import WATERMARK, EventClock
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.plan.assignment import key_group_range
from tidegate.state.base import Share

GROUPS = 8


def open_clocks(parallelism: int, files: list[bytes]) -> list[EventClock]:
    clocks = []
    for index in range(parallelism):
        groups = key_group_range(SlotIndex(index), parallelism, GROUPS)
        clocks.append(EventClock("step", groups))
        if files:
            clocks[-1].state.restore(files, Share(groups, index, parallelism))
    return clocks


def snapshot(clocks: list[EventClock]) -> list[bytes]:
    files: list[bytes] = []
    for clock in clocks:
        clock.before_snapshot()
        encode = clock.state.capture(CheckpointId(1), full=True).encode
        files += [] if encode is None else encode()  # before the first watermark there is nothing to keep
    return files


def watermarks(clocks: list[EventClock]) -> list[int]:
    """Of each key group."""
    count = len(clocks)
    owned = [key_group_range(SlotIndex(index), count, GROUPS) for index in range(count)]
    return [one for clock, groups in zip(clocks, owned, strict=True) for one in clock.watermark_of(groups)]


def restart(clocks: list[EventClock], parallelism: int) -> list[EventClock]:
    return open_clocks(parallelism, snapshot(clocks))


def test_it_begins_with_the_lowest_watermark_and_has_nothing_to_store() -> None:
    (clock,) = open_clocks(1, [])
    assert clock.watermark_ms == LOWEST
    assert clock.uniform
    clock.before_snapshot()
    assert clock.state.values == ()


def test_what_was_closed_stays_so_while_the_watermark_comes_again() -> None:
    clocks = open_clocks(2, [])
    clocks[0].advance(100)
    clocks[1].advance(120)
    (one,) = clocks = restart(clocks, 1)
    assert watermarks(clocks) == [100] * 4 + [120] * 4
    assert (one.watermark_ms, one.uniform) == (LOWEST, False)
    times, groups = pl.Series([99, 100, 101, 119, 120, 121]), [0, 0, 0, 7, 7, 7]
    assert one.closed(times, lambda: groups).to_list() == [True, True, False, True, True, False]
    one.advance(110)
    assert watermarks(clocks) == [110] * 4 + [120] * 4
    assert one.closed(times, lambda: groups[::-1]).to_list() == [True, True, True, False, False, False]
    one.advance(120)
    assert one.uniform
    assert watermarks(clocks) == [120] * 8


@pytest.mark.parametrize("times", [[101, 500], [3, 50]])
def test_key_groups_are_asked_for_only_where_they_decide(times: list[int]) -> None:
    clocks = open_clocks(1, [])
    clocks[0].advance(100)
    (clock,) = restart(clocks, 1)
    clock.advance(60)

    def never() -> list[int]:
        raise AssertionError

    assert clock.closed(pl.Series(times), never).to_list() == [one <= 60 for one in times]
    clock.advance(100)
    assert clock.closed(pl.Series([99, 100, 101]), never).to_list() == [True, True, False]


def test_the_watermark_does_not_go_back() -> None:
    (clock,) = open_clocks(1, [])
    clock.advance(100)
    clock.advance(90)
    assert clock.watermark_ms == 100


def test_W01_an_end_of_time_ends_allowed_lateness_too_and_an_empty_one_nothing() -> None:
    clocks = open_clocks(1, [])
    clocks[0].advance(END_OF_TIME)
    clocks[0].ended(40)
    clocks[0].before_snapshot()
    assert clocks[0].state.values == ()
    (clock,) = clocks = open_clocks(1, [])
    clock.advance(100)
    clock.advance(END_OF_TIME)
    clock.fired([250, 240], [3, 3])
    assert watermarks(restart([clock], 1)) == [100] * 3 + [250] + [100] * 4
    clock.fired([290, 280], [3, 3])  # nothing is allowed for what is forgotten
    clock.ended(40)
    for _ in range(2):
        clocks = restart(clocks, 1)
        assert watermarks(clocks) == [140] * 3 + [290] + [140] * 4
        clocks[0].advance(END_OF_TIME)
        clocks[0].ended(40)


def test_W01_after_an_end_of_time_what_was_fired_is_stored_and_not_the_end() -> None:
    clocks = open_clocks(1, [])
    clocks[0].advance(100)
    clocks[0].advance(END_OF_TIME)
    clocks[0].fired([250], [6])
    clocks[0].fired([240], [6])
    assert clocks[0].watermark_ms == END_OF_TIME
    clocks = restart(clocks, 2)
    assert watermarks(clocks) == [100] * 6 + [250, 100]
    for clock in clocks:
        clock.advance(END_OF_TIME)
    assert watermarks(restart(clocks, 1)) == [100] * 6 + [250, 100]


def test_a_snapshot_in_which_nothing_has_changed_writes_nothing() -> None:
    (clock,) = open_clocks(1, [])
    clock.advance(100)
    snapshot([clock])
    first = clock.state.capture(CheckpointId(2))
    assert first.encode is not None
    clock.state.stored(CheckpointId(2), ["file"])
    clock.state.completed(CheckpointId(2))
    clock.before_snapshot()
    assert clock.state.capture(CheckpointId(3)).encode is None


def test_ranges_with_one_watermark_are_one_value() -> None:
    clocks = open_clocks(3, [])
    for clock, watermark_ms in zip(clocks, (100, 100, 120), strict=True):
        clock.advance(watermark_ms)
    (one,) = restart(clocks, 1)
    one.before_snapshot()
    assert one.state.values == ((0, 6, 100), (6, 8, 120))
    assert WATERMARK.name == one.state.declaration.name


TIMES = st.integers(-5, 60) | st.just(END_OF_TIME)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("advance"), st.integers(0, 2), TIMES),
            st.tuples(st.just("fired"), st.integers(0, 2), st.integers(-5, 80)),
            st.tuples(st.just("restart"), st.just(0), st.integers(1, 3)),
        ),
        max_size=25,
    )
)
def test_W21_no_key_group_goes_back_over_any_number_of_subtasks(steps: list[Any]) -> None:
    """Against a model of what was stored per key group, and what has arrived since."""
    clocks, stored, since = open_clocks(1, []), [LOWEST] * GROUPS, [LOWEST] * GROUPS
    fired = [LOWEST] * GROUPS
    for what, index, number in [*steps, *(("restart", 0, parallelism) for parallelism in (2, 3, 1))]:
        if what == "restart":
            clocks = restart(clocks, number)
            by_data = [LOWEST if one == END_OF_TIME else one for one in since]
            stored = [max(parts) for parts in zip(stored, by_data, fired, strict=True)]
            since, fired = [LOWEST] * GROUPS, [LOWEST] * GROUPS
        else:
            clock = index % len(clocks)
            owned = key_group_range(SlotIndex(clock), len(clocks), GROUPS)
            if what == "fired":
                if not clocks[clock].ending:
                    continue
                group = owned[number % len(owned)]
                clocks[clock].fired([number], [group])
                fired[group] = max(fired[group], number)
            else:
                before = since[owned.start]
                clocks[clock].advance(number)
                if number == END_OF_TIME and before not in (LOWEST, END_OF_TIME):
                    fired[owned.start : owned.stop] = [max(fired[group], before) for group in owned]
                since[owned.start : owned.stop] = [max(since[group], number) for group in owned]
        assert watermarks(clocks) == [max(parts) for parts in zip(stored, since, strict=True)]
