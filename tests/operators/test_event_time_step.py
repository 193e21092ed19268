"""The step `event_time`: its watermark and how late rows are, against definitions that know all rows."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.subtasks import Subtasks
from tidegate.config.fields.records import Idle
from tidegate.datatypes import BIGINT
from tidegate.expressions.parse import parse_expression
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.kinds.event_time import PARTITION, TOPIC, EventTimeOperator
from tidegate.operators.kinds.event_time.runtime import PAIRS_MAX, EventTimeProgress
from tidegate.operators.lateness import LAST_MS
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StreamStatus, Watermark

DELAY = 10
COLUMNS = (("at", BIGINT),)
Record = tuple[int | None, int, int]
"""Event time, event time before, partition."""


def spec(text: str = "at", *, idle: Idle = Idle.CAUGHT_UP, ahead_ms: int | None = None) -> EventTimeOperator:
    expression = parse_expression(text, dict(COLUMNS))
    name, policy = OperatorName("timed"), BadRecordPolicy.SKIP
    return EventTimeOperator(name, expression, text, COLUMNS, policy, DELAY, idle, ahead_ms, (PARTITION,))


def frame(*records: Record) -> pl.DataFrame:
    times, before, partitions = zip(*records, strict=True)
    system = {"__tidegate_time": before, "__tidegate_behind": [7] * len(records), "__tidegate_offset": before}
    return pl.DataFrame(
        [
            pl.Series("at", times, pl.Int64),
            pl.Series("__tidegate_partition", partitions, pl.Int32),
            *(pl.Series(name, values, pl.Int64) for name, values in system.items()),
        ]
    )


def stamps(tasks: Subtasks) -> list[tuple[int, int, int]]:
    """Event time, how far behind, and partition, of what has come out since the last call."""
    return [(row["__tidegate_time"], row["__tidegate_behind"], row["__tidegate_partition"]) for row in tasks.rows()]


def watermarks(tasks: Subtasks) -> list[int]:
    found = [one.time_ms for one in tasks.out.order if isinstance(one, Watermark)]
    tasks.out.order.clear()
    return found


class Model:
    """All rows: which of them the input's watermark has passed, and the watermark of each partition."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self.marks: dict[int, int] = defaultdict(lambda: LOWEST)
        self.input_ms = LOWEST

    def take(self, records: list[Record]) -> list[tuple[int, int, int]]:
        stamped = []
        for time, before, partition in records:
            assert time is not None
            self.rows.append((before, time))
            stamped.append((time, max(0, self.marks[partition] + 1 - time), partition))
            self.marks[partition] = max(self.marks[partition], time - DELAY - 1)
        return stamped

    @property
    def watermark(self) -> int:
        passed = [time for before, time in self.rows if before <= self.input_ms + 1]
        return LOWEST if self.input_ms == LOWEST or not passed else max(passed) - DELAY - 1


RECORDS = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50), st.integers(0, 2)), min_size=1, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(-60, 60)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=14,
)


@pytest.mark.slow
@given(STEPS)
@settings(deadline=None, max_examples=25 * DEPTH)
def test_watermark_and_lateness_do_not_depend_on_batches_and_restarts(steps: list[Any]) -> None:
    tasks, model, reached, sent = Subtasks(spec(), ()), Model(), LOWEST, LOWEST
    for what, argument in steps:
        reached = max(reached, model.input_ms)
        if what == "restart":
            tasks.restart(argument)
            sent = LOWEST
            model.input_ms = LOWEST
        elif what == "watermark":
            model.input_ms = max(model.input_ms, argument)
            tasks.watermark(model.input_ms)
        else:
            stamped = model.take(argument)
            tasks.process(frame(*argument))
            assert stamps(tasks) == stamped
        sent = max([sent, *watermarks(tasks)])
        assert sent <= model.watermark
        if model.input_ms >= reached:  # before that a source has not come as far as it was at the restart
            assert sent == model.watermark
    tasks.close()


def test_partitions_of_several_topics_are_told_apart() -> None:
    several = msgspec.structs.replace(spec(), partition=(TOPIC, PARTITION))
    tasks = Subtasks(several, ())
    topics = pl.Series(TOPIC, ["a", "b", "a"], pl.String)
    tasks.process(frame((100, 0, 0), (20, 0, 0), (30, 0, 0)).with_columns(topics))
    assert stamps(tasks) == [(100, 0, 0), (20, 0, 0), (30, 100 - DELAY - 30, 0)]
    tasks.restart(2)
    tasks.process(frame((30, 0, 0), (30, 0, 0)).with_columns(topics[1:]))
    assert stamps(tasks) == [(30, 0, 0), (30, 100 - DELAY - 30, 0)]
    tasks.close()


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=60), st.lists(st.integers(0, 310)))
def test_only_pairs_that_matter_are_kept(pairs: list[tuple[int, int]], watermarks: list[int]) -> None:
    one = EventTimeProgress(0)
    one.add(pairs)
    assert [*one.pairs] == sorted({*one.pairs})
    assert all(first[1] < second[1] for first, second in zip(one.pairs, one.pairs[1:], strict=False))
    for watermark in sorted(watermarks):
        passed = [time for before, time in pairs if before <= watermark + 1]
        assert one.reach(watermark) == max(passed, default=LOWEST)


def test_pairs_are_bounded_and_the_newest_one_stays() -> None:
    one = EventTimeProgress(0)
    for at in range(5 * PAIRS_MAX):
        one.add([(at, at)])
    assert len(one.pairs) <= PAIRS_MAX
    assert one.pairs[-1] == (5 * PAIRS_MAX - 1,) * 2
    reached = [one.reach(at) for at in range(5 * PAIRS_MAX)]
    assert reached == sorted(reached)
    assert all(own <= at + 1 for at, own in enumerate(reached))


def test_a_partition_that_is_read_ahead_of_another_does_not_move_the_watermark_past_its_rows() -> None:
    tasks = Subtasks(spec(), ())
    tasks.process(frame(*((at, at, 0) for at in range(0, 1000, 10))))
    tasks.watermark(20)
    tasks.process(frame((25, 25, 1)))
    assert stamps(tasks)[-1] == (25, 0, 1)
    assert watermarks(tasks) == [20 - DELAY - 1]
    tasks.close()


def test_rows_without_a_usable_time_fail() -> None:
    tasks = Subtasks(spec("at div (at - 3)", ahead_ms=100), ())
    tasks.process(frame((3, 0, 0), (None, 0, 0), (4, 0, 0), (LAST_MS, 0, 0)))
    assert [(one.row, one.kind) for one in tasks.out.failures] == [
        (0, FailureKind.DIVIDE_BY_ZERO),
        (1, FailureKind.NO_EVENT_TIME),
    ]
    assert [one.message.partition(",")[0] for one in tasks.out.failures][1] == "the event time"
    assert [time for time, _, _ in stamps(tasks)] == [4, 1]
    tasks.close()


@pytest.mark.parametrize(("ahead_ms", "text"), [(None, "before the year 1 or after 9999"), (50, "after the one that")])
def test_times_outside_the_calendar_or_too_far_ahead_fail(ahead_ms: int | None, text: str) -> None:
    tasks = Subtasks(spec(ahead_ms=ahead_ms), ())
    far = LAST_MS + 1 if ahead_ms is None else 151
    tasks.process(frame((100, 100, 0), (far, 100, 0), (150, 100, 0)))
    (failure,) = tasks.out.failures
    assert (failure.row, failure.kind) == (1, FailureKind.EVENT_TIME_OUT_OF_RANGE)
    assert text in failure.message
    assert [time for time, _, _ in stamps(tasks)] == [100, 150]
    tasks.close()


def test_times_of_another_expression_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Subtasks(spec(), ())
    tasks.process(frame((100, 100, 0)))
    tasks.spec = spec("at * 10")
    tasks.restart(2)
    tasks.watermark(200)
    assert watermarks(tasks) == []
    tasks.process(frame((3, 100, 0)))
    assert stamps(tasks)[-1] == (30, 0, 0)
    assert "its event time is now at * 10 and was at: its watermarks start anew" in caplog.text
    tasks.close()


def test_the_watermark_follows_the_clock_only_while_the_input_is_idle() -> None:
    tasks = Subtasks(spec(idle=Idle.WALL_CLOCK), ())
    one: Any = tasks.runtimes[0]
    assert [one.next_deadline_ms] == [None]
    one.on_status(True, tasks.out)
    assert one.next_deadline_ms == 0
    assert one.on_time(5000, tasks.out) is False
    assert one.next_deadline_ms == 6000
    one.on_status(False, tasks.out)
    assert [one.next_deadline_ms] == [None]
    assert watermarks(tasks) == [5000 - DELAY - 1]
    tasks.close()


def test_idleness_and_the_end_of_time_are_passed_on() -> None:
    tasks = Subtasks(spec(), ())
    (one,) = tasks.runtimes
    for idle in (True, False):
        one.on_status(idle, tasks.out)
    one.on_watermark(END_OF_TIME, tasks.out)
    assert tasks.out.order == [StreamStatus(idle=True), StreamStatus(idle=False), Watermark(END_OF_TIME)]
    tasks.close()
