"""`quiet` against a definition that knows all rows, whatever batches, restarts and numbers of subtasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.quiet import QuietOperator, runtime
from tidegate.operators.kinds.quiet.runtime import Arrivals, Silence
from tidegate.operators.lateness import LAST_MS
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.operators.spec import LATE, Planned
from tidegate.task.elements import StreamStatus, Watermark

FOR = 10
COLUMNS = (("n", BIGINT), ("k", STRING), ("b", BIGINT))
KEYS = ("k", "b")
OUTPUT = (*KEYS, "quiet", "last_at")
Record = tuple[Any, int, int]
"""Key, event time, and by how much the watermark of its partition had passed that."""
Found = tuple[Any, int, bool, int]
"""Key, event time, whether it is quiet, and the time of the last row before."""


def spec(repeat_ms: int | None = None) -> QuietOperator:
    late = (*COLUMNS, *REASONS)
    outputs = {"": OUTPUT, LATE: tuple(dict(late))}
    return QuietOperator(
        OperatorName("silent"),
        KEYS,
        COLUMNS,
        BadRecordPolicy.FAIL,
        FOR,
        repeat_ms,
        late=late,
        planned=Planned(outputs=outputs),
    )


def frame(records: list[Record]) -> pl.DataFrame:
    keys, times, behind = zip(*records, strict=True)
    return pl.DataFrame(
        [
            pl.Series("n", range(len(records)), pl.Int64),
            pl.Series("k", keys, pl.String),
            pl.Series("b", [0] * len(records), pl.Int64),
            pl.Series("__tidegate_time", times, pl.Int64),
            pl.Series("__tidegate_behind", behind, pl.Int64),
        ]
    )


def found(tasks: Subtasks) -> list[Found]:
    """What has come out since the last call."""
    return [
        (row["k"], row["__tidegate_time"], row["quiet"], round(row["last_at"].timestamp() * 1000))
        for row in tasks.rows()
    ]


def results_of(times: set[int], repeat: int | None, until: int, before: int) -> list[tuple[int, bool, int]]:
    """The results of one key up to an instant, from the definition. `before`: the watermark before an end of time."""
    ordered = sorted(times)
    results = []
    for last, following in pairwise([*ordered, None]):
        assert last is not None
        if following is not None and following <= last + FOR:
            continue
        end = until if following is None else min(until, following - 1)
        if following is None and until == END_OF_TIME:
            end = max(last + FOR, before)  # an end of time repeats nothing
        at = last + FOR
        while at <= end:
            results.append((at, True, last))
            if repeat is None:
                break
            at += repeat
        if following is not None and following <= until:
            results.append((following, False, last))
    return results


def timers_of(one: Any) -> list[int]:
    """The times of its timers."""
    state = one.states["timers"]
    return [key[0] for group in range(16) for key, _ in state.scan(group)]


class Model:
    """All rows, and what has been seen of their results."""

    def __init__(self, repeat: int | None) -> None:
        self.times: dict[Any, set[int]] = defaultdict(set)
        self.repeat = repeat
        self.watermark = self.before = LOWEST
        self.late = 0
        self.seen: Counter[Found] = Counter()

    def take(self, records: list[Record]) -> None:
        for key, time, behind in records:
            if behind or time <= self.watermark:
                self.late += 1
            else:
                self.times[key].add(time)

    def expected(self) -> Counter[Found]:
        return Counter(
            (key, *one)
            for key, times in self.times.items()
            for one in results_of(times, self.repeat, self.watermark, self.before)
        )


RECORDS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-60, 90), st.sampled_from([0, 0, 0, 0, 5])),
    min_size=1,
    max_size=20,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(-70, 150)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=14,
)


def play(backend: str, steps: list[Any], repeat: int | None) -> None:
    tasks, model, late = Subtasks(spec(repeat), KEYS, backend), Model(repeat), 0
    for what, argument in [*steps, ("watermark", END_OF_TIME)]:
        if what == "restart":
            late += sum(one.late_rows for one in tasks.runtimes)
            tasks.restart(argument)
        elif what == "watermark":
            model.before, model.watermark = model.watermark, max(model.watermark, argument)
            tasks.watermark(model.watermark)
            results = found(tasks)
            model.seen.update(results)
            assert model.seen == model.expected()
        else:
            model.take(argument)
            tasks.process(frame(argument))
            assert found(tasks) == []
    assert late + sum(one.late_rows for one in tasks.runtimes) == model.late
    assert sum(batch.height for batch in tasks.out.sides.get(LATE, [])) == model.late
    entries = sum(len(one.states["arrivals"]) for one in tasks.runtimes)
    timers = sum(one.gauges["timers"] for one in tasks.runtimes)
    assert entries == len(model.times)
    assert timers == (0 if repeat is None else entries)
    tasks.close()


@pytest.mark.slow
@given(STEPS, st.sampled_from([None, 3, 25]))
@settings(deadline=None, max_examples=30 * DEPTH)
def test_results_are_a_function_of_the_rows_that_are_not_late(steps: list[Any], repeat: int | None) -> None:
    play("memory", steps, repeat)


@pytest.mark.deep
@given(STEPS, st.sampled_from([None, 3, 25]))
@settings(deadline=None, max_examples=20 * DEPTH)
def test_results_are_the_same_in_rocksdb(steps: list[Any], repeat: int | None) -> None:
    play("rocksdb", steps, repeat)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60))
@settings(deadline=None, max_examples=100)
def test_two_times_per_length_are_kept_at_most(times: list[int]) -> None:
    silence, arrivals = Silence(FOR, None), Arrivals(())
    for time in times:
        arrivals = silence.add(arrivals, [time])
    assert all(third - first > FOR for first, third in zip(arrivals.times, arrivals.times[2:], strict=False))


def test_rows_that_only_postpone_a_result_do_not_move_the_timer() -> None:
    tasks = Subtasks(spec(), KEYS)
    tasks.process(frame([("a", 0, 0)]))
    tasks.process(frame([("a", 7, 0)]))
    (one,) = tasks.runtimes
    assert timers_of(one) == [FOR]
    tasks.watermark(16)
    assert (found(tasks), one.gauges) == ([], {"timers": 1})
    assert timers_of(one) == [17]
    tasks.watermark(17)
    assert found(tasks) == [("a", 17, True, 7)]
    tasks.close()


def test_W20_a_watermark_follows_everything_that_it_makes_due_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RESULTS_AT_ONCE", 3)
    tasks = Subtasks(spec(repeat_ms=5), KEYS)
    tasks.process(frame([(key, 0, 0) for key in "abcd"]))
    (one,) = tasks.runtimes
    one.on_watermark(26, tasks.out)
    one.on_status(True, tasks.out)
    assert not one.settled
    assert not any(isinstance(element, Watermark | StreamStatus) for element in tasks.out.order)
    while one.poll(1000, tasks.out):
        pass
    assert tasks.out.order[-2:] == [Watermark(26), StreamStatus(idle=True)]
    assert Counter(found(tasks)) == Counter((key, at, True, 0) for key in "abcd" for at in (10, 15, 20, 25))
    assert one.settled
    tasks.close()


def test_the_end_of_time_waits_for_what_the_last_watermark_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "RESULTS_AT_ONCE", 3)
    tasks = Subtasks(spec(repeat_ms=5), KEYS)
    tasks.process(frame([(key, 0, 0) for key in "abcd"]))
    (one,) = tasks.runtimes
    one.on_watermark(26, tasks.out)
    one.on_watermark(END_OF_TIME, tasks.out)
    while one.poll(1000, tasks.out):
        pass
    assert tasks.out.order[-2:] == [Watermark(26), Watermark(END_OF_TIME)]
    assert Counter(found(tasks)) == Counter((key, at, True, 0) for key in "abcd" for at in (10, 15, 20, 25))
    assert one.settled
    tasks.close()


def test_the_repeats_that_a_jump_of_the_watermark_makes_due_come_together() -> None:
    tasks = Subtasks(spec(repeat_ms=5), KEYS)
    tasks.process(frame([("a", 0, 0), ("b", 1, 0)]))
    (one,) = tasks.runtimes
    one.on_watermark(10_009, tasks.out)
    calls = 1
    while one.poll(1000, tasks.out):
        calls += 1
    assert calls == 4000 // runtime.RESULTS_AT_ONCE
    times = sorted(at for _, at, _, _ in found(tasks))
    assert times == sorted([*range(10, 10_010, 5), *range(11, 10_010, 5)])
    tasks.close()


def test_after_an_end_of_time_a_key_is_back_and_repeats_as_before() -> None:
    tasks = Subtasks(spec(repeat_ms=20), KEYS)
    tasks.process(frame([("a", 0, 0), ("b", 0, 0)]))
    tasks.watermark(END_OF_TIME)
    assert sorted(found(tasks)) == [("a", 10, True, 0), ("b", 10, True, 0)]
    tasks.restart(2)
    tasks.process(frame([("a", 10, 0), ("a", 45, 0)]))
    assert sum(one.late_rows for one in tasks.runtimes) == 1  # it would have changed what was emitted
    tasks.watermark(50)
    assert sorted(found(tasks)) == [
        ("a", 30, True, 0),
        ("a", 45, False, 0),
        ("b", 30, True, 0),
        ("b", 50, True, 0),
    ]
    tasks.close()


def test_a_key_whose_absence_would_be_after_the_year_9999_is_never_quiet() -> None:
    tasks = Subtasks(spec(repeat_ms=4), KEYS)
    tasks.process(frame([("a", LAST_MS - 3, 0), ("b", LAST_MS - 15, 0)]))
    tasks.watermark(LAST_MS)
    tasks.watermark(END_OF_TIME)
    assert found(tasks) == [("b", LAST_MS - 5, True, LAST_MS - 15), ("b", LAST_MS - 1, True, LAST_MS - 15)]
    tasks.close()
