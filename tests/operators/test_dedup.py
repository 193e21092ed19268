"""`dedup` against a model that remembers every record, whatever batches, restarts and numbers of subtasks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, STRING, TIMESTAMP
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.dedup import DedupOperator, runtime
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import LATE, Planned
from tidegate.task.elements import Watermark

WITHIN = 10
KEYS = (("k", STRING), ("day", TIMESTAMP))
COLUMNS = (("n", BIGINT), ("k", STRING))
SPEC = DedupOperator(
    OperatorName("once"),
    tuple(dict(KEYS)),
    (("n", BIGINT), *KEYS),
    BadRecordPolicy.FAIL,
    WITHIN,
    late=(*COLUMNS, *REASONS),
    planned=Planned(outputs={"": tuple(dict(COLUMNS)), LATE: tuple(dict((*COLUMNS, *REASONS)))}),
)
"""`day` is a key, and nothing reads it further down."""
Record = tuple[int, Any, int, int]
"""Number, key, event time, and by how much the watermark of its partition had passed that."""


def frame(records: list[Record]) -> pl.DataFrame:
    columns = list(zip(*records, strict=True))
    day = pl.Series("day", [0] * len(records), pl.Int64).cast(pl.Datetime("us", "UTC"))
    names = ("n", "k", "__tidegate_time", "__tidegate_behind")
    kinds = (pl.Int64, pl.String, pl.Int64, pl.Int64)
    parts = [pl.Series(name, values, kind) for name, values, kind in zip(names, columns, kinds, strict=True)]
    return pl.DataFrame([*parts[:2], day, *parts[2:]])


class Model:
    """What passes, from the definition."""

    def __init__(self) -> None:
        self.passed: list[tuple[Any, int]] = []
        self.watermark = -(2**63)
        self.late: list[tuple[int, int]] = []
        """Numbers, and the watermarks by which they are late."""

    def passing(self, records: list[Record]) -> list[int]:
        found = []
        for number, key, time, behind in records:
            if behind or time < self.watermark:
                self.late.append((number, max(self.watermark, time + behind - 1)))
            elif not any(key == other and abs(time - at) <= WITHIN for other, at in self.passed):
                self.passed.append((key, time))
                found.append(number)
        return found


RECORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-40, 60), st.sampled_from([0, 0, 0, 5])),
    min_size=1,
    max_size=30,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(-50, 70)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=12,
)


def play(backend: str, steps: list[Any]) -> None:
    tasks, model, number = Subtasks(SPEC, ["k", "day"], backend), Model(), 0
    late = 0
    for what, argument in steps:
        if what == "restart":
            late += sum(one.late_rows for one in tasks.runtimes)
            tasks.restart(argument)
        elif what == "watermark":
            model.watermark = max(model.watermark, argument)
            tasks.watermark(model.watermark)
        else:
            records = [(number + index, *rest) for index, rest in enumerate(argument)]
            number += len(records)
            tasks.process(frame(records))
            assert sorted(row["n"] for row in tasks.rows()) == model.passing(records)
    assert late + sum(one.late_rows for one in tasks.runtimes) == len(model.late)
    shown = [row for frame in tasks.out.sides.get("late", []) for row in frame.to_dicts()]
    assert sorted((row["n"], round(row["_watermark"].timestamp() * 1000)) for row in shown) == sorted(model.late)
    assert all(
        row["_reason"].startswith("late: ") and {"__tidegate_time", "__tidegate_behind"} < row.keys() for row in shown
    )
    for one in tasks.runtimes:
        assert all(row[0] // WITHIN >= model.watermark // WITHIN - 1 for row in held(one))
    tasks.close()


def held(runtime: Any) -> list[Any]:
    """The entries of its state, whose first column is the bucket."""
    state = runtime.states["seen"]
    return [(key[0] * WITHIN, *key[1:]) for group in range(16) for key, _ in state.scan(group)]


@given(STEPS)
@settings(deadline=None, max_examples=40)
def test_W22_the_first_of_each_key_within_a_time_passes(steps: list[Any]) -> None:
    play("memory", steps)


@pytest.mark.deep
@pytest.mark.slow
@given(STEPS)
@settings(deadline=None, max_examples=30)
def test_W22_the_first_of_each_key_within_a_time_passes_on_disk(steps: list[Any]) -> None:
    play("rocksdb", steps)


def test_what_is_over_is_forgotten_as_fast_as_records_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FORGOTTEN_AT_ONCE", 20)
    tasks, rows = Subtasks(SPEC, ["k", "day"]), 50
    (one,) = tasks.runtimes
    for turn in range(20):
        tasks.process(frame([(at, f"k{at}", turn * WITHIN, 0) for at in range(turn * rows, (turn + 1) * rows)]))
        one.poll(1_000, tasks.out)
        one.on_watermark(turn * WITHIN - 1, tasks.out)
        one.poll(1_000, tasks.out)
    assert one.gauges["remembered"] <= 5 * rows
    tasks.close()


@given(RECORDS, st.lists(st.integers(1, 29), max_size=4))
@settings(deadline=None, max_examples=40)
def test_how_rows_are_cut_into_batches_does_not_matter(records: list[Any], cuts: list[int]) -> None:
    rows = [(number, *rest) for number, rest in enumerate(records)]
    one, several = Subtasks(SPEC, ["k", "day"]), Subtasks(SPEC, ["k", "day"])
    one.process(frame(rows))
    bounds = [0, *sorted(cuts), len(rows)]
    for start, end in pairwise(bounds):
        if rows[start:end]:
            several.process(frame(rows[start:end]))
    assert one.rows() == several.rows()


@pytest.fixture
def once() -> Subtasks:
    return Subtasks(SPEC, ["k", "day"])


@pytest.fixture
def passing(once: Subtasks) -> Callable[[list[Record]], list[int]]:
    def run(records: list[Record]) -> list[int]:
        once.process(frame(records))
        return [row["n"] for row in once.rows()]

    return run


def test_a_duplicate_is_as_far_as_the_time_and_no_further(passing: Any) -> None:
    times = (100, 110, 90, 111, 89)
    assert passing([(number, "a", time, 0) for number, time in enumerate(times)]) == [0, 3, 4]


def test_a_duplicate_does_not_make_the_time_longer(passing: Any) -> None:
    assert passing([(1, "a", 100, 0), (2, "a", 108, 0), (3, "a", 116, 0)]) == [1, 3]


def test_only_the_columns_that_are_read_are_passed_on_with_those_of_the_engine(once: Subtasks) -> None:
    once.process(frame([(1, "a", 100, 0)]))
    assert once.rows() == [{"n": 1, "k": "a", "__tidegate_time": 100, "__tidegate_behind": 0}]


def test_keys_are_forgotten_as_the_watermark_passes_and_the_watermark_goes_on(once: Subtasks) -> None:
    once.process(frame([(number, f"k{number}", 100 + number % 10, 0) for number in range(5000)]))
    (runtime,) = once.runtimes
    once.watermark(119)
    assert runtime.gauges == {"remembered": 5000}
    runtime.on_watermark(120, once.out)
    assert runtime.gauges == {"remembered": 5000}, "not all in one call"
    assert runtime.poll(1, once.out)
    assert runtime.gauges == {"remembered": 3000}
    once.watermark(121)
    assert runtime.gauges == {"remembered": 0}
    assert [one.time_ms for one in once.out.order if isinstance(one, Watermark)] == [119, 120, 121]


def test_W01_an_end_of_time_forgets_nothing(once: Subtasks, passing: Any) -> None:
    assert passing([(1, "a", 100, 0)]) == [1]
    once.watermark(95)
    once.watermark(END_OF_TIME)
    once.restart(2)
    assert passing([(2, "a", 104, 0), (3, "a", 94, 0), (4, "a", 111, 0)]) == [4]
    assert sum(one.late_rows for one in once.runtimes) == 1


def test_a_key_may_be_null_where_every_key_group_has_entries() -> None:
    tasks = Subtasks(SPEC, ["k", "day"], "memory")
    tasks.process(frame([(number, f"k{number}", 0, 0) for number in range(2000)]))
    assert len(tasks.rows()) == 2000
    tasks.watermark(1)
    tasks.process(frame([(2000, "new", 1, 0), (2001, None, 1, 0), (2002, None, 2, 0), (2003, "k0", 2, 0)]))
    assert [row["n"] for row in tasks.rows()] == [2000, 2001]
