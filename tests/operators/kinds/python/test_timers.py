"""Timers of a Python step: when they fire, in which order, and what is left after a restart or a failure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from tests.operators.driven import Collected
from tests.operators.kinds.python.running import messages, operator, rows, taken
from tests.operators.kinds.python.test_states import Clock, entries
from tests.operators.subtasks import Subtasks
from tidegate.formats.dead_letters.frames import dead_letters_of_rows
from tidegate.formats.failures import RecordFailure
from tidegate.ids import MAIN_CLUSTER, SourceTopic
from tidegate.operators.kinds.python.running import timers
from tidegate.operators.runtime import END_OF_TIME
from tidegate.task.elements import Watermark

TIME = "__tidegate_time"
CLICKS = (SourceTopic(MAIN_CLUSTER, "clicks"),)


def sessions(backend: str = "memory") -> Subtasks:
    return Subtasks(operator("Sessions", settings={"gap": "10ms"}, timed=True), ("user",), backend)


def due(tasks: Subtasks) -> list[Any]:
    return sorted(taken(tasks, "user", "clicks", TIME))


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_timer_fires_when_the_watermark_reaches_it_over_restarts(backend: str) -> None:
    tasks = sessions(backend)
    tasks.process(rows(("a", 1), ("b", 1), ("a", 1), (None, 1), times=[0, 3, 7, 1]))
    tasks.watermark(10)
    assert due(tasks) == []
    tasks.restart(3)
    tasks.watermark(12)
    assert taken(tasks, "user", "clicks", TIME) == [(None, 1, 11)]
    tasks.restart(2)
    tasks.process(rows(("c", 1), ("a", 1), times=[12, 14]))
    tasks.watermark(23)
    assert due(tasks) == [("b", 1, 13), ("c", 1, 22)]
    tasks.watermark(24)
    assert due(tasks) == [("a", 3, 24)]
    assert [entries(tasks, name) for name in ("rows", "quiet", "event_timers")] == [{}, {}, {}]
    tasks.close()


def test_the_watermark_follows_what_it_makes_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "FIRED_AT_ONCE", 3)
    tasks = sessions()
    tasks.process(rows(*((f"k{n}", 1) for n in range(10)), times=[(7 * n) % 10 for n in range(10)]))
    (one,) = tasks.runtimes
    one.on_watermark(100, tasks.out)
    assert not one.settled
    while one.poll(1000, tasks.out):
        assert one.gauges["timers"] == len(entries(tasks, "quiet"))
    assert one.settled
    frames = [part for part in tasks.out.order if isinstance(part, pl.DataFrame)]
    assert [time for frame in frames for time in frame[TIME]] == [10 + n for n in range(10)]
    assert [frame.height for frame in frames] == [3, 3, 3, 1]
    assert tasks.out.order[-1] == Watermark(100)
    tasks.close()


def test_a_timer_that_was_postponed_fires_after_the_earlier_ones_of_a_later_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timers, "FIRED_AT_ONCE", 2)
    tasks = sessions()
    tasks.process(rows(("a", 1), ("b", 1), ("c", 1), times=[0, 10, 20]))
    tasks.process(rows(("a", 1), times=[40]))
    tasks.watermark(100)
    assert taken(tasks, "user", TIME) == [("b", 20), ("c", 30), ("a", 50)]
    tasks.close()


def test_a_timer_that_is_moved_or_cleared_does_not_fire_at_its_old_time() -> None:
    tasks = sessions()
    tasks.process(rows(("a", 1), ("b", 1), times=[100, 100]))
    tasks.process(rows(("a", 1), ("b", 0), times=[20, 20]))
    assert entries(tasks, "event_timers") == {(30, "a", "quiet"): ()}
    tasks.process(rows(("a", 1), times=[50]))
    assert entries(tasks, "quiet") == {"a": (60, 30, 50, False)}
    tasks.watermark(59)
    assert (due(tasks), entries(tasks, "event_timers")) == ([], {(60, "a", "quiet"): ()})
    tasks.watermark(60)
    assert due(tasks) == [("a", 3, 60)]
    tasks.close()


def test_a_timer_of_a_row_that_raises_is_as_before() -> None:
    tasks = sessions()
    tasks.process(rows(("a", 1), ("a", -1), ("b", -1), times=[0, 5, 5]))
    assert [row for row, _ in messages(tasks)] == [1, 2]
    tasks.watermark(10)
    assert due(tasks) == [("a", 1, 10)]
    tasks.close()


def test_a_timer_that_raises_is_gone_and_the_state_as_before() -> None:
    tasks = sessions()
    tasks.process(rows(*[("a", 1)] * 13, ("b", 1), times=[0] * 14))
    tasks.watermark(50)
    assert due(tasks) == [("b", 1, 10)]
    ((row, message),) = messages(tasks)
    assert row == 0
    at = "1970-01-01T00:00:00.010000+00:00"
    assert message == f"timer `quiet` of {at}: ValueError: a timer that fails, at steps.py in on_timer"
    assert [entries(tasks, name) for name in ("rows", "quiet", "event_timers")] == [{"a": (13,)}, {}, {}]
    tasks.close()


def test_a_timer_in_the_past_fires_at_once_and_keeps_the_step_unsettled() -> None:
    tasks = sessions()
    tasks.watermark(1000)
    tasks.process(rows(("a", 1), times=[5]))
    (one,) = tasks.runtimes
    assert not one.settled
    assert one.poll(1000, tasks.out)
    assert due(tasks) == [("a", 1, 15)]
    assert one.settled
    assert not one.poll(1000, tasks.out)
    tasks.close()


def test_ended_entries_are_removed_at_a_snapshot_of_a_step_with_timers() -> None:
    tasks = Subtasks(operator("Expiring", settings={"gap": "10ms"}, timed=True), ("user",))
    tasks.process(rows(("a", 0), ("b", 0), times=[0, 0]))  # without a timer
    tasks.watermark(2000)
    assert entries(tasks, "seen") == {"a": (True, 1000), "b": (True, 1000)}
    tasks.restart(2)
    assert entries(tasks, "seen") == {}
    tasks.close()


def test_a_timer_may_set_itself_again() -> None:
    tasks = Subtasks(operator("Beats", timed=True), ("user",))
    tasks.process(rows(("a", 1), times=[0]))
    tasks.watermark(3500)
    assert taken(tasks, "clicks", TIME) == [(1, 1000), (2, 2000), (3, 3000)]
    tasks.watermark(END_OF_TIME)
    assert taken(tasks, "clicks", TIME) == [(4, 4000)]
    tasks.restart(2)
    tasks.watermark(END_OF_TIME)
    assert taken(tasks, "clicks", TIME) == []
    tasks.restart(1)
    tasks.watermark(6000)
    assert taken(tasks, "clicks", TIME) == [(5, 5000), (6, 6000)]
    tasks.close()


def test_a_timer_by_the_clock_fires_at_its_time_and_never_loops_in_one_call() -> None:
    clock = Clock()
    tasks = Subtasks(operator("Beats", timed=True), ("user",), "memory", clock)
    tasks.process(rows(("a", 10_000), times=[5000]))
    tasks.restart(1)
    (one,) = tasks.runtimes
    assert one.next_deadline_ms == 60_000
    assert not one.on_time(59_999, tasks.out)
    clock.now_ms = 60_000
    assert one.on_time(60_000, tasks.out)
    found = taken(tasks, "user", "clicks", TIME)
    assert found == [("minute", 60, 5000)] * timers.FIRED_AT_ONCE
    assert one.next_deadline_ms == 60_000
    one.on_watermark(7000, tasks.out)
    one.on_time(60_000, tasks.out)
    assert set(taken(tasks, TIME)) == {7001}
    tasks.close()


def test_firing_ends_after_fifty_milliseconds() -> None:
    now = [0]

    def tick() -> int:
        now[0] += 10
        return now[0]

    tasks = Subtasks(operator("Sessions", settings={"gap": "10ms"}, timed=True), ("user",), "memory", tick)
    tasks.process(rows(*((f"k{n}", 1) for n in range(10)), times=range(10)))
    (one,) = tasks.runtimes
    one.on_watermark(100, tasks.out)
    assert [batch.height for batch in tasks.out.batches] == [5]
    while one.poll(1000, tasks.out):
        pass
    assert len(due(tasks)) == 10
    tasks.close()


class Letters(Collected):
    """Makes dead letters of failed rows, as the loop does."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[dict[str, Any]] = []

    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0) -> None:
        super().fail(batch, failures, port)
        self.letters += dead_letters_of_rows("visits", CLICKS, batch, failures).to_dicts()


def test_the_dead_letter_of_a_timer_has_its_key() -> None:
    tasks = sessions()
    tasks.out = Letters()
    tasks.process(rows(*[("a", 1)] * 13, times=[0] * 13))
    tasks.watermark(50)
    (letter,) = tasks.out.letters
    assert (letter["row"], letter["offset"], letter["kind"]) == ('{"user":"a"}', None, "PYTHON_FAILED")
    tasks.close()
