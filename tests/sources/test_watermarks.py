"""Watermarks of a source subtask: what is sent, in which order, and what is stored. No Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.fields.records import Idle
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.sources.watermarks import SourceWatermarks

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
ACTIVE, IDLE = ("status", False), ("status", True)


class Sent:
    """Notes what an operator gives to its `out`."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Any]] = []

    def watermark(self, time_ms: int) -> None:
        self.all.append(("watermark", time_ms))

    def status(self, idle: bool) -> None:
        self.all.append(("status", idle))

    def caught_up(self) -> None:
        raise AssertionError

    def emit(self, batch: Any) -> None:
        self.all.append(("rows", batch))

    def side(self, name: str, batch: Any) -> None:
        raise AssertionError(name)

    def fail(self, batch: Any, failures: Any, port: int | None = 0) -> None:
        raise AssertionError(failures)

    def take(self) -> list[tuple[str, Any]]:
        taken, self.all = self.all, []
        return taken


def marked(time_ms: int) -> tuple[str, int]:
    return ("watermark", time_ms)


class Source:
    """Two partitions unless others are given; `poll` sends as a source does."""

    def __init__(
        self,
        *partitions: TopicPartition,
        restored: Mapping[TopicPartition, int] | None = None,
        idle: Idle = Idle.CAUGHT_UP,
        delay_ms: int = 0,
        bounded: bool = False,
        arrival: bool = False,
    ) -> None:
        self.sent = Sent()
        event_time = EventTime(None if arrival else "at", delay_ms, idle, arrival=arrival)
        self.watermarks = SourceWatermarks(event_time, partitions or (P0, P1), restored or {}, bounded=bounded)

    def poll(self, **marks: int) -> list[tuple[str, Any]]:
        """A batch that takes the partitions `p0=..` to these watermarks."""
        if marks:
            self.watermarks.on_records({TopicPartition("orders", int(name[1:])): at for name, at in marks.items()})
        self.watermarks.send_before(self.sent)
        if marks:
            self.sent.emit("batch")
        self.watermarks.send_after(self.sent)
        return self.sent.take()

    def caught_up(self, *parts: TopicPartition) -> list[tuple[str, Any]]:
        """They are, and idle ones are still idle when the broker is asked."""
        for part in parts:
            self.watermarks.on_caught_up(part)
        self.answer()
        return self.poll()

    def clock(self, now_ms: int) -> list[tuple[str, Any]]:
        """It is this time, and idle partitions answer that they still are."""
        self.watermarks.on_clock(now_ms)
        self.answer()
        return self.poll()

    def answer(self) -> None:
        while questions := self.watermarks.take_questions():
            for part, question in questions:
                self.watermarks.on_caught_up(part, question)


ROWS = ("rows", "batch")


def test_the_watermark_of_a_source_is_the_lowest_of_its_partitions_and_comes_after_the_rows() -> None:
    source = Source()
    assert source.poll() == []
    assert source.poll(p0=100) == [ROWS]
    assert source.poll(p1=50) == [ROWS, marked(50)]
    assert source.poll(p0=100, p1=70) == [ROWS, marked(70)]
    assert source.poll(p0=110, p1=200) == [ROWS, marked(110)]


def test_one_batch_sends_one_watermark() -> None:
    source = Source()
    source.poll(p0=1, p1=1)
    assert source.poll(p0=5, p1=3) == [ROWS, marked(3)]


def test_a_partition_that_has_no_rows_yet_is_waited_for_and_named() -> None:
    source = Source()
    assert source.poll(p0=100) == [ROWS]
    assert source.watermarks.held_back_by == P1
    source.poll(p1=120)
    assert source.watermarks.held_back_by == P0


def test_an_idle_partition_holds_nobody_back() -> None:
    source = Source()
    source.poll(p0=100, p1=50)
    assert source.caught_up(P1) == [marked(100)]
    assert source.poll(p0=130) == [ROWS]
    source.answer()
    assert source.poll() == [marked(130)]
    assert source.watermarks.held_back_by == P0


def test_nothing_passes_an_idle_partition_before_the_broker_was_asked_again() -> None:
    """Its records may be there already, and would be late (ADR 52)."""
    source = Source()
    source.poll(p0=100, p1=50)
    source.caught_up(P1)
    assert source.poll(p0=130) == [ROWS]
    assert source.watermarks.take_questions() == [(P1, 2)]
    assert source.watermarks.question_of(P1) == 2
    assert source.watermarks.held_back_by == P1
    assert source.poll(p1=110) == [ROWS, marked(110)]
    source.watermarks.on_caught_up(P1, 2)
    assert source.poll() == [], "idle, and not asked since"


def test_no_question_is_left_about_a_partition_that_has_rows_again() -> None:
    """All were idle, and one batch has rows of two of them: asked about its new end, the second one would be idle at
    once, and what it has next would be passed.
    """
    source = Source()
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    assert source.poll(p0=130, p1=120)[-1] == marked(120)
    assert source.watermarks.take_questions() == []


def test_who_asks_a_subtask_that_is_idle_is_answered_when_its_partitions_were_asked() -> None:
    source = Source()
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    source.watermarks.ask_still_idle()
    first, second = source.watermarks.take_questions()
    source.watermarks.on_caught_up(*first)
    assert not source.watermarks.take_still_idle()
    source.watermarks.on_caught_up(*second)
    assert source.watermarks.take_still_idle()
    assert not source.watermarks.take_still_idle()


def test_who_asks_a_subtask_without_partitions_is_answered_at_once() -> None:
    watermarks = SourceWatermarks(EventTime(), (), {}, bounded=False)
    assert not watermarks.take_still_idle(), "nobody has asked"
    watermarks.ask_still_idle()
    assert watermarks.take_still_idle()


def test_who_asks_a_subtask_that_gets_its_first_partition_is_answered_when_that_is_idle() -> None:
    """Downstream may never see that it was active in between: one status cancels the other in a queue."""
    watermarks = SourceWatermarks(EventTime(), (), {}, bounded=False)
    watermarks.ask_still_idle()
    watermarks.on_added([P0])
    assert not watermarks.take_still_idle()
    watermarks.on_caught_up(P0)
    (question,) = watermarks.take_questions()
    watermarks.on_caught_up(*question)
    assert watermarks.take_still_idle()


def test_an_idle_partition_that_has_had_bad_records_alone_stays_idle() -> None:
    """Active, it would have no watermark to send, and downstream everything would wait for its first one."""
    source = Source(P0)
    assert source.caught_up(P0) == [IDLE]
    assert source.poll(p0=LOWEST) == [ROWS]
    source.watermarks.ask_still_idle()
    (question,) = source.watermarks.take_questions()
    source.watermarks.on_caught_up(*question)
    assert source.watermarks.take_still_idle()
    assert source.poll(p0=100) == [ACTIVE, ROWS, marked(100)]


def test_W05_W08_a_source_that_was_idle_says_active_before_its_rows_and_its_watermark_after_them() -> None:
    source = Source()
    source.poll(p0=100, p1=50)
    assert source.caught_up(P1, P0) == [marked(100), IDLE]
    assert source.watermarks.held_back_by is None
    assert source.poll(p0=100) == [ACTIVE, ROWS], "the other one is asked"
    source.answer()
    assert source.poll() == [marked(100)], "where it is, also if it is where it was"
    assert source.poll(p0=140) == [ROWS]
    source.answer()
    assert source.poll() == [marked(140)]


def test_W03_an_idle_source_sends_nothing_until_it_has_rows() -> None:
    source = Source(P0)
    source.poll(p0=100)
    assert source.caught_up(P0) == [IDLE]
    assert source.caught_up(P0) == []
    assert source.poll() == []
    assert source.poll(p0=101) == [ACTIVE, ROWS, marked(101)]


def test_W02_a_source_that_has_ended_sends_the_end_of_time_and_is_not_idle() -> None:
    source = Source(bounded=True)
    source.poll(p0=100, p1=50)
    source.watermarks.on_end([P1])
    assert source.poll() == [marked(100)]
    source.watermarks.on_end([P0])
    assert source.poll() == [marked(END_OF_TIME)]
    assert source.watermarks.snapshot() == ((P0, 100), (P1, 50))


def test_W02_the_watermark_of_the_last_records_precedes_the_end_of_time_that_comes_with_them() -> None:
    source = Source(bounded=True)
    source.watermarks.on_records({P0: 100, P1: 50})
    source.watermarks.on_end([P0, P1])
    assert source.poll() == [marked(100), marked(END_OF_TIME)]


def test_W02_a_bounded_subtask_without_partitions_is_at_the_end_of_time() -> None:
    watermarks = SourceWatermarks(EventTime(), (), {}, bounded=True)
    sent = Sent()
    watermarks.send_before(sent)
    assert sent.take() == [marked(END_OF_TIME)]


def test_a_subtask_without_partitions_is_idle_until_it_gets_one() -> None:
    watermarks = SourceWatermarks(EventTime(), (), {}, bounded=False)
    sent = Sent()
    watermarks.send_before(sent)
    assert sent.take() == [IDLE]
    watermarks.on_added([P0, P1])
    watermarks.on_records({P0: 10})
    watermarks.send_before(sent)
    watermarks.send_after(sent)
    assert sent.take() == [ACTIVE]
    assert watermarks.held_back_by == P1
    watermarks.on_caught_up(P1)
    for part, question in watermarks.take_questions():
        watermarks.on_caught_up(part, question)
    watermarks.send_after(sent)
    assert sent.take() == [marked(10)]


def test_an_added_partition_holds_the_watermark_back_until_it_has_rows_or_is_caught_up() -> None:
    source = Source()
    source.poll(p0=100, p1=90)
    source.watermarks.on_added([P2])
    assert source.poll(p0=200, p1=200) == [ROWS]
    assert source.watermarks.held_back_by == P2
    assert source.poll(p2=150) == [ROWS, marked(150)]
    assert source.watermarks.snapshot() == ((P0, 200), (P1, 200), (P2, 150))
    source.watermarks.on_added([P2])
    assert source.watermarks.snapshot()[2] == (P2, 150)


def test_an_added_partition_without_records_stops_holding_the_watermark_back_once_it_is_caught_up() -> None:
    source = Source()
    source.poll(p0=100, p1=90)
    source.watermarks.on_added([P2])
    assert source.poll(p0=200, p1=180) == [ROWS]
    assert source.caught_up(P2) == [marked(180)]


def test_restored_watermarks_are_sent_first() -> None:
    source = Source(restored={P0: 100, P1: 50})
    assert source.poll() == [marked(50)]
    assert source.poll(p0=100, p1=50) == [ROWS]


def test_after_a_restore_every_partition_is_waited_for_until_it_is_caught_up_again() -> None:
    """What came to a partition while the pipeline was away must not be late because another one was read first."""
    source = Source()
    source.poll(p0=100, p1=50)
    source.caught_up(P1)
    again = Source(restored=dict(source.watermarks.snapshot()))
    assert again.poll() == [marked(50)]
    assert again.poll(p0=900) == [ROWS]
    assert again.poll(p1=80) == [ROWS, marked(80)]


def test_a_partition_that_has_no_watermark_yet_is_not_stored() -> None:
    source = Source()
    source.poll(p0=100)
    assert source.watermarks.snapshot() == ((P0, 100),)
    assert source.watermarks.marks[P1] == LOWEST


@pytest.mark.parametrize(("idle", "bounded"), [(Idle.NEVER, False), (Idle.CAUGHT_UP, True), (Idle.WALL_CLOCK, True)])
def test_nobody_asks_whether_a_partition_is_caught_up_that_is_never_idle(idle: Idle, bounded: bool) -> None:
    assert not Source(idle=idle, bounded=bounded).watermarks.watches


# -- the clock ---------------------------------------------------------------------------------------------------------


def test_a_silent_source_follows_the_clock_where_the_file_says_so_and_stores_it() -> None:
    source = Source(idle=Idle.WALL_CLOCK, delay_ms=1000)
    source.poll(p0=100, p1=50)
    assert source.caught_up(P0, P1) == [marked(100)]
    assert source.clock(5000) == [marked(3999)]
    assert source.watermarks.snapshot() == ((P0, 3999), (P1, 3999))


def test_without_that_word_the_clock_moves_nothing() -> None:
    source = Source()
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    assert source.clock(5000) == []
    assert source.watermarks.snapshot() == ((P0, 100), (P1, 50))


def test_the_clock_moves_nothing_while_one_partition_has_rows() -> None:
    source = Source(idle=Idle.WALL_CLOCK)
    source.poll(p0=100, p1=50)
    source.caught_up(P1)
    assert source.clock(5000) == []


def test_rows_that_come_after_the_clock_has_moved_the_watermark_do_not_take_it_back() -> None:
    source = Source(idle=Idle.WALL_CLOCK)
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    assert source.clock(5001) == [marked(5000)]
    assert source.watermarks.marks == {P0: 5000, P1: 5000}
    assert source.poll(p0=5000) == [ROWS]
    assert source.poll(p1=5100) == [ROWS]
    assert source.poll(p0=6000) == [ROWS, marked(5100)]


def test_a_clock_that_is_behind_the_records_takes_nothing_back() -> None:
    source = Source(P0, idle=Idle.WALL_CLOCK)
    source.poll(p0=100)
    source.caught_up(P0)
    assert source.clock(50) == []
    assert source.watermarks.snapshot() == ((P0, 100),)


def test_what_the_clock_has_decided_is_restored() -> None:
    source = Source(P0, idle=Idle.WALL_CLOCK)
    source.poll(p0=100)
    source.caught_up(P0)
    source.clock(5001)
    again = Source(P0, restored=dict(source.watermarks.snapshot()), idle=Idle.WALL_CLOCK)
    assert again.poll() == [marked(5000)]


def test_the_clock_moves_nothing_before_every_partition_has_answered_since() -> None:
    """What has arrived in the meantime must not be late because the broker could not be asked for a while."""
    source = Source(idle=Idle.WALL_CLOCK)
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    source.watermarks.on_clock(5001)
    questions = dict(source.watermarks.take_questions())
    assert questions.keys() == {P0, P1}
    source.watermarks.on_caught_up(P0, questions[P0])
    assert source.poll() == []
    source.watermarks.on_clock(9001)
    assert source.watermarks.take_questions() == [], "nobody is asked twice"
    source.watermarks.on_caught_up(P1, questions[P1])
    assert source.poll() == [marked(5000)]
    assert source.clock(10_001) == [marked(10_000)]


def test_a_partition_that_has_records_instead_of_an_answer_is_waited_for() -> None:
    source = Source(idle=Idle.WALL_CLOCK)
    source.poll(p0=100, p1=50)
    source.caught_up(P0, P1)
    source.watermarks.on_clock(5001)
    assert source.poll(p0=200) == [ROWS]
    source.answer()
    assert source.poll() == [marked(200)], "that of its records, once the other one has answered"
    assert source.watermarks.marks == {P0: 200, P1: 50}


# -- the time of arrival -----------------------------------------------------------------------------------------------


def test_what_an_idle_partition_brings_later_arrives_after_the_watermark_that_has_passed_it() -> None:
    source = Source(idle=Idle.WALL_CLOCK, arrival=True)
    source.poll(p0=100, p1=100)
    source.caught_up(P1)
    assert source.poll(p0=300) == [ROWS]
    source.answer()
    assert source.poll() == [marked(300)]
    assert source.watermarks.marks == {P0: 300, P1: 300}
    assert source.watermarks.snapshot() == ((P0, 300), (P1, 300)), "a restore continues there"


def test_a_partition_that_is_found_later_has_nothing_that_arrived_before_what_was_sent() -> None:
    source = Source(P0, idle=Idle.WALL_CLOCK, arrival=True)
    source.poll(p0=100)
    source.watermarks.on_added([P1])
    assert source.watermarks.marks == {P0: 100, P1: 100}
    assert Source(idle=Idle.WALL_CLOCK, arrival=True).watermarks.snapshot() == ()


def test_a_bounded_read_stores_no_end_of_time_as_the_time_of_arrival() -> None:
    source = Source(idle=Idle.WALL_CLOCK, arrival=True, bounded=True)
    source.poll(p0=100, p1=50)
    source.watermarks.on_end([P0, P1])
    assert source.poll() == [marked(100), marked(END_OF_TIME)]
    assert source.watermarks.snapshot() == ((P0, 100), (P1, 100))


# -- everything at once ------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(0, 2), st.integers(0, 1000)),
        st.tuples(st.just("idle"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("clock"), st.just(0), st.integers(0, 1000)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([(Idle.CAUGHT_UP, False), (Idle.WALL_CLOCK, False), (Idle.WALL_CLOCK, True)]))
def test_watermarks_only_grow_rows_come_while_active_and_stored_ones_never_go_back(
    steps: list[tuple[str, int, int]], way: tuple[Idle, bool]
) -> None:
    parts, (idle, arrival) = (P0, P1, P2), way
    source, stored = Source(*parts, idle=idle, arrival=arrival), dict[TopicPartition, int]()
    highest_ms, active, resumed = LOWEST, True, False
    for word, number, value in steps:
        before = dict(source.watermarks.marks)
        sent: list[tuple[str, Any]] = []
        if word == "rows":
            part = parts[number]
            sent = source.poll(**{f"p{number}": max(value, before[part])})
        elif word == "idle":
            sent = source.caught_up(parts[number])
        elif word == "clock":
            sent = source.clock(value)
        else:
            source = Source(*parts, restored=stored, idle=idle, arrival=arrival)
            highest_ms, active, resumed = LOWEST, True, False
        for kind, what in sent:
            if kind == "status":
                assert active == what, "only changes are sent"
                active = resumed = not what
            elif kind == "rows":
                assert active
            else:
                assert active
                assert what > highest_ms or (resumed and what == highest_ms)
                highest_ms, resumed = what, False
        now = dict(source.watermarks.snapshot())
        if arrival and highest_ms > LOWEST:
            assert all(now[part] >= highest_ms for part in parts), "what follows is never behind what was sent"
        assert all(now[part] >= at for part, at in stored.items())
        stored = now
