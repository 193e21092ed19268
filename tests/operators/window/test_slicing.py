"""Slices of times, and days of a time zone against the clocks of the standard library."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import polars as pl
import pytest

from tidegate.operators.kinds.window.running.early import EarlySlicing
from tidegate.operators.kinds.window.running.slicing import Slicing
from tidegate.operators.kinds.window.settings import DAY_MS, Windowing

HOUR_MS = 3_600_000


def instant(text: str) -> int:
    return int(dt.datetime.fromisoformat(text).timestamp() * 1000)


def day_of(slicing: Slicing, time: int) -> tuple[int, int]:
    """Start and end of the window that an instant is in."""
    due = slicing.last_due(slicing.ends_of(pl.Series([time])))
    start, end = (slicing.instants_of(one)[0] for one in (slicing.window_start(due), due))
    return start, end


@pytest.mark.parametrize(
    ("zone", "first", "days"),
    [
        ("Europe/Berlin", "2024-03-29T00:00:00+00:00", 4),  # 23 hours
        ("Europe/Berlin", "2024-10-25T00:00:00+00:00", 4),  # 25 hours
        ("America/Sao_Paulo", "2018-11-02T00:00:00+00:00", 4),  # there is no midnight
        ("America/Havana", "2024-11-01T00:00:00+00:00", 4),  # midnight comes twice
        ("Australia/Lord_Howe", "2024-04-05T00:00:00+00:00", 4),  # half an hour
        ("Pacific/Apia", "2011-12-28T00:00:00+00:00", 4),  # a day is skipped
        ("Asia/Kathmandu", "2024-01-01T00:00:00+00:00", 2),
        ("UTC", "1969-12-30T00:00:00+00:00", 3),
    ],
)
def test_days_are_those_of_the_clock_on_the_wall(zone: str, first: str, days: int) -> None:
    slicing = Slicing(Windowing(DAY_MS, DAY_MS, 0, zone))
    found: dict[int, int] = {}
    for time in range(instant(first), instant(first) + days * DAY_MS, 20 * 60_000):
        start, end = day_of(slicing, time)
        assert start <= time < end
        here = dt.datetime.fromtimestamp(time / 1000, ZoneInfo(zone))
        assert dt.datetime.fromtimestamp(start / 1000, ZoneInfo(zone)).date() == here.date()
        assert dt.datetime.fromtimestamp((start - 1) / 1000, ZoneInfo(zone)).date() < here.date()
        found[start] = end
    assert list(found)[1:] == list(found.values())[:-1], "they follow one another"


def test_a_boundary_that_comes_twice_is_the_first_one() -> None:
    slicing = Slicing(Windowing(DAY_MS, DAY_MS, 2 * HOUR_MS + HOUR_MS // 2, "Europe/Berlin"))
    boundary = instant("2024-10-27T02:30:00+02:00")
    assert day_of(slicing, boundary - 1)[1] == boundary
    for later in (boundary, boundary + 40 * 60_000, instant("2024-10-27T02:10:00+01:00")):
        assert day_of(slicing, later)[0] == boundary
        assert slicing.floor_of(later) == slicing.floor_of(boundary)


def test_a_boundary_that_is_skipped_is_the_moment_after_it() -> None:
    slicing = Slicing(Windowing(DAY_MS, DAY_MS, 2 * HOUR_MS + HOUR_MS // 2, "Europe/Berlin"))
    change = instant("2024-03-31T03:00:00+02:00")
    assert day_of(slicing, change - 1)[1] == change
    assert day_of(slicing, change)[0] == change


@pytest.mark.parametrize("window", [Windowing(10, 3), Windowing(10, 7, 2), Windowing(12, 4), Windowing(12, 12, 5)])
def test_slices_cover_their_windows_and_nothing_else(window: Windowing) -> None:
    slicing = Slicing(window)
    times = pl.Series(range(-60, 60))
    ends = slicing.ends_of(times)
    first, last = slicing.first_due(ends), slicing.last_due(ends)
    for time, end, one, other in zip(times, ends, first, last, strict=True):
        local = time - window.offset_ms
        dues = list(range(one, other + 1, slicing.step_ms))
        for due in range(one - 3 * slicing.step_ms, other + 4 * slicing.step_ms, slicing.step_ms):
            inside = slicing.window_start(pl.Series([due]))[0] <= local < due
            assert inside == (due in dues)
            assert inside == (end in slicing.slices_of(due))
        assert slicing.floor_of(time) == slicing.floors_of(pl.Series([time]))[0] <= local < end
        assert slicing.first_due_after(pl.Series([slicing.floor_of(time)]))[0] > slicing.floor_of(time)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", "2024-10-27T01:00:00+00:00"),
        ("Australia/Lord_Howe", "2024-04-06T15:00:00+00:00"),  # half an hour
        ("America/St_Johns", "2010-11-07T02:31:00+00:00"),  # a minute after midnight
        ("Europe/Berlin", "2024-03-31T01:00:00+00:00"),  # put forward
    ],
)
@pytest.mark.parametrize("minutes", [1, 15, 30, 60])
@pytest.mark.parametrize("offset_ms", [0, 2 * HOUR_MS + HOUR_MS // 2 - 1])
def test_slices_within_a_day_follow_one_another_when_the_clock_changes(
    zone: str, change: str, minutes: int, offset_ms: int
) -> None:
    slicing = EarlySlicing(Windowing(DAY_MS, DAY_MS, offset_ms, zone, minutes * 60_000))
    around = instant(change)
    times = pl.Series(range(around - 3 * HOUR_MS, around + 3 * HOUR_MS, 7 * 60_000))
    ends = slicing.ends_of(times)
    assert ends.is_sorted()
    assert (slicing.instants_of(ends) > times).all()
    assert (slicing.instants_of(slicing.floors_of(times)) <= times).all()
    assert slicing.first_end(pl.DataFrame({"__tidegate_time": times[-20:]})) == ends[-20]
