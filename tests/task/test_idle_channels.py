"""An idle channel is asked before a watermark passes it, one that is active again is waited for (ADR 52)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.task.test_valve import fed, feed
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.task.elements import StillIdle, StreamStatus, TimeElement, Watermark
from tidegate.task.valve import Inputs, Valve

ACTIVE = StreamStatus(idle=False)
IDLE = StreamStatus(idle=True)

# -- the valve -----------------------------------------------------------------------------------------------------


def test_a_channel_that_is_active_again_is_waited_for_until_its_first_watermark() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (0, False))
    assert valve.on_watermark(1, 12) == []
    assert valve.held_back_by() == 0
    assert valve.on_watermark(0, 10) == [Watermark(10)]
    assert valve.on_watermark(0, 20) == [Watermark(12)]


def test_a_channel_that_is_active_again_and_has_nothing_new_is_not_waited_for() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (0, False))
    assert valve.on_watermark(1, 12) == []
    assert valve.on_watermark(0, 4) == [Watermark(12)]


def test_a_channel_that_is_active_for_a_moment_is_not_waited_for_any_more() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (0, False))
    assert valve.on_watermark(1, 12) == []
    assert valve.on_status(0, idle=True) == [Watermark(12)]


def test_a_valve_that_is_active_again_says_where_it_is() -> None:
    """So that whoever reads from it need not wait for it until it has come further."""
    valve = fed(2, (0, 9), (1, 4), (0, True), (1, True), (1, False))
    assert valve.on_watermark(1, 5) == [Watermark(9)]
    assert valve.on_watermark(1, 6) == []


def active_while_asked() -> Inputs:
    """Two that were idle and asked: the second one has answered, the first one is active again."""
    inputs = Inputs([0, 1])
    for port in range(2):
        inputs.on_control(port, IDLE)
    inputs.ask()
    [_, (other, question)] = inputs.take_questions()
    assert inputs.on_control(other, StillIdle(question)) == []
    assert inputs.on_control(0, ACTIVE) == [ACTIVE]
    return inputs


def test_an_input_that_ends_while_it_is_asked_needs_no_answer() -> None:
    """Else whoever reads from the vertex would wait for its answer for ever."""
    inputs = active_while_asked()
    assert inputs.on_control(0, Watermark(END_OF_TIME)) == [IDLE]
    for ask in (None, inputs.ask):
        if ask is not None:
            ask()
        [(other, question)] = inputs.take_questions()
        assert inputs.on_control(other, StillIdle(question)) == [StillIdle()]


def test_an_input_that_is_active_while_it_is_asked_has_not_answered() -> None:
    """Rows have come from it."""
    inputs = active_while_asked()
    assert inputs.on_control(0, Watermark(7)) == []
    out: list[TimeElement] = []
    while questions := inputs.take_questions():
        out += [each for other, question in questions for each in inputs.on_control(other, StillIdle(question))]
    assert out == [Watermark(7)]


@pytest.mark.parametrize("last", [5, True])
def test_a_valve_that_is_active_again_says_where_it_is_when_all_its_channels_have(last: int | bool) -> None:
    """Else whoever reads from it would not wait for rows that are on their way to it."""
    valve = fed(2, (0, 9), (1, 4), (0, True), (1, True), (0, False), (1, False))
    assert valve.on_watermark(0, 9) == []
    assert feed(valve, [(1, last)]) == [Watermark(9)]
    valve = fed(2, (0, 9), (1, 4), (0, True), (1, True), (0, False), (1, False))
    assert valve.on_watermark(1, 5) == []
    assert valve.on_watermark(0, 9) == [Watermark(9)]


def test_nothing_passes_an_idle_channel_before_it_has_said_that_it_still_is() -> None:
    valve = Valve(2)
    feed(valve, [(0, 4), (1, 9), (0, True)])
    assert valve.take_questions() == [(0, 1)]
    assert valve.watermark_ms == 4
    assert valve.held_back_by() == 0
    assert valve.on_watermark(1, 12) == []
    assert valve.take_questions() == [], "one at a time"
    assert valve.on_still_idle(0, 1) == [Watermark(9)], "what the other had reached when it was asked"
    assert valve.take_questions() == [(0, 2)]
    assert valve.on_still_idle(0, 1) == []
    assert valve.on_still_idle(0, 2) == [Watermark(12)]


def test_an_idle_channel_is_asked_only_when_something_is_to_pass_it() -> None:
    valve = fed(3, (0, 4), (1, 9), (2, 9), (0, True), (0, False), (0, 5))
    assert valve.watermark_ms == 9
    assert Valve.on_status(valve, 0, idle=True) == []
    assert Valve.on_watermark(valve, 1, 12) == []
    assert valve.take_questions() == [], "the third one is still at 9"
    assert Valve.on_watermark(valve, 2, 11) == []
    assert [channel for channel, _ in valve.take_questions()] == [0]


def test_who_holds_back_is_told_by_what_an_idle_channel_has_answered() -> None:
    """And not by its watermark, below which the others have come meanwhile."""
    valve = fed(2, (0, 4), (1, 9), (0, True))
    Valve.on_watermark(valve, 1, 12)
    assert valve.held_back_by() == 0
    added = valve.add_channel()
    Valve.on_watermark(valve, added, 6)
    assert valve.held_back_by() == added


def test_a_channel_that_is_active_before_it_has_answered_holds_the_others_back() -> None:
    valve = Valve(2)
    feed(valve, [(0, 4), (1, 9), (0, True), (0, False)])
    assert valve.on_still_idle(0, 1) == []
    assert valve.on_watermark(1, 12) == []
    assert valve.on_watermark(0, 6) == [Watermark(6)]


def test_the_highest_is_let_out_when_every_idle_channel_has_answered() -> None:
    valve = Valve(3)
    feed(valve, [(0, 4), (1, 9), (2, 6), (1, True), (2, True), (0, True)])
    assert not valve.idle
    asked = valve.take_questions()
    assert [channel for channel, _ in asked] == [0, 2]
    assert [valve.on_still_idle(*one) for one in asked] == [[Watermark(6)], [Watermark(9), IDLE]]


def test_who_asks_an_idle_valve_is_answered_when_all_channels_have_answered() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (1, True))
    valve.ask()
    (first, one), (second, two) = valve.take_questions()
    assert valve.on_still_idle(first, one) == []
    assert valve.on_still_idle(second, two) == [StillIdle()]
    assert valve.on_still_idle(second, two) == []


def test_who_asks_an_active_valve_is_answered_when_it_is_idle() -> None:
    valve = Valve(1)
    assert valve.on_watermark(0, 4) == [Watermark(4)]
    valve.ask()
    assert valve.take_questions() == []
    assert valve.on_status(0, idle=True) == [IDLE]
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[StillIdle()]]
    assert feed(valve, [(0, False), (0, 5), (0, True)]) == [ACTIVE, Watermark(5), IDLE]
    assert valve.take_questions() == [], "nobody has asked since"


def test_a_valve_that_falls_idle_in_between_asks_again_for_who_asks() -> None:
    """What a channel has answered by then was not asked for that."""
    valve = Valve(2)
    feed(valve, [(0, 9), (1, 4), (0, True), (1, True)])
    valve.ask()
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[Watermark(9), IDLE]]
    (first, one), (second, two) = valve.take_questions()
    assert valve.on_still_idle(first, one) == []
    assert valve.on_still_idle(second, two) == [StillIdle()]


def resumed(*events: tuple[int, int | bool]) -> Valve:
    """One with two channels, idle at 9 and 4, of which the first is active again."""
    valve = Valve(2)
    feed(valve, [(0, 9), (1, 4), (0, True), (1, True)])
    for one in valve.take_questions():
        valve.on_still_idle(*one)
    assert feed(valve, [(0, False)]) == [ACTIVE]
    assert feed(valve, events) == [], "the other one has not been asked since"
    return valve


def test_a_valve_that_is_active_again_says_where_it_is_when_its_idle_channels_have_answered() -> None:
    """Else whoever reads from it would take it for late, and pass rows that are on their way to the idle one."""
    valve = resumed((0, 20))
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[Watermark(20)]], "one question is enough"
    assert valve.on_watermark(0, 21) == []


def test_a_valve_that_is_active_again_says_where_it_is_when_the_others_are_active_too() -> None:
    valve = resumed((0, 20))
    assert valve.on_status(1, idle=False) == []
    assert valve.on_watermark(1, 15) == [Watermark(15)]


def test_a_valve_that_is_active_again_waits_with_a_higher_watermark_for_the_others_too() -> None:
    """It comes further meanwhile where the other one, which has not said where it is, was ahead already."""
    valve = fed(3, (0, 4), (1, 9), (2, 12), (0, True), (0, False), (0, 5), (2, True), (1, True), (0, True))
    assert feed(valve, [(1, False), (2, False)]) == [ACTIVE]
    assert valve.on_watermark(1, 11) == []
    assert valve.on_watermark(2, 12) == [Watermark(11)]


def test_a_valve_that_has_let_nothing_out_yet_says_nothing_when_it_is_active_again() -> None:
    valve = Valve(2)
    assert feed(valve, [(0, True), (1, True), (0, False)]) == [IDLE, ACTIVE]
    assert feed(valve, [(0, 5)]) == []
    [(other, _)] = valve.take_questions()
    assert valve.on_status(other, idle=False) == []
    assert valve.on_watermark(other, LOWEST) == [], "it has come nowhere"
    assert valve.on_watermark(other, 3) == [Watermark(3)]


def test_a_valve_that_was_active_for_a_moment_need_not_say_where_it_is() -> None:
    valve = resumed((0, 9))
    assert valve.on_status(0, idle=True) == [IDLE]
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[]]


def test_a_channel_that_is_added_while_all_others_are_asked_is_asked_too() -> None:
    valve = Valve(2)
    feed(valve, [(0, 9), (1, 4), (0, True), (1, True)])
    added = valve.add_channel()
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[]]
    assert valve.take_questions() == [(added, 1)]
    assert valve.on_still_idle(added, 1) == [Watermark(9), IDLE]
    assert feed(valve, [(added, False), (added, 20)]) == [ACTIVE], "the others are asked"
    assert [valve.on_still_idle(*one) for one in valve.take_questions()] == [[], [Watermark(20)]]


def test_what_was_wanted_is_let_out_though_a_channel_was_active_in_between_that_did_not_hold_it_back() -> None:
    valve = Valve(3)
    feed(valve, [(0, 4), (1, 9), (2, 20), (2, True), (0, True), (2, False), (2, True), (1, True)])
    out: list[TimeElement] = []
    while questions := valve.take_questions():
        for one in questions:
            out += valve.on_still_idle(*one)
    assert out == [Watermark(9), Watermark(20), IDLE]


BEFORE_THE_ANSWER: Final = [(1, True), (1, False), (1, 9), (1, True), (1, False)]
WHAT = st.one_of(st.integers(-3, 12), st.booleans(), st.sampled_from(["add", "ask", "answer"]))


@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 5), WHAT), max_size=40))
@example(2, [(0, True), (1, 7), (0, "answer"), *BEFORE_THE_ANSWER, (0, "answer"), (1, True)])
def test_when_all_questions_are_answered_nobody_is_waited_for(
    channels: int, events: list[tuple[int, int | str]]
) -> None:
    """Whenever that is, and whatever has happened meanwhile."""
    valve, marks, idle = Valve(channels), [LOWEST] * channels, [False] * channels
    asked: list[tuple[int, int]] = []
    out: list[TimeElement] = []
    for number, what in [*events, *[(0, "answer")] * 40]:
        channel = number % len(marks)
        if what == "add":
            valve.add_channel()
            marks.append(LOWEST)
            idle.append(all(idle))
        elif what == "ask":
            valve.ask()
        elif what == "answer":
            answers, asked = asked, []
            for one in answers:
                if idle[one[0]]:
                    out += valve.on_still_idle(*one)
        elif isinstance(what, bool):
            idle[channel] = what
            out += valve.on_status(channel, what)
        elif isinstance(what, int):
            marks[channel] = marks[channel] if idle[channel] else max(marks[channel], what)
            out += valve.on_watermark(channel, what)
        asked += valve.take_questions()
    assert not any(map(valve.question_of, range(len(marks))))
    assert valve.idle == all(idle)
    if valve.idle:
        said = [one.time_ms for one in out if isinstance(one, Watermark)]
        assert valve.watermark_ms == max(said, default=LOWEST), "nothing is left unsaid"
    else:
        assert valve.watermark_ms >= min(mark for mark, one in zip(marks, idle, strict=True) if not one)


class Behind:
    """Channels with a watermark of their own each, all idle, to which rows are committed at one moment.

    Row `t` raises the watermark of its channel to `t - 1`. Elements of a channel arrive in their order, whenever.
    """

    def __init__(self, channels: int) -> None:
        self.valve = Valve(channels)
        self.wires: list[deque[TimeElement | int]] = [deque() for _ in range(channels)]
        self.unread: list[deque[int]] = [deque() for _ in range(channels)]
        self.marks = [0] * channels
        self.active = [False] * channels
        self.late: list[int] = []

    def commit(self, channel: int, rows: Sequence[int]) -> None:
        self.unread[channel] += rows

    def read(self, channel: int) -> None:
        if not self.unread[channel]:
            return
        row = self.unread[channel].popleft()
        if not self.active[channel]:
            self.wires[channel].append(ACTIVE)
        self.active[channel] = True
        self.marks[channel] = max(self.marks[channel], row - 1)
        self.wires[channel] += [row, Watermark(self.marks[channel])]

    def rest(self, channel: int) -> None:
        if self.active[channel] and not self.unread[channel]:
            self.active[channel] = False
            self.wires[channel].append(IDLE)

    def arrive(self, channel: int) -> None:
        if not self.wires[channel]:
            return
        match self.wires[channel].popleft():
            case Watermark(time_ms):
                self.valve.on_watermark(channel, time_ms)
            case StreamStatus(idle):
                self.valve.on_status(channel, idle)
            case StillIdle(question):
                self.valve.on_still_idle(channel, question)
            case int(row):
                if row <= self.valve.watermark_ms:
                    self.late.append(row)
        for asked, question in self.valve.take_questions():
            if not self.active[asked] and not self.unread[asked]:
                self.wires[asked].append(StillIdle(question))


STEPS = st.lists(st.tuples(st.sampled_from(["read", "rest", "arrive", "arrive"]), st.integers(0, 2)), max_size=60)
IN_ORDER = st.lists(st.integers(20, 40), max_size=5).map(sorted)


BETWEEN_STATUS_AND_ROW: Final = [("read", 0), ("arrive", 0), ("read", 1), *[("arrive", 1)] * 3, ("arrive", 2)]


@given(st.lists(st.tuples(st.integers(1, 9), IN_ORDER), min_size=3, max_size=3), STEPS, STEPS)
@example([(1, [20]), (9, [40]), (5, [])], [("arrive", c) for c in (0, 1, 2) for _ in range(5)], BETWEEN_STATUS_AND_ROW)
def test_rows_that_are_there_before_others_are_read_are_never_late_however_slowly_they_are_read(
    channels: list[tuple[int, list[int]]], before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    world = Behind(3)
    for channel, (first, _) in enumerate(channels):
        world.commit(channel, [first])
        world.read(channel)
        world.rest(channel)
    for what, channel in before:
        getattr(world, what)(channel)
    for channel, (_, rows) in enumerate(channels):
        world.commit(channel, rows)
    everything = [(what, channel) for channel in range(3) for what in ("read", "arrive", "arrive", "arrive", "rest")]
    for what, channel in [*after, *everything * 8]:
        getattr(world, what)(channel)
    assert world.late == []
    assert not any(world.unread)
    assert not any(world.wires)


class Wire(deque[TimeElement | int]):
    """What a source has sent, and has not arrived."""

    def watermark(self, time_ms: int) -> None:
        self.append(Watermark(time_ms))

    def status(self, idle: bool) -> None:
        self.append(StreamStatus(idle))


class SeveralEach:
    """As `Behind`, but two sources with two partitions each."""

    def __init__(self) -> None:
        self.valve = Valve(2)
        self.wires = [Wire(), Wire()]
        self.parts = [TopicPartition("t", number) for number in range(4)]
        times = EventTime()
        self.sources = [SourceWatermarks(times, self.parts[at : at + 2], {}, bounded=False) for at in (0, 2)]
        self.questions = [0, 0]
        self.unread: list[deque[int]] = [deque() for _ in self.parts]
        self.late: list[int] = []

    def read(self, number: int) -> None:
        if not self.unread[number]:
            return
        source, wire, part = self.sources[number // 2], self.wires[number // 2], self.parts[number]
        row = self.unread[number].popleft()
        source.on_records({part: max(source.marks[part], row - 1)})
        source.send_before(wire)  # type: ignore[arg-type]  # what it needs of it
        wire.append(row)
        self._answer(number // 2)

    def rest(self, number: int) -> None:
        """The broker says that it is caught up."""
        if not self.unread[number]:
            source, part = self.sources[number // 2], self.parts[number]
            source.on_caught_up(part, source.question_of(part))
            self._answer(number // 2)

    def _answer(self, index: int) -> None:
        source, wire = self.sources[index], self.wires[index]
        source.send_before(wire)  # type: ignore[arg-type]  # what it needs of it
        source.send_after(wire)  # type: ignore[arg-type]  # what it needs of it
        source.take_questions()
        if source.take_still_idle():
            wire.append(StillIdle(self.questions[index]))

    def arrive(self, number: int) -> None:
        wire, channel = self.wires[number // 2], number // 2
        if not wire:
            return
        match wire.popleft():
            case Watermark(time_ms):
                self.valve.on_watermark(channel, time_ms)
            case StreamStatus(idle):
                self.valve.on_status(channel, idle)
            case StillIdle(question):
                self.valve.on_still_idle(channel, question)
            case int(row):
                if row <= self.valve.watermark_ms:
                    self.late.append(row)
        for asked, question in self.valve.take_questions():
            self.questions[asked] = question
            self.sources[asked].ask_still_idle()
            self._answer(asked)


OF_FOUR = st.lists(st.tuples(st.sampled_from(["read", "rest", "arrive", "arrive"]), st.integers(0, 3)), max_size=60)
ALL_IDLE: Final = [(what, part) for _ in range(4) for part in range(4) for what in ("arrive", "rest", "arrive")]
ONE_PARTITION_FIRST: Final = [
    *[("read", 1), ("read", 2), ("rest", 3)],
    *[("arrive", part) for part in (0, 0, 0, 2, 2, 2, 2)],
    *[("read", 0), ("arrive", 0), ("arrive", 0)],
]


@given(st.lists(st.tuples(st.integers(1, 9), IN_ORDER), min_size=4, max_size=4), OF_FOUR, OF_FOUR)
@example([(1, [20]), (5, [30]), (9, [40]), (2, [])], ALL_IDLE, ONE_PARTITION_FIRST)
def test_rows_in_idle_partitions_are_not_late_while_another_partition_of_their_source_is_read_first(
    parts: list[tuple[int, list[int]]], before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    world = SeveralEach()
    for number, (first, _) in enumerate(parts):
        world.unread[number].append(first)
        world.read(number)
        world.rest(number)
    world.late.clear()
    for what, number in before:
        getattr(world, what)(number)
    for number, (_, rows) in enumerate(parts):
        world.unread[number] += rows
    everything = [(what, number) for number in range(4) for what in ("read", "arrive", "arrive", "arrive", "rest")]
    for what, number in [*after, *everything * 16]:
        getattr(world, what)(number)
    assert world.late == []
    assert not any(world.unread)
    assert not any(world.wires)
