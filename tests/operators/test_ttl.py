"""`ttl` of running totals against a model that judges each row by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.subtasks import Subtasks
from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BIGINT
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Requirement
from tidegate.operators.sweep import SWEPT_AT_ONCE

TTL = 10
X = ColumnReference("x", BIGINT)
CALLS = (
    ("n", AggregateCall("count", None, BIGINT)),
    ("sum", AggregateCall("sum", X, BIGINT)),
    ("first", AggregateCall("first", X, BIGINT)),
)
ENDLESS = AggregateOperator(
    OperatorName("totals"),
    ("k",),
    CALLS,
    "each",
    (("k", BIGINT), *((name, BIGINT) for name, _ in CALLS)),
    BadRecordPolicy.FAIL,
)
SPEC = msgspec.structs.replace(ENDLESS, ttl=Ttl(TTL))
BY_CLOCK = msgspec.structs.replace(ENDLESS, ttl=Ttl(TTL, processing=True))
Record = tuple[int, int | None, int, int]
"""k, x, event time, and by how much the watermark of its partition had passed that."""


def frame(records: list[Record]) -> pl.DataFrame:
    return pl.DataFrame(
        records, schema=dict.fromkeys(("k", "x", "__tidegate_time", "__tidegate_behind"), pl.Int64), orient="row"
    )


class Model:
    """Totals of each key and when they end."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, int | None, int | None, int]] = {}

    def totals(self, records: list[Record]) -> list[tuple[int | None, ...]]:
        found: list[tuple[int | None, ...]] = []
        for key, value, time, behind in records:
            count, total, first, end = self.held.get(key, (0, None, None, 0))
            if count and time + behind > end:
                count, total, first = 0, None, None
            end = max(end, time + TTL) if count else time + TTL
            first = first if count else value
            total = total if value is None else (total or 0) + value
            self.held[key] = count + 1, total, first, end
            found.append((key, count + 1, total, first))
        return found


class Partition:
    """Reads event times and says how far the watermark of the partition had passed them."""

    def __init__(self) -> None:
        self.mark = -(10**6)

    def read(self, rows: list[tuple[int, int | None, int]]) -> list[Record]:
        found = []
        for key, value, time in rows:
            found.append((key, value, time, max(0, self.mark - time)))
            self.mark = max(self.mark, time - 6)
        return found


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.none() | st.integers(0, 5), st.integers(-30, 60)), min_size=1, max_size=20
)
STEPS = st.lists(st.one_of(ROWS, st.integers(1, 3), st.just("watermark")), max_size=14)


def totals_of(tasks: Subtasks) -> list[tuple[Any, ...]]:
    return [(row["k"], row["n"], row["sum"], row["first"]) for row in tasks.rows()]


def play(steps: list[Any], backend: str) -> None:
    """The watermark is at most that of the partition, so when an entry is removed makes no difference."""
    tasks, model, partition = Subtasks(SPEC, ["k"], backend), Model(), Partition()
    for step in steps:
        if isinstance(step, int):
            tasks.restart(step)
        elif step == "watermark":
            tasks.watermark(partition.mark)
            for runtime in tasks.runtimes:
                runtime.before_snapshot()
        else:
            records = partition.read(step)
            tasks.process(frame(records))
            expected = model.totals(records)
            assert sorted(totals_of(tasks), key=str) == sorted(expected, key=str)
    tasks.close()


@given(STEPS)
@settings(deadline=None, max_examples=40 * DEPTH)
def test_a_key_begins_again_after_the_ttl_wherever_batches_and_restarts_are(steps: list[Any]) -> None:
    play(steps, "memory")


@pytest.mark.deep
@pytest.mark.slow
@given(STEPS)
@settings(deadline=None, max_examples=30)
def test_a_key_begins_again_after_the_ttl_on_disk(steps: list[Any]) -> None:
    play(steps, "rocksdb")


@given(ROWS, st.lists(st.integers(1, 19), max_size=4))
@settings(deadline=None, max_examples=20 * DEPTH)
def test_how_rows_are_cut_into_batches_does_not_matter(rows: list[Any], cuts: list[int]) -> None:
    records = Partition().read(rows)
    whole, cut = Subtasks(SPEC, ["k"]), Subtasks(SPEC, ["k"])
    whole.process(frame(records))
    for start, end in pairwise([0, *sorted(cuts), len(records)]):
        if records[start:end]:
            cut.process(frame(records[start:end]))
    assert totals_of(whole) == totals_of(cut)


def test_latest_gives_one_row_per_key_although_it_began_again() -> None:
    tasks = Subtasks(msgspec.structs.replace(SPEC, emit="latest"), ["k"])
    tasks.process(frame([(1, 1, 0, 0), (1, 2, 10, 0), (2, 5, 10, 0), (1, 3, 21, 0)]))
    assert totals_of(tasks) == [(2, 1, 5, 5), (1, 1, 3, 3)]


def test_what_has_ended_is_removed_at_snapshots_in_parts() -> None:
    tasks = Subtasks(SPEC, ["k"])
    (runtime,) = tasks.runtimes
    state = runtime.states["totals"]
    count = SWEPT_AT_ONCE + 500
    tasks.process(frame([(key, 1, key % 2, 0) for key in range(count)]))
    tasks.watermark(10)
    for _ in range(2):
        runtime.before_snapshot()
    assert len(state) == count
    tasks.watermark(11)
    for left in (count - SWEPT_AT_ONCE // 2, count // 2):
        runtime.before_snapshot()
        assert len(state) == left
    assert {value[-1] for value in state.get_many(list(state.keys()))} == {11}
    tasks.watermark(END_OF_TIME)
    for _ in range(3):
        runtime.before_snapshot()
    assert len(state) == count // 2, "an end of time ends nothing"


def test_what_has_ended_is_removed_as_fast_as_keys_come_however_rare_snapshots_are() -> None:
    tasks = Subtasks(SPEC, ["k"])
    (runtime,) = tasks.runtimes
    ttl_ms, each = 10, 10
    for now in range(200):
        tasks.process(frame([(now * each + key, 1, now, 0) for key in range(each)]))
        tasks.watermark(now - 1)
    assert len(runtime.states["totals"]) <= 2 * each * (ttl_ms + 3)


def test_a_ttl_is_added_to_totals_that_had_none_and_taken_away_again() -> None:
    tasks = Subtasks(ENDLESS, ["k"])
    tasks.process(frame([(1, 1, 0, 0), (2, 1, 0, 0)]))
    tasks.spec = SPEC
    tasks.restart(1)
    (runtime,) = tasks.runtimes
    tasks.process(frame([(1, 2, 100, 0)]))
    assert totals_of(tasks)[-1] == (1, 2, 3, 1)
    tasks.watermark(50)
    runtime.before_snapshot()
    assert [runtime.states["totals"].get(key)[-1] for key in (1, 2)] == [110, 60]
    tasks.process(frame([(1, 5, 111, 0), (2, 5, 60, 0)]))
    assert totals_of(tasks)[-2:] == [(1, 1, 5, 5), (2, 2, 6, 1)]
    tasks.spec = ENDLESS
    tasks.restart(2)
    tasks.process(frame([(1, 1, 10_000, 0), (2, 1, 10_000, 0)]))
    assert sorted(totals_of(tasks)) == [(1, 2, 6, 5), (2, 3, 7, 1)]


@pytest.mark.parametrize("swept", [False, True])
def test_a_ttl_that_is_added_begins_when_it_counts_whatever_is_met_first(swept: bool) -> None:
    tasks = Subtasks(ENDLESS, ["k"])
    tasks.process(frame([(1, 1, 0, 0)]))
    tasks.rows()
    tasks.spec = SPEC
    tasks.restart(1)
    (runtime,) = tasks.runtimes
    tasks.watermark(100)
    if swept:
        runtime.before_snapshot()
    rows: list[Record] = [
        (1, 2, 0, 100),
        (2, 1, 0, 100),
        (1, 3, 110, 0),
        (2, 1, 110, 0),
        (1, 4, 0, 121),
        (1, 5, 0, 121),
    ]
    tasks.process(frame(rows))
    totals = [(1, 2, 3, 1), (2, 1, 1, 1), (1, 3, 6, 1), (2, 1, 1, 1), (1, 1, 4, 4), (1, 1, 5, 5)]
    assert totals_of(tasks) == totals


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize(("ttl", "goes_on_at", "begins_at"), [(2, 2, 3), (100, 100, 101)])
def test_another_ttl_counts_from_the_last_time_of_a_key_as_if_it_had_always_been_so(
    ttl: int, goes_on_at: int, begins_at: int, backend: str
) -> None:
    tasks = Subtasks(SPEC, ["k"], backend)
    tasks.process(frame([(1, 1, 0, 0), (2, 1, 0, 0)]))
    tasks.rows()
    tasks.spec = msgspec.structs.replace(SPEC, ttl=Ttl(ttl))
    tasks.restart(2)
    tasks.watermark(goes_on_at)
    for runtime in tasks.runtimes:
        runtime.before_snapshot()
    tasks.process(frame([(1, 5, goes_on_at, 0), (2, 5, begins_at, 0)]))
    assert sorted(totals_of(tasks)) == [(1, 2, 6, 1), (2, 1, 5, 5)]
    tasks.close()


def test_a_ttl_by_another_clock_begins_for_the_totals_that_are_there_when_it_counts() -> None:
    tasks = Subtasks(SPEC, ["k"], now_ms=lambda: 1000)
    tasks.process(frame([(1, 1, 0, 0)]))
    tasks.spec = BY_CLOCK
    tasks.restart(1)
    (runtime,) = tasks.runtimes
    runtime.before_snapshot()
    tasks.process(frame([(1, 5, 0, 0)]))
    assert totals_of(tasks)[-1] == (1, 2, 6, 1)
    assert runtime.states["totals"].get(1)[-1] == 1000 + TTL
    tasks.close()


def test_by_the_clock_it_goes_by_when_rows_are_processed() -> None:
    now = [1000]
    tasks = Subtasks(BY_CLOCK, ["k"], now_ms=lambda: now[0])
    plain = frame([(1, 1, 0, 0)]).select("k", "x")
    for at, count in ((1000, 1), (1010, 2), (1020, 3), (1031, 1)):
        now[0] = at
        tasks.process(plain)
        assert totals_of(tasks) == [(1, count, count, 1)]
    (runtime,) = tasks.runtimes
    for at, left in ((1041, 1), (1042, 0)):
        now[0] = at
        runtime.before_snapshot()
        assert len(runtime.states["totals"]) == left
    assert not BY_CLOCK.requires()
    assert SPEC.requires() == {Requirement.EVENT_TIME}
    assert not ENDLESS.requires()
