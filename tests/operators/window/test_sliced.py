"""Sliding windows, early results and corrected results against a model that looks at one row at a time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from tests.depth import DEPTH
from tests.operators.window.feeding import (
    Record,
    Step,
    Subtasks,
    aggregate,
    drive,
    make_partitions,
    make_steps,
    make_window,
)
from tidegate.operators.kinds.window.running import early, partial, sessions, sliced
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME

Windows = dict[tuple[Any, ...], tuple[Any, ...]]


def windows_of(time: int, window: Windowing) -> list[int]:
    """The starts of the windows that a time is in."""
    last = (time - window.offset_ms) // window.every_ms * window.every_ms + window.offset_ms
    return [start for start in range(last, time - window.size_ms, -window.every_ms) if start <= time]


def derive_expected(partitions: Sequence[Sequence[Record]], window: Windowing, lateness: int) -> tuple[Windows, int]:
    """The last result of each window by key, start and end; and how many rows are late for all of theirs."""
    rows_of: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
    late = 0
    for row in (row for part in partitions for row in part):
        starts = [start for start in windows_of(row.time, window) if start + window.size_ms - 1 + lateness > row.m]
        late += not starts
        for start in starts:
            rows_of[row.key, start, start + window.size_ms].append(row)
    return {key: aggregate(rows) for key, rows in rows_of.items()}, late


def derive_early(partitions: Sequence[Sequence[Record]], window: Windowing) -> Windows:
    """By key, start, and when it is due: what early results there must be."""
    rows_of: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
    new: set[tuple[Any, ...]] = set()
    for row in (row for part in partitions for row in part):
        (start,) = windows_of(row.time, window)
        end = start + window.size_ms
        dues = [due for due in range(start + window.early_ms, end + 1, window.early_ms) if due > row.time]
        taken = [due for due in dues if due - 1 > row.m]
        for due in taken:
            rows_of[row.key, start, due].append(row)
        new.update((row.key, start, due) for due in taken[:1])
        if taken:
            new.add((row.key, start, end))
    return {key: aggregate(rows) for key, rows in rows_of.items() if key in new}


WINDOWS = [Windowing(10, 5), Windowing(10, 1), Windowing(10, 3), Windowing(10, 7, 2), Windowing(12, 4, 3)]


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_windows_are_those_of_the_model_whatever_the_batches_restarts_and_parallelism(seed: int) -> None:
    chance = random.Random(seed)
    delay, window = chance.choice([0, 3, 10]), WINDOWS[seed % len(WINDOWS)]
    partitions = make_partitions(
        seed, chance.randrange(1, 4), 50, delay, chance.choice([0, 5, 20]), chance.choice([1, 4])
    )
    expected, late = derive_expected(partitions, window, 0)
    for way in range(2):
        step = Subtasks(make_window(window), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay))
        assert {row[:3]: row[3:] for row in step.results} == expected
        assert len(step.results) == len(expected)
        assert step.late == late
        by_key = defaultdict(list)
        for key, start, *_ in step.results:
            by_key[key].append(start)
        assert all(starts == sorted(starts) for starts in by_key.values())


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_the_last_of_corrected_results_is_that_of_the_model(seed: int) -> None:
    chance = random.Random(seed)
    delay, window = chance.choice([0, 3]), [*WINDOWS, Windowing(10, 10), Windowing(7, 7, 3)][seed % 7]
    lateness = chance.choice([1, 5, 20])
    spread, step_ms = chance.choice([5, 30]), chance.choice([1, 4])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    expected, late = derive_expected(partitions, window, lateness)
    step = Subtasks(make_window(window, lateness), chance.choice([1, 2, 3]))
    drive(step, chance, make_steps(seed, partitions, delay))
    assert {row[:3]: row[3:] for row in step.results} == expected
    assert step.late == late
    seen: dict[Any, int] = {}
    for row in step.results:
        assert row[3] > seen.get(row[:3], 0), "a result that says nothing new"
        seen[row[:3]] = row[3]


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_early_results_hold_what_is_older_than_the_time_they_are_due(seed: int) -> None:
    chance = random.Random(seed)
    delay, window = chance.choice([0, 3, 10]), [Windowing(12, 12, 0, "", 4), Windowing(10, 10, 3, "", 2)][seed % 2]
    partitions = make_partitions(
        seed, chance.randrange(1, 4), 50, delay, chance.choice([0, 5, 20]), chance.choice([1, 4])
    )
    expected = derive_early(partitions, window)
    step = Subtasks(make_window(window), chance.choice([1, 2, 3]))
    drive(step, chance, make_steps(seed, partitions, delay))
    by_window: defaultdict[Any, list[Any]] = defaultdict(list)
    for (key, start, _), result in sorted(expected.items(), key=lambda item: item[0][2]):
        by_window[key, start, start + window.size_ms].append(result)
    found: defaultdict[Any, list[Any]] = defaultdict(list)
    for row in step.results:
        found[row[:3]].append(row[3:])
    assert found == by_window


def test_after_an_end_of_time_no_row_is_allowed_for_a_window_whose_rows_are_gone() -> None:
    """What a late row could correct went with the end: it would make a result of itself alone."""
    step = Subtasks(make_window(Windowing(10, 10), lateness=20))
    step.feed(Step((Record("a", 1, 3, -99), Record("a", 1, 25, -99))))
    step.feed(Step(watermark=END_OF_TIME))
    step.restart(2, "memory")
    step.feed(Step((Record("a", 1, 4, -99), Record("a", 1, 26, -99), Record("a", 1, 31, -99))))
    step.feed(Step(watermark=END_OF_TIME))
    assert step.late == 2
    assert [row[:4] for row in step.results] == [("a", 0, 10, 1), ("a", 20, 30, 1), ("a", 30, 40, 1)]


@pytest.mark.parametrize(
    "window",
    [
        Windowing(10, 10),
        Windowing(10, 5),
        Windowing(10, 0),
        Windowing(10, 10, early_ms=5),
        Windowing(10, 5, early_ms=5),
        Windowing(10, 0, early_ms=5),
    ],
    ids=["tumbling", "sliding", "session", "early", "early sliding", "early session"],
)
def test_what_an_end_of_time_has_forgotten_is_closed_also_where_a_snapshot_has_seen_only_some_of_it(
    window: Windowing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (early, sessions, sliced):
        monkeypatch.setattr(module, "FOLDED_MAX", 2)
    step = Subtasks(make_window(window, lateness=20))
    others = [Record(key, 1, time, -99) for key in ("k2", "k4") for time in (103, 124, 145)]
    step.feed(Step((Record("k1", 1, 3, -99), *others)))
    step.feed(Step(watermark=END_OF_TIME))
    assert not all(runtime.settled for runtime in step.runtimes)
    step.restart(1, "memory")
    step.feed(Step(watermark=END_OF_TIME))
    step.settle()
    results = list(step.results)
    step.restart(1, "memory")
    step.feed(Step((Record("k1", 1, 3, -99),)))
    step.feed(Step(watermark=END_OF_TIME))
    assert step.late == 1
    assert step.results == results


def test_rows_that_are_late_for_some_of_many_results_are_spread_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch of them would be millions of rows."""
    heights: list[int] = []
    add = partial.Buffer.add

    def watched(self: Any, rows: Any) -> None:
        heights.append(rows.height)
        add(self, rows)

    monkeypatch.setattr(partial.Buffer, "add", watched)
    monkeypatch.setattr(sliced, "SPREAD_MAX", 2_000)
    window, rows = Windowing(200, 1), [Record(f"k{number % 2}", 1, 100 + number % 50, 160) for number in range(100)]
    expected, _ = derive_expected([rows], window, 0)
    step = Subtasks(make_window(window))
    step.feed(Step(tuple(rows)))
    step.feed(Step(watermark=END_OF_TIME))
    step.settle()
    assert {row[:3]: row[3:] for row in step.results} == expected
    assert sum(heights) > 10_000
    assert max(heights) <= 2_000
