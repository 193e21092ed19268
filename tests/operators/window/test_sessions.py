"""Sessions against a model that has all rows of all partitions in one line."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
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
from tidegate.datatypes import BOOLEAN, INT, STRING, DataType
from tidegate.ids import StateName
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.window.running import sessions as session_runtime
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Columns
from tidegate.state.errors import StateUnreadable
from tidegate.task.elements import Watermark

Result = tuple[Any, ...]
"""Key, start, end, and aggregates."""


def derive_expected(
    partitions: Sequence[Sequence[Record]], gap: int, lateness: int = 0
) -> tuple[list[Result], list[Record]]:
    """Rows in the order of where their partitions were: each closes what has ended by then, and joins what is open.

    The results, and the rows that are late. A row that is as old as a closed session may join one that is open.
    """
    rows = sorted((row for part in partitions for row in part), key=lambda row: (row.m, -row.time))
    opened: defaultdict[str | None, list[list[Record]]] = defaultdict(list)
    done: list[Result] = []
    late: list[Record] = []

    def close(key: str | None, session: list[Record]) -> None:
        start, end = min(row.time for row in session), max(row.time for row in session) + gap
        done.append((key, start, end, *aggregate(session)))

    for row in rows:
        still = []
        for session in opened[row.key]:
            if max(one.time for one in session) + gap + lateness <= row.m:
                close(row.key, session)
            else:
                still.append(session)
        touched = [one for one in still if any(abs(other.time - row.time) <= gap for other in one)]
        if not touched and row.time + gap + lateness <= row.m:
            late.append(row)
        else:
            still = [one for one in still if one not in touched]
            still.append([row, *(other for one in touched for other in one)])
        opened[row.key] = still
    for key, sessions in opened.items():
        for session in sessions:
            close(key, session)
    return done, late


def read_newest(results: Sequence[tuple[Any, ...]]) -> set[Result]:
    """What a reader has who keeps the newest row per key and `window_start`, and drops what is taken back."""
    held: dict[Any, Result] = {}
    for key, start, end, *values, deleted in results:
        if deleted:
            assert values == [None] * len(values)
            assert held.pop((key, start))[2] == end
        else:
            held[key, start] = (key, start, end, *values)
    return set(held.values())


def overlapping(results: Sequence[Result]) -> set[Result]:
    """Those that an older row has made overlap another one of their key: they may have the same start."""
    pairs = ((one, other) for one in results for other in results if one is not other and one[0] == other[0])
    return {one for one, other in pairs if one[1] <= other[2] and other[1] <= one[2]}


def assert_late_rows(step: Subtasks, late: Sequence[Record]) -> None:
    assert step.late == len(late)
    assert Counter(step.shown_late) == Counter((row.key, row.value, row.time, row.m) for row in late)


def assert_nothing_follows_its_watermark(step: Subtasks) -> None:
    """Subtasks send their own, so it is asked of one at a time."""
    passed = -(1 << 62)
    for one in step.order:
        if isinstance(one, Watermark):
            passed = one.time_ms
        elif isinstance(one, pl.DataFrame):
            assert one["__tidegate_time"].min() > passed  # type: ignore[operator]  # Int64


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_sessions_are_those_of_the_model_whatever_the_batches_restarts_and_parallelism(seed: int) -> None:
    chance = random.Random(seed)
    delay, gap = chance.choice([0, 3, 10]), chance.choice([1, 4, 9])
    spread, step_ms = chance.choice([0, 5, 25]), chance.choice([1, 4, 8])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    expected, late = derive_expected(partitions, gap)
    for way in range(2):
        step = Subtasks(make_window(Windowing(gap, 0), late=LATE), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay))
        assert Counter(step.results) == Counter(expected)
        assert_late_rows(step, late)


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_the_newest_results_are_those_of_all_rows_that_are_not_too_late(seed: int) -> None:
    chance = random.Random(seed + 1000)
    delay, gap = chance.choice([0, 0, 3]), chance.choice([1, 4, 9])
    lateness = chance.choice([1, 5, 12, 40])
    spread, step_ms = chance.choice([5, 25, 60]), chance.choice([1, 4, 8])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    expected, late = derive_expected(partitions, gap, lateness)
    for way in range(2):
        step = Subtasks(make_window(Windowing(gap, 0), lateness, LATE), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay))
        newest = read_newest(step.results)
        assert newest <= set(expected)
        assert newest | overlapping(expected) >= set(expected)
        assert_late_rows(step, late)
        step.restart(1, "memory")
        kept = {name: len(state) for runtime in step.runtimes for name, state in runtime.states.items()}
        assert kept.pop(StateName("watermark"))
        assert not any(kept.values())


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_W20_a_session_is_given_before_a_watermark_that_has_passed_it(seed: int) -> None:
    chance = random.Random(seed)
    partitions = make_partitions(seed, 2, 80, 3, 8, 6)
    step = Subtasks(make_window(Windowing(4, 0)))
    for one in make_steps(seed, partitions, 3):
        step.feed(one)
        if chance.random() < 0.5:
            step.poll(3)
    step.settle()
    assert len(step.results) > 10
    assert_nothing_follows_its_watermark(step)


def restart_with_late(columns: Columns) -> Subtasks:
    """A step whose late output has other columns now than when its only row, which waits, came."""
    step = Subtasks(make_window(Windowing(10, 0), late=LATE))
    step.feed(Step((Record("a", 7, 0, 50),)))
    step.spec = make_window(Windowing(10, 0), late=(*columns, *REASONS))
    step.restart(1, "memory")
    return step


def test_rows_that_wait_for_the_late_output_follow_its_columns() -> None:
    step = restart_with_late((("k", STRING), ("x", INT), ("browser", STRING)))
    step.feed(Step(watermark=END_OF_TIME))
    [frame] = step.out.sides["late"]
    assert frame.select("k", "x", "browser").rows() == [("a", 7, None)]
    assert frame["x"].dtype == pl.Int32


@pytest.mark.parametrize("kind", [BOOLEAN, DataType("struct", fields=(("y", BOOLEAN),))], ids=str)
def test_rows_that_wait_are_refused_where_a_column_cannot_be_what_it_is_now(kind: DataType) -> None:
    step = restart_with_late((("x", kind),))
    with pytest.raises(StateUnreadable, match=f"cannot have x as {kind}"):
        step.feed(Step(watermark=END_OF_TIME))


def test_rows_that_wait_are_refused_where_a_column_may_have_another_name_now() -> None:
    step = restart_with_late((("k", STRING), ("y", INT)))
    with pytest.raises(StateUnreadable, match=r"have no y, and x is no longer a column .* keep x in the step until"):
        step.feed(Step(watermark=END_OF_TIME))


@pytest.mark.parametrize("columns", [(("k", STRING),), (("k", STRING), ("y", INT), ("x", INT))])
def test_rows_that_wait_go_out_where_a_column_is_only_gone_or_has_both_names(columns: Columns) -> None:
    step = restart_with_late(columns)
    step.feed(Step(watermark=END_OF_TIME))
    [frame] = step.out.sides["late"]
    assert frame.select(name for name, _ in columns).rows() == [("a", None, 7)[: len(columns)]]


def test_rows_that_are_as_far_apart_as_the_gap_are_in_one_session() -> None:
    step = Subtasks(make_window(Windowing(10, 0)))
    step.feed(Step((Record("a", 1, 0, -99), Record("a", 1, 10, -99), Record("a", 1, 21, -99))))
    step.feed(Step(watermark=END_OF_TIME))
    assert step.results == [("a", 0, 20, 2, 2, 1), ("a", 21, 31, 1, 1, 1)]


def test_a_session_waits_for_a_row_that_is_as_far_from_its_last_one_as_the_gap() -> None:
    step = Subtasks(make_window(Windowing(10, 0)))
    step.feed(Step((Record("a", 1, 0, -99),)))
    step.feed(Step(watermark=9))
    assert not step.results
    step.feed(Step((Record("a", 2, 10, 9),)))
    step.feed(Step(watermark=20))
    assert step.results == [("a", 0, 20, 2, 3, 1)]
    assert [one.time_ms for one in step.order if isinstance(one, Watermark)] == [8, 19]


@pytest.mark.parametrize("corrected", [False, True])
def test_rows_join_sessions_that_are_still_on_their_way_into_the_state(
    corrected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watermark puts some there at a time, and a snapshot all that are left."""
    monkeypatch.setattr(session_runtime, "FOLDED_MAX", 4)
    keys = [f"k{number}" for number in range(9)]
    step = Subtasks(make_window(Windowing(10, 0), 20 if corrected else 0))
    step.feed(Step((Record("a", 1, 0, -99), *(Record(key, 1, 9, -99) for key in keys))))
    step.feed(Step(watermark=10))
    step.feed(Step(tuple(Record(key, 1, 15, 10) for key in keys)))
    step.restart(1, "memory")
    step.feed(Step(watermark=END_OF_TIME))
    step.settle()
    assert [row[:4] for row in step.results] == [("a", 0, 10, 1), *((key, 9, 25, 2) for key in keys)]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    step = Subtasks(make_window(Windowing(10, 0)))
    step.feed(Step((Record("a", 1, 0, -99), Record("a", 2, 15, -99))))
    step.restart(2, "rocksdb")
    step.feed(Step((Record("a", 4, 8, -99),)))
    step.feed(Step(watermark=25))
    assert step.results == [("a", 0, 25, 3, 7, 1)]


class TestAllowedLateness:
    def step(self) -> Subtasks:
        """Two sessions of one key that were given."""
        step = Subtasks(make_window(Windowing(10, 0), 50, LATE))
        step.feed(Step((Record("a", 1, 0, -99), Record("a", 2, 15, -99))))
        step.feed(Step(watermark=30))
        assert step.results == [("a", 0, 10, 1, 1, 1, False), ("a", 15, 25, 1, 2, 2, False)]
        step.out.batches.clear()
        return step

    def test_a_late_row_corrects_its_session_at_once(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 4, 3, 30),)))
        assert step.results == [("a", 0, 13, 2, 5, 1, False)]

    def test_a_late_row_between_two_sessions_takes_the_result_of_the_later_one_back(self) -> None:
        step = self.step()
        step.restart(2, "rocksdb")
        step.feed(Step(watermark=30))
        step.feed(Step((Record("a", 4, 8, 30),)))
        assert step.results == [("a", 15, 25, None, None, None, True), ("a", 0, 25, 3, 7, 1, False)]

    def test_a_late_row_before_a_session_takes_its_result_back(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 4, -5, 30),)))
        assert step.results == [("a", 0, 10, None, None, None, True), ("a", -5, 10, 2, 5, 1, False)]

    def test_a_session_that_is_open_again_is_given_when_it_has_ended(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 4, 24, 30), Record("a", 5, 33, 30))))
        assert not step.results
        step.feed(Step(watermark=43))
        assert step.results == [("a", 15, 43, 3, 11, 2, False)]

    def test_a_correction_that_a_snapshot_has_seen_is_given_after_the_restart(self) -> None:
        step = self.step()
        for runtime in step.runtimes:
            runtime._correct = lambda limit, out: False  # type: ignore[attr-defined]  # the kill comes before it
        step.feed(Step((Record("a", 4, 8, 30),)))
        step.restart(1, "memory")
        step.feed(Step(watermark=30))
        assert step.results == [("a", 15, 25, None, None, None, True), ("a", 0, 25, 3, 7, 1, False)]

    def test_a_row_is_late_when_the_lateness_of_its_session_is_over(self) -> None:
        step = self.step()
        step.feed(Step((Record("a", 4, 15, 74), Record("a", 5, 2, 75))))
        step.feed(Step(watermark=80))
        assert step.results == [("a", 15, 25, 2, 6, 2, False)]
        assert step.shown_late == [("a", 5, 2, 75)]
        assert step.late == 1
