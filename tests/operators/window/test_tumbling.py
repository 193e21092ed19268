"""Tumbling windows against a model that looks at one row at a time."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.driven import Collected
from tests.operators.window.feeding import (
    GROUPS,
    LATE,
    Record,
    Step,
    Subtasks,
    aggregate,
    drive,
    frame_of,
    make_partitions,
    make_steps,
    make_window,
)
from tidegate.datatypes import BIGINT, STRING, TIMESTAMP, DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.kinds.window.running import base
from tidegate.operators.kinds.window.settings import DAY_MS, Windowing
from tidegate.operators.lateness import FIRST_MS, LAST_MS
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend
from tidegate.task.elements import CatchUpMarker, StreamStatus, Watermark

HOUR_MS = 3_600_000
Expected = dict[tuple[Any, ...], tuple[Any, ...]]


def derive_expected(partitions: Sequence[Sequence[Record]], size: int, offset: int) -> tuple[Expected, int]:
    """Windows by key, start and end; and how many rows are late."""
    windows: defaultdict[tuple[Any, ...], list[Record]] = defaultdict(list)
    late = 0
    for row in (row for part in partitions for row in part):
        start = (row.time - offset) // size * size + offset
        if start + size - 1 <= row.m:
            late += 1
        else:
            windows[row.key, start, start + size].append(row)
    return {key: aggregate(rows) for key, rows in windows.items()}, late


@pytest.mark.parametrize("seed", range(4 * DEPTH))
def test_windows_are_those_of_the_model_whatever_the_batches_restarts_and_parallelism(seed: int) -> None:
    chance = random.Random(seed)
    delay, size = chance.choice([0, 3, 10]), chance.choice([1, 5, 10, 37])
    offset = chance.choice([0, size // 2])
    spread, step_ms = chance.choice([0, 5, 30]), chance.choice([1, 4])
    partitions = make_partitions(seed, chance.randrange(1, 4), 60, delay, spread, step_ms)
    expected, late = derive_expected(partitions, size, offset)
    outputs = []
    for way in range(3):
        step = Subtasks(make_window(Windowing(size, size, offset)), chance.choice([1, 2, 3]))
        drive(step, chance, make_steps(seed * 10 + way, partitions, delay), polled=0.3)
        assert dict(zip([row[:3] for row in step.results], [row[3:] for row in step.results], strict=True)) == expected
        assert len(step.results) == len(expected)
        assert step.late == late
        by_key = defaultdict(list)
        for key, start, _, *_ in step.results:
            by_key[key].append(start)
        assert all(starts == sorted(starts) for starts in by_key.values())
        outputs.append(sorted(step.results, key=repr))
    assert outputs[0] == outputs[1] == outputs[2]


def at(*rows: tuple[str, int], m: int = -1000) -> Step:
    return Step(tuple(Record(key, 1, time, m) for key, time in rows))


def watermark(time: int) -> Step:
    return Step(watermark=time)


def test_W20_results_come_before_the_watermark_that_makes_them_due() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    for one in (at(("a", 3), ("b", 12)), watermark(8), watermark(9)):
        step.feed(one)
    first, rows, second = step.order
    assert first == Watermark(8)
    assert isinstance(rows, pl.DataFrame)
    assert rows["k"].to_list() == ["a"]
    assert second == Watermark(9)


def test_W21_windows_come_in_the_order_of_their_ends_each_with_its_own_key() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    step.feed(at(("b", 25), ("b", 3), ("a", 14), ("b", 11), ("a", 1)))
    step.feed(watermark(29))
    assert [row[:3] for row in step.results] == [
        ("a", 0, 10),
        ("b", 0, 10),
        ("a", 10, 20),
        ("b", 10, 20),
        ("b", 20, 30),
    ]


def test_W22_a_window_is_a_user_of_timers_over_restarts_and_fires_once() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    step.feed(at(("a", 3)))
    step.restart(2, "rocksdb")
    step.feed(watermark(9))
    step.restart(1, "memory")
    step.feed(watermark(9))
    step.feed(watermark(30))
    assert step.results == [("a", 0, 10, 1, 1, 1)]


def test_W20_more_results_than_fit_in_a_call_hold_the_watermark_and_the_status_back() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    for start in range(0, 10_000, 2000):
        step.feed(at(*((f"k{number}", 5) for number in range(start, start + 2000))))
    step.feed(watermark(9))
    (runtime,) = step.runtimes
    assert not runtime.settled
    runtime.on_status(idle=True, out=step.out)
    step.feed(at(("late", 7)))
    step.feed(at(("next", 17)))
    assert step.late == 1
    step.restart(2, "memory")
    assert not any(isinstance(one, Watermark | StreamStatus) for one in step.order)
    step.feed(watermark(9))
    step.settle()
    assert len({row[0] for row in step.results}) == len(step.results) == 10_000
    assert step.order[-1] == Watermark(9)


def test_W05_idle_follows_the_watermark_that_was_held_back() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    step.feed(at(*((f"k{number}", 5) for number in range(10_000))))
    (runtime,) = step.runtimes
    step.feed(watermark(9))
    runtime.on_status(idle=True, out=step.out)
    assert not runtime.on_caught_up(step.out)
    step.settle()
    assert step.order[-2:] == [Watermark(9), StreamStatus(idle=True)]
    assert step.out.order[-1] == StreamStatus(idle=True)
    assert runtime.on_caught_up(step.out)
    assert step.out.order[-1] == CatchUpMarker()


def test_a_row_right_at_the_watermark_of_its_partition_is_late_for_a_window_that_ends_there() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    step.feed(at(("a", 9), m=8))
    step.feed(at(("a", 9), m=9))
    step.feed(watermark(END_OF_TIME))
    assert step.results == [("a", 0, 10, 1, 1, 1)]
    assert step.late == 1


def test_what_was_closed_stays_closed_after_a_restart_whatever_the_valve_says() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    for one in (at(("a", 3)), watermark(15)):
        step.feed(one)
    step.restart(2, "memory")
    step.feed(at(("a", 4), ("a", 16)))
    step.feed(watermark(END_OF_TIME))
    assert step.late == 1
    assert [row[:4] for row in step.results] == [("a", 0, 10, 1), ("a", 10, 20, 1)]


def test_a_pipeline_that_has_ended_takes_new_windows_a_week_later() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    for one in (at(("a", 3)), watermark(2), watermark(END_OF_TIME)):
        step.feed(one)
    step.restart(1, "memory")
    step.feed(at(("a", 4), ("a", 26)))
    step.feed(watermark(END_OF_TIME))
    assert step.late == 1
    assert [row[:4] for row in step.results] == [("a", 0, 10, 1), ("a", 20, 30, 1)]


@pytest.mark.parametrize("lateness", [0, 7])
@pytest.mark.parametrize(
    "windowing",
    [
        Windowing(10, 10),
        Windowing(10, 5),
        Windowing(10, 0),
        Windowing(10, 10, early_ms=5),
        Windowing(10, 0, early_ms=5),
    ],
    ids=["tumbling", "sliding", "session", "early", "early session"],
)
def test_what_is_late_for_what_an_end_of_time_has_closed_does_not_depend_on_the_parallelism(
    windowing: Windowing, lateness: int
) -> None:
    """Only what had a result is closed by it, for its key group: keys of other groups are in time."""
    found = []
    for before, after in ((1, 1), (3, 2), (2, 8), (8, 1)):
        step = Subtasks(make_window(windowing, lateness), before)
        for one in (at(("k0", 3), ("k1", 3), ("k2", 25), ("k3", 14)), watermark(2), watermark(END_OF_TIME)):
            step.feed(one)
        step.restart(after, "memory")
        step.feed(at(*((f"k{number}", 26) for number in range(12))))
        step.feed(watermark(END_OF_TIME))
        found.append((step.late, sorted(map(str, step.results))))
    assert found == [found[0]] * 4
    assert (not windowing.session) <= found[0][0] < 6  # a record may begin a session of its own


@pytest.mark.parametrize("seed", range(4 * DEPTH))
@pytest.mark.parametrize(
    "windowing",
    [Windowing(10, 10), Windowing(10, 5), Windowing(10, 10, early_ms=5), Windowing(10, 5, early_ms=5)],
    ids=["tumbling", "sliding", "early", "early sliding"],
)
def test_what_bounded_runs_have_given_is_never_given_from_the_beginning(windowing: Windowing, seed: int) -> None:
    """Also where a run has only corrected what was closed before it, and where it was restored since then."""
    print(f"seed {seed}")
    rnd = random.Random(seed)
    step, now = Subtasks(make_window(windowing, 7), 2), 0
    for _ in range(12):
        for _ in range(rnd.randrange(3)):
            step.feed(at(*((f"k{rnd.randrange(6)}", max(0, now + rnd.randrange(-12, 12))) for _ in range(4))))
            if rnd.random() < 0.5:
                now += rnd.randrange(6)
                step.feed(watermark(now))
            if rnd.random() < 0.4:
                step.restart(rnd.choice((1, 2, 3)), "memory")
        step.feed(watermark(END_OF_TIME))
        step.restart(rnd.choice((1, 2, 3)), "memory")
    newest: dict[Any, int] = {}
    for *window, count in (row[:4] for row in step.results):
        before = newest.get(tuple(window), 0)
        assert count > before or (windowing.early_ms and count == before), (window, before, count)
        newest[tuple(window)] = count


def test_late_rows_are_counted_and_go_out_as_they_came_with_the_reason() -> None:
    late = (("x", BIGINT), ("_reason", STRING), ("_watermark", TIMESTAMP))
    step = Subtasks(msgspec.structs.replace(make_window(Windowing(10, 10)), late=late))
    step.feed(at(("a", 3), m=12))
    step.feed(at(("a", 13), m=12))
    (frame,) = step.out.sides["late"]
    assert step.late == 1
    moment = dt.datetime(1970, 1, 1, 0, 0, 0, 12_000, tzinfo=dt.UTC)
    assert frame.rows() == [(1, "late: its windows were closed", moment, 3, 10)]
    assert frame.columns == ["x", "_reason", "_watermark", "__tidegate_time", "__tidegate_behind"]


def test_a_sum_that_overflows_fails_its_result_alone() -> None:
    step = Subtasks(make_window(Windowing(10, 10)))
    rows = [Record("a", 2**63 - 1, 1, -99), Record("a", 1, 2, -99), Record("b", 5, 3, -99)]
    step.feed(Step(tuple(rows)))
    step.feed(watermark(9))
    assert step.results == [("b", 0, 10, 1, 5, 5)]
    assert [one.kind for one in step.out.failures] == [FailureKind.ARITHMETIC_OVERFLOW]


@pytest.mark.parametrize("lateness", [0, DAY_MS])
@pytest.mark.parametrize(
    "windowing",
    [
        Windowing(7 * DAY_MS, 7 * DAY_MS),
        Windowing(DAY_MS, DAY_MS, 0, "America/New_York"),
        Windowing(7 * DAY_MS, DAY_MS),
        Windowing(DAY_MS, 0),
        Windowing(7 * DAY_MS, 7 * DAY_MS, early_ms=DAY_MS),
        Windowing(DAY_MS, 0, early_ms=DAY_MS),
    ],
    ids=["tumbling", "days", "sliding", "session", "early", "early session"],
)
def test_a_window_that_ends_after_the_year_9999_closes_with_the_end_of_time_and_its_result_fails(
    windowing: Windowing, lateness: int
) -> None:
    step = Subtasks(make_window(windowing, lateness, LATE))
    step.feed(at(("a", 3), ("a", LAST_MS)))
    step.feed(watermark(END_OF_TIME))
    step.settle()
    assert {row[0] for row in step.results} == {"a"}
    assert {one.kind for one in step.out.failures} == {FailureKind.EVENT_TIME_OUT_OF_RANGE}
    assert step.out.failures[-1].message.startswith("the window begins before the year 1 or ends after 9999: from 2534")
    step.restart(1, "memory")
    (runtime,) = step.runtimes
    assert [name for name, state in runtime.states.items() if len(state)] == ["watermark"]
    step.feed(at(("a", LAST_MS - 2 * DAY_MS)))
    assert all(frame["_watermark"].dt.year().is_between(1, 9999).all() for frame in step.out.sides.get("late", []))


def test_a_window_that_begins_before_the_year_1_has_no_result() -> None:
    step = Subtasks(make_window(Windowing(7 * DAY_MS, 7 * DAY_MS)))
    step.feed(at(("a", FIRST_MS), ("b", FIRST_MS + 7 * DAY_MS), m=-(1 << 62)))
    step.feed(watermark(END_OF_TIME))
    assert [row[0] for row in step.results] == ["b"]
    assert [one.kind for one in step.out.failures] == [FailureKind.EVENT_TIME_OUT_OF_RANGE]


@pytest.mark.parametrize(
    "windowing", [Windowing(10, 10), Windowing(10, 5), Windowing(10, 0)], ids=["tumbling", "sliding", "session"]
)
@pytest.mark.parametrize(("rows_max", "bytes_max"), [(2, 1 << 20), (1 << 20, 120)])
def test_as_many_results_leave_at_a_time_as_there_is_room_for(
    windowing: Windowing, rows_max: int, bytes_max: int
) -> None:
    slot = Slot(GROUPS, choose_backend("memory", retained=1), rows_max=rows_max, bytes_max=bytes_max)
    runtime, out = make_window(windowing).open(slot), Collected()
    runtime.process(0, frame_of([Record(f"{key}" * 50, 1, 1, -99) for key in range(7)]), out)
    runtime.on_watermark(END_OF_TIME, out)
    while runtime.poll(1000, out):
        pass
    heights = [batch.height for batch in out.batches]
    assert sum(heights) == 7 * (2 if windowing.every_ms == 5 else 1)
    assert max(heights) == 2


@pytest.mark.parametrize(
    "windowing",
    [Windowing(10, 10), Windowing(10, 5), Windowing(10, 0), Windowing(10, 10, 0, "", 5)],
    ids=["tumbling", "sliding", "session", "early"],
)
def test_results_that_are_large_are_made_a_few_at_a_time(windowing: Windowing, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory are those of one call, whatever is on disk."""
    monkeypatch.setattr(base, "BYTES_MAX", 10_000)
    call = AggregateCall("collect_list", ColumnReference("x", BIGINT), DataType("array", element=BIGINT))
    output = (("k", STRING), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP), ("all", call.type))
    window = WindowOperator(OperatorName("w"), ("k",), (("all", call),), windowing, 0, output, BadRecordPolicy.FAIL)
    step = Subtasks(window)
    for number in range(200):
        step.feed(at(*((f"k{number}", 1) for _ in range(100))))
    step.restart(1, "memory")
    step.feed(watermark(END_OF_TIME))
    calls = [sum(batch.height for batch in step.out.batches)]
    while step.poll():
        calls.append(sum(batch.height for batch in step.out.batches) - sum(calls))
    assert sum(calls) == 200 * (2 if windowing.overlapping or windowing.early_ms else 1)
    assert max(calls) <= 16


@pytest.mark.parametrize("zone", ["", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("offset_ms", [0, 600_000])
@pytest.mark.parametrize("every_ms", [HOUR_MS, HOUR_MS // 2], ids=["tumbling", "sliding"])
def test_a_row_is_late_once_its_windows_are_closed_wherever_they_begin(
    zone: str, offset_ms: int, every_ms: int
) -> None:
    """Local times of windows are hours before or after the instants of rows and watermarks."""
    begin = 1_700_006_400_000 + offset_ms  # at a full hour everywhere
    last, over = begin + HOUR_MS - 1, begin + 2 * HOUR_MS - every_ms - 1
    steps = Subtasks(make_window(Windowing(HOUR_MS, every_ms, offset_ms, zone)))
    for reached in (last - 1, last, over):
        steps.feed(Step((Record("k", 1, last, reached),)))
    assert steps.late == (2 if last == over else 1)
    steps.feed(Step(watermark=END_OF_TIME))
    steps.settle()
    expected = [(begin, 1)] if last == over else [(begin, 1), (begin + every_ms, 2)]
    assert [(start, count) for _, start, _, count, *_ in steps.results] == expected
    steps.close()
