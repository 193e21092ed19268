"""Early results of sliding windows and sessions against models that look at one row at a time."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.window.feeding import (
    LATE,
    Record,
    Step,
    Subtasks,
    aggregate,
    drive,
    make_partitions,
    make_steps,
    make_window,
)
from tests.operators.window.test_sessions import derive_expected as derive_sessions
from tests.operators.window.test_sessions import overlapping, read_newest
from tests.operators.window.test_sliced import derive_expected, windows_of
from tidegate.ids import StateName
from tidegate.operators.kinds.window.running.early import EarlySlicing
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME

Session = tuple[int, int, tuple[int, ...]]
"""Start, end, and the places of its rows."""

SLIDING = [
    Windowing(12, 6, 0, "", 3),
    Windowing(12, 4, 3, "", 4),
    Windowing(12, 3, 0, "", 6),
    Windowing(12, 5, 2, "", 4),
    Windowing(12, 12, 1, "", 3),
]


# -- sliding -----------------------------------------------------------------------------------------------------------


def derive_early(partitions: Sequence[Sequence[Record]], window: Windowing) -> dict[Any, list[Any]]:
    """By key, start and end: the results that there must be, in their order."""
    rows_of: defaultdict[Any, list[Record]] = defaultdict(list)
    new: set[Any] = set()
    for row in (row for part in partitions for row in part):
        for start in windows_of(row.time, window):
            end = start + window.size_ms
            dues = range(start + window.early_ms, end + 1, window.early_ms)
            taken = [due for due in dues if due > row.time and due - 1 > row.m]
            for due in taken:
                rows_of[row.key, start, due].append(row)
            new.update((row.key, start, due) for due in (*taken[:1], *taken[-1:]))
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for key, start, due in sorted(new, key=lambda one: one[2]):
        found[key, start, start + window.size_ms].append(aggregate(rows_of[key, start, due]))
    return found


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_early_results_hold_what_is_older_than_the_time_they_are_due(seed: int) -> None:
    chance = random.Random(seed)
    delay, window = chance.choice([0, 3, 10]), SLIDING[seed % len(SLIDING)]
    spread, step_ms = chance.choice([0, 5, 20]), chance.choice([1, 4])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    step = Subtasks(make_window(window), chance.choice([1, 2, 3]))
    drive(step, chance, make_steps(seed, partitions, delay))
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for row in step.results:
        found[row[:3]].append(row[3:])
    assert found == derive_early(partitions, window)
    assert step.late == derive_expected(partitions, window, 0)[1]


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_the_last_of_early_and_corrected_results_is_that_of_the_model(seed: int) -> None:
    chance = random.Random(seed)
    delay, window, lateness = chance.choice([0, 3]), SLIDING[seed % len(SLIDING)], chance.choice([1, 5, 20])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, chance.choice([5, 30]), chance.choice([1, 4]))
    expected, late = derive_expected(partitions, window, lateness)
    step = Subtasks(make_window(window, lateness), chance.choice([1, 2, 3]))
    drive(step, chance, make_steps(seed, partitions, delay))
    assert {row[:3]: row[3:] for row in step.results} == expected
    assert step.late == late
    assert len(step.results) > len(expected)
    assert not remaining(step)


@pytest.mark.parametrize("window", SLIDING)
def test_a_slice_is_in_windows_that_have_their_own_due_times(window: Windowing) -> None:
    slicing = EarlySlicing(window)
    times = pl.Series(range(-60, 60))
    first, last = slicing.wholes_of(slicing.ends_of(times))
    for time, one, other in zip(times, first, last, strict=True):
        starts = sorted(start - window.offset_ms for start in windows_of(time, window))
        assert [whole - window.size_ms for whole in range(one, other + 1, window.every_ms)] == starts
        local = time - window.offset_ms
        for start in starts:
            dues = range(start + window.early_ms, start + window.size_ms + 1, window.early_ms)
            (found,) = slicing.due_after(pl.Series([start + window.size_ms]), pl.Series([local]))
            assert found == min(due for due in dues if due > local)


# -- sessions ----------------------------------------------------------------------------------------------------------


def sessions_of(rows: Sequence[Record], gap: int) -> dict[str | None, list[Session]]:
    """Rows in the order of where their partitions were, as the model of sessions takes them."""
    closed: defaultdict[str | None, list[Session]] = defaultdict(list)
    opened: defaultdict[str | None, list[Session]] = defaultdict(list)
    for place in sorted(range(len(rows)), key=lambda place: (rows[place].m, -rows[place].time)):
        row = rows[place]
        still: list[Session] = []
        for one in opened[row.key]:
            (closed[row.key] if one[1] <= row.m else still).append(one)
        near = [one for one in still if one[0] - gap <= row.time <= one[1]]
        if near or row.time + gap > row.m:
            still = [one for one in still if one not in near]
            start = min([row.time, *(one[0] for one in near)])
            end = max([row.time + gap, *(one[1] for one in near)])
            still.append((start, end, tuple(sorted([place, *(other for one in near for other in one[2])]))))
        opened[row.key] = still
    return {key: [*closed[key], *sessions] for key, sessions in opened.items()}


def events_of(rows: Sequence[Record], gap: int, early: int) -> Iterator[tuple[Any, Session]]:
    """What is given of each key, in its order: early results at their due times, and results on close."""
    final = sessions_of(rows, gap)
    times = [row.time for row in rows]
    events: list[tuple[tuple[int, int, int], Any, Session]] = []
    before: set[int] = set()
    for due in range(min(times) // early * early + early, max(times) + gap + 2 * early, early):
        taken = [place for place, row in enumerate(rows) if row.time < due and row.m < due - 1]
        for key, sessions in sessions_of([rows[place] for place in taken], gap).items():
            for start, end, members in sessions:
                own = tuple(taken[place] for place in members)
                if end >= due and not before.issuperset(own):
                    events.append(((due, 1, end), key, (start, end, own)))
        before = {*taken}
    events += [((one[1] + 1, 0, one[1]), key, one) for key, sessions in final.items() for one in sessions]
    events.sort(key=lambda event: event[0])
    return ((key, session) for _, key, session in events)


def derive_results(rows: Sequence[Record], gap: int, early: int) -> list[Any]:
    """Those of a key in their order, with those that are taken back."""
    told: defaultdict[Any, list[Session]] = defaultdict(list)
    found: list[Any] = []
    for key, (start, end, members) in events_of(rows, gap, early):
        inside = [one for one in told[key] if {*one[2]} <= {*members}]
        found += [(key, *one[:2], None, None, None, True) for one in sorted(inside) if one[0] != start]
        told[key] = [one for one in told[key] if one not in inside] + [(start, end, members)]
        found.append((key, start, end, *aggregate([rows[place] for place in members]), False))
    return found


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_early_results_of_sessions_are_those_of_the_model_in_its_order(seed: int) -> None:
    chance = random.Random(seed)
    delay, gap, early = chance.choice([0, 3, 10]), chance.choice([4, 9, 20]), chance.choice([1, 3, 5, 16])
    spread, step_ms = chance.choice([0, 5, 25]), chance.choice([1, 4, 8])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    rows = [row for part in partitions for row in part]
    expected, (_, late) = derive_results(rows, gap, early), derive_sessions(partitions, gap)
    for way in range(2):
        step = Subtasks(make_window(Windowing(gap, 0, 0, "", early), late=LATE), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay))
        assert given_of(step.results) == given_of(expected)
        assert taken_back(step.results) == taken_back(expected)
        assert read_newest(step.results) == read_newest(expected)
        assert step.late == len(late)
        assert Counter(step.shown_late) == Counter((row.key, row.value, row.time, row.m) for row in late)
        assert not remaining(step)


def given_of(results: Sequence[Any]) -> dict[Any, list[Any]]:
    """By key, in their order."""
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for *row, deleted in results:
        if not deleted:
            found[row[0]].append(row)
    return found


def taken_back(results: Sequence[Any]) -> Counter[Any]:
    return Counter(tuple(row) for row in results if row[-1])


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_the_newest_of_early_and_corrected_sessions_are_those_of_all_rows(seed: int) -> None:
    chance = random.Random(seed + 500)
    delay, gap, early = chance.choice([0, 3]), chance.choice([1, 4, 9]), chance.choice([1, 4, 10])
    lateness = chance.choice([1, 5, 12, 40])
    spread, step_ms = chance.choice([5, 25, 60]), chance.choice([1, 4, 8])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    expected, late = derive_sessions(partitions, gap, lateness)
    for way in range(2):
        step = Subtasks(make_window(Windowing(gap, 0, 0, "", early), lateness, LATE), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay))
        newest = read_newest(step.results)
        assert newest <= set(expected)
        assert newest | overlapping(expected) >= set(expected)
        assert step.late == len(late)
        assert not remaining(step)


def remaining(step: Subtasks) -> dict[StateName, int]:
    """Entries of the states at the end, but for the watermark."""
    step.restart(1, "memory")
    kept = {name: len(state) for runtime in step.runtimes for name, state in runtime.states.items() if len(state)}
    assert kept.pop(StateName("watermark"))
    return kept


class TestSession:
    def step(self) -> Subtasks:
        return Subtasks(make_window(Windowing(10, 0, 0, "", 20)))

    def test_an_open_session_gives_a_result_when_something_has_come(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 1, 12, -99), Record("a", 2, 19, -99), Record("a", 4, 21, -99))))
        step.feed(Step(watermark=18))
        assert not step.results
        step.feed(Step(watermark=19))
        assert step.results == [("a", 12, 29, 2, 3, 1, False)]
        step.restart(2, "rocksdb")
        step.feed(Step(watermark=30))
        assert len(step.results) == 1
        step.feed(Step(watermark=31))
        assert step.results[1:] == [("a", 12, 31, 3, 7, 1, False)]

    def test_a_session_has_one_result_whatever_it_was_made_of(self) -> None:
        step = Subtasks(make_window(Windowing(10, 0, 0, "", 5)))
        step.feed(Step((Record("a", 1, 6, -99), Record("a", 2, 19, -99))))
        step.feed(Step(watermark=9))
        step.restart(1, "rocksdb")
        step.feed(Step((Record("a", 4, 12, 9),)))
        step.feed(Step(watermark=24))
        assert step.results == [
            ("a", 6, 16, 1, 1, 1, False),
            ("a", 6, 22, 2, 5, 1, False),
            ("a", 6, 29, 3, 7, 1, False),
        ]

    def test_an_older_row_takes_an_early_result_back(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 1, 15, -99),)))
        step.feed(Step(watermark=19))
        step.feed(Step((Record("a", 2, 24, -99), Record("a", 4, 14, 19))))
        step.feed(Step(watermark=END_OF_TIME))
        assert step.results == [
            ("a", 15, 25, 1, 1, 1, False),
            ("a", 15, 25, None, None, None, True),
            ("a", 14, 34, 3, 7, 1, False),
        ]


def test_a_day_on_which_the_clock_is_put_back_holds_both_of_its_equal_hours() -> None:
    minute_ms, midnight = 60_000, 1_729_980_000_000  # 2024-10-27T00:00+02:00
    day_ms = 1440 * minute_ms
    step = Subtasks(make_window(Windowing(day_ms, day_ms, 0, "Europe/Berlin", 15 * minute_ms)))
    times = range(midnight, midnight + 25 * 60 * minute_ms, 10 * minute_ms)
    for time in times:
        step.feed(Step((Record("a", 1, time, time - 1),)))
        step.feed(Step(watermark=time - 1))
    step.feed(Step(watermark=END_OF_TIME))
    assert step.results[-1] == ("a", midnight, times.stop, len(times), len(times), 1)
    assert not remaining(step)


@pytest.mark.parametrize(
    "window",
    [Windowing(500, 500, 0, "", 1), Windowing(4, 1), Windowing(1000, 500, 0, "", 1), Windowing(50, 0, 0, "", 1)],
    ids=["tumbling", "not early", "sliding", "session"],
)
def test_a_watermark_that_passes_many_due_times_takes_many_calls(window: Windowing) -> None:
    """Each due time by itself is work: a barrier would wait for all of them."""
    step = Subtasks(make_window(window))
    step.feed(Step(watermark=-1))
    step.feed(Step(tuple(Record("k", 1, time, -1) for time in range(400))))
    step.feed(Step(watermark=5000))
    calls = [len(step.out.batches)]
    while step.poll():
        calls.append(len(step.out.batches) - sum(calls))
    assert sum(calls) >= 400
    assert max(calls) <= 60


def test_a_barrier_behind_a_backlog_waits_for_few_early_results_of_sessions() -> None:
    """A turn of a subtask polls, then takes one element. So what one call emits counts for each batch, and for each
    watermark, that a barrier has before it: 50 due times in a call made a checkpoint take 25 s.
    """
    batches, rows = 10, 100
    step = Subtasks(make_window(Windowing(50, 0, 0, "", 1)))
    step.feed(Step(watermark=-1))
    for first in range(0, batches * rows, rows):
        step.poll()
        step.feed(Step(tuple(Record("k", 1, time, -1) for time in range(first, first + rows))))
        step.poll()
        step.feed(Step(watermark=first + rows - 1))
    assert len(step.out.batches) <= 3 * batches * 10
    step.settle()
    assert len(step.out.batches) == batches * rows


def test_early_results_of_many_sessions_leave_in_parts() -> None:
    step = Subtasks(make_window(Windowing(50, 0, 0, "", 1)))
    step.feed(Step(watermark=-1))
    step.feed(Step(tuple(Record(f"k{key}", 1, time, -1) for time in range(8) for key in range(700))))
    step.feed(Step(watermark=8))
    assert 700 <= len(step.results) <= 2100
    step.settle()
    assert len(step.results) == 8 * 700
