"""The valve: event time of several channels as one (contract W01, W07-W19), rule by rule and against a naive model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.task.naive_valve import NaiveValve
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.task.elements import StillIdle, StreamStatus, TimeControl, TimeElement, Watermark
from tidegate.task.valve import Inputs, Valve

ACTIVE = StreamStatus(idle=False)
IDLE = StreamStatus(idle=True)

Event = tuple[int, int | bool]
"""A channel, and what it delivers: a watermark, or whether it is idle."""


class Answered(Valve):
    """Its idle channels say at once that they still are."""

    def on_watermark(self, channel: int, time_ms: int) -> list[TimeControl]:
        return self._answer(super().on_watermark(channel, time_ms))

    def on_status(self, channel: int, idle: bool) -> list[TimeControl]:
        return self._answer(super().on_status(channel, idle))

    def _answer(self, controls: list[TimeControl]) -> list[TimeControl]:
        """What comes out bit by bit as what would have come out at once."""
        out: list[TimeElement] = [*controls]
        while questions := self.take_questions():
            for channel, question in questions:
                out += self.on_still_idle(channel, question)
        joined: list[TimeControl] = []
        for one in out:
            if isinstance(one, Watermark) and joined and isinstance(joined[-1], Watermark):
                joined.pop()
            if not isinstance(one, StillIdle):
                joined.append(one)
        return joined


def feed(valve: Valve, events: Iterable[Event]) -> list[TimeControl]:
    """All that comes out of these."""
    out: list[TimeControl] = []
    for channel, what in events:
        if isinstance(what, bool):
            out += valve.on_status(channel, what)
        else:
            out += valve.on_watermark(channel, what)
    return out


def fed(channels: int, *events: Event) -> Valve:
    valve = Answered(channels)
    feed(valve, events)
    return valve


# -- rule by rule ------------------------------------------------------------------------------------------------------


def test_W01_end_of_time_comes_out_when_every_channel_is_there_and_is_the_highest_of_all() -> None:
    valve = fed(2, (0, 5), (0, END_OF_TIME))
    assert valve.on_watermark(1, END_OF_TIME - 1) == [Watermark(END_OF_TIME - 1)]
    assert valve.on_watermark(1, END_OF_TIME) == [Watermark(2**63 - 1)]
    assert valve.on_watermark(1, END_OF_TIME) == []


def test_W01_an_input_that_has_ended_does_not_end_one_that_is_idle() -> None:
    valve = fed(2, (0, 5), (1, 7), (1, True))
    assert valve.on_watermark(0, END_OF_TIME) == [Watermark(7), IDLE]
    assert feed(valve, [(1, False), (1, 9), (1, END_OF_TIME)]) == [ACTIVE, Watermark(9), Watermark(END_OF_TIME)]


def test_W01_an_input_that_has_ended_does_not_end_one_that_is_late() -> None:
    valve = fed(3, (0, 5), (1, 9), (2, 9), (0, True), (0, False), (0, 5))
    assert feed(valve, [(1, END_OF_TIME), (2, END_OF_TIME), (0, 8)]) == []
    assert feed(valve, [(0, 10)]) == [Watermark(10)]


@pytest.mark.parametrize("ending", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_W01_whichever_channel_ends_last_the_highest_watermark_comes_before_the_end_of_time(
    ending: tuple[int, ...],
) -> None:
    """`quiet` repeated absences up to there: their number depended on the order in which partitions ended."""
    valve = Valve(3)
    assert feed(valve, [(0, 9), (1, 3), (2, 5)]) == [Watermark(3)]
    *before, last, end = [3, *(one.time_ms for one in feed(valve, [(one, END_OF_TIME) for one in ending]))]  # type: ignore[union-attr]  # no status
    assert (before == sorted(before), last, end) == (True, 9, END_OF_TIME)
    assert feed(valve, [(one, END_OF_TIME) for one in ending]) == []


def test_W07_a_valve_starts_active_and_lowest_with_every_channel_aligned() -> None:
    valve = Valve(2)
    assert (valve.watermark_ms, valve.idle) == (LOWEST, False)
    assert valve.on_watermark(0, 5) == []
    assert valve.held_back_by() == 1
    assert valve.on_watermark(1, 3) == [Watermark(3)]


def test_W07_no_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Valve(0)
    with pytest.raises(ValueError, match="at least one"):
        Inputs([])
    with pytest.raises(ValueError, match="at least one"):
        Inputs([1, 1])


def test_W08_a_watermark_of_an_idle_channel_is_ignored() -> None:
    valve = fed(2, (0, 1), (1, 1), (0, True))
    assert valve.on_watermark(0, 9) == []
    assert feed(valve, [(0, False), (1, 5)]) == []
    assert feed(valve, [(0, 6), (1, 9)]) == [Watermark(5), Watermark(6)]


def test_W08_a_watermark_is_ignored_while_the_valve_is_idle() -> None:
    valve = fed(1, (0, 1), (0, True))
    assert valve.on_watermark(0, 9) == []
    assert valve.watermark_ms == 1


def test_W09_a_watermark_that_is_not_above_the_last_of_its_channel_is_ignored() -> None:
    valve = fed(2, (0, 5), (1, 9))
    assert feed(valve, [(0, 5), (0, 4), (1, 6)]) == []
    assert valve.held_back_by() == 0
    assert valve.on_watermark(0, 20) == [Watermark(9)]


def test_W10_a_late_channel_counts_again_from_where_it_has_caught_up() -> None:
    valve = fed(2, (0, 5), (1, 5), (0, True), (1, 8), (0, False), (0, 6))
    assert valve.on_watermark(0, 7) == []
    assert valve.held_back_by() == 1
    assert valve.on_watermark(0, 8) == []
    assert valve.held_back_by() == 0
    assert valve.on_watermark(1, 20) == []
    assert valve.on_watermark(0, 11) == [Watermark(11)]


def test_W11_the_lowest_of_the_aligned_channels_comes_out_when_it_has_grown() -> None:
    valve = Valve(3)
    assert feed(valve, [(0, 4), (1, 6), (2, 5)]) == [Watermark(4)]
    assert feed(valve, [(1, 7), (0, 5)]) == [Watermark(5)]
    assert feed(valve, [(0, 9), (2, 8)]) == [Watermark(7)]


def test_W11_nothing_comes_out_without_an_aligned_channel() -> None:
    valve = fed(2, (0, 5), (1, 9), (0, True), (0, False), (0, 6), (1, True))
    assert valve.watermark_ms == 9
    assert valve.held_back_by() is None
    assert valve.on_watermark(0, 8) == []


def test_W12_a_status_that_changes_nothing_does_nothing() -> None:
    valve = fed(2, (0, 4), (1, 6))
    assert valve.on_status(0, idle=False) == []
    assert valve.on_status(0, idle=True) == [Watermark(6)]
    assert valve.on_status(0, idle=True) == []
    assert valve.on_status(1, idle=True) == [IDLE]
    assert valve.on_status(1, idle=True) == []
    assert valve.on_status(1, idle=False) == [ACTIVE]
    assert valve.on_status(1, idle=False) == []


def test_W13_an_idle_channel_is_not_waited_for() -> None:
    valve = fed(2, (0, 4), (1, 6), (0, True))
    assert valve.held_back_by() == 1
    assert valve.on_watermark(1, 20) == [Watermark(20)]


def test_W14_the_last_to_fall_idle_lets_the_highest_out_if_it_held_the_others_back() -> None:
    valve = fed(3, (0, 4), (1, 9), (2, 6), (1, True), (2, True))
    assert valve.watermark_ms == 4
    assert valve.on_status(0, idle=True) == [Watermark(9), IDLE]
    assert valve.idle


def test_W14_the_last_to_fall_idle_lets_the_highest_out_also_where_answers_come_later() -> None:
    """It was ahead of what had come out, and yet the one that held back what would have come out."""
    valve = Valve(2)
    assert feed(valve, [(0, 4), (1, 3), (0, True), (1, 5)]) == [Watermark(3), Watermark(4)]
    assert valve.take_questions() == [(0, 1)]
    assert feed(valve, [(1, 99), (1, True)]) == []
    assert valve.on_still_idle(0, 1) == [Watermark(5)]
    assert valve.take_questions() == [(0, 2)]
    assert valve.on_still_idle(0, 2) == [Watermark(99), IDLE]


def test_W14_what_an_input_that_has_ended_would_have_let_out_comes_out_when_the_idle_one_has_answered() -> None:
    valve = Valve(2)
    assert feed(valve, [(1, True), (0, 5)]) == []
    assert valve.take_questions() == [(1, 1)]
    assert feed(valve, [(0, END_OF_TIME)]) == []
    assert valve.on_still_idle(1, 1) == [Watermark(5), IDLE]


@pytest.mark.parametrize("last", [True, END_OF_TIME])
def test_W15_the_last_to_fall_idle_or_to_end_lets_nothing_out_if_it_was_late(last: int | bool) -> None:
    valve = fed(3, (0, 4), (1, 9), (2, 12), (0, True), (0, False), (0, 5), (2, True), (1, True))
    assert valve.watermark_ms == 9
    assert feed(valve, [(0, last)]) == [IDLE]


def test_W16_the_minimum_is_looked_for_again_when_its_channel_falls_idle() -> None:
    valve = fed(3, (0, 4), (1, 9), (2, 6))
    assert valve.on_status(1, idle=True) == []
    assert valve.on_status(0, idle=True) == [Watermark(6)]


def test_W17_a_channel_that_is_active_again_counts_at_once_if_it_is_not_late() -> None:
    valve = fed(2, (0, 9), (1, 4), (0, True), (1, 9), (0, False))
    assert valve.on_watermark(1, 12) == []
    assert valve.held_back_by() == 0


def test_W17_the_first_channel_that_is_active_again_makes_the_valve_active() -> None:
    valve = fed(2, (0, 9), (1, 4), (0, True), (1, True))
    assert valve.on_status(1, idle=False) == [ACTIVE]
    assert valve.on_status(0, idle=False) == []


def test_W17_a_channel_that_is_active_again_and_comes_as_far_as_what_has_come_out_is_waited_for() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (0, False))
    assert feed(valve, [(0, 9), (1, 12)]) == []
    assert valve.held_back_by() == 0


def test_W18_event_time_goes_on_with_the_one_channel_that_is_neither_idle_nor_late() -> None:
    """It was idle, and is further than what has come out."""
    valve = fed(3, (0, 4), (1, 5), (2, 9), (0, True), (0, False), (0, 4), (2, True), (1, True))
    assert valve.watermark_ms == 5
    assert valve.on_status(2, idle=False) == []
    assert valve.on_watermark(2, 10) == [Watermark(10)]
    assert valve.on_watermark(2, 11) == [Watermark(11)]


def test_W18_a_late_channel_that_falls_idle_lets_nothing_out() -> None:
    """The only one that counts is active again, and its first rows are on their way."""
    valve = fed(3, (0, 4), (1, 5), (2, 9), (0, True), (0, False), (0, 4), (2, True), (1, True), (2, False))
    assert valve.on_status(0, idle=True) == []
    assert valve.on_watermark(2, 10) == [Watermark(10)]


def test_W18_a_late_channel_does_not_hold_the_valve_back() -> None:
    valve = fed(2, (0, 4), (1, 9), (0, True), (0, False), (0, 5))
    assert valve.on_watermark(1, 12) == [Watermark(12)]
    assert valve.on_watermark(0, 6) == []
    assert valve.on_watermark(1, 13) == [Watermark(13)]


def test_a_channel_that_is_added_holds_the_others_back_until_it_has_caught_up() -> None:
    valve = fed(1, (0, 9))
    assert valve.add_channel() == 1
    assert valve.held_back_by() == 1
    assert feed(valve, [(0, 20), (1, 4)]) == []
    assert valve.on_watermark(1, 12) == [Watermark(12)]


def test_a_channel_that_is_added_and_turns_idle_holds_nobody_back_any_more() -> None:
    valve = fed(1, (0, 9))
    valve.add_channel()
    assert valve.on_watermark(0, 20) == []
    assert valve.on_status(1, idle=True) == [Watermark(20)]
    assert valve.on_watermark(0, 21) == [Watermark(21)]


def test_a_channel_that_is_added_and_turns_idle_after_all_others_lets_the_highest_out() -> None:
    valve = fed(1, (0, 9))
    valve.add_channel()
    assert feed(valve, [(0, 20), (0, True)]) == []
    assert valve.on_status(1, idle=True) == [Watermark(20), IDLE]


def test_a_channel_that_is_added_to_an_idle_valve_is_idle() -> None:
    valve = fed(1, (0, 9), (0, True))
    valve.add_channel()
    assert valve.on_status(0, idle=False) == [ACTIVE]
    assert valve.on_watermark(0, 20) == [Watermark(20)]


# -- several inputs ----------------------------------------------------------------------------------------------------


class Ports:
    """Inputs with one channel each, whose answers come when they are told to."""

    def __init__(self, ports: int) -> None:
        self.inputs = Inputs([*range(ports)])
        self.asked: dict[int, int] = {}

    def feed(self, *events: Event) -> list[TimeElement]:
        out: list[TimeElement] = []
        for port, what in events:
            control = StreamStatus(what) if isinstance(what, bool) else Watermark(what)
            out += self._take(port, control)
        return out

    def answer(self, *ports: int) -> list[TimeElement]:
        return [one for port in ports for one in self._take(port, StillIdle(self.asked.pop(port)))]

    def answer_all(self) -> list[TimeElement]:
        """Until nothing is asked any more."""
        out: list[TimeElement] = []
        while self.asked:
            out += self.answer(*self.asked)
        return out

    def _take(self, port: int, control: TimeElement) -> list[TimeElement]:
        out = self.inputs.on_control(port, control)
        self.asked |= dict(self.inputs.take_questions())
        return out


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_W19_the_lowest_of_all_inputs_is_handed_on_when_it_grows_and_no_input_is_special(order: Sequence[int]) -> None:
    first, second, third = order
    ports = Ports(3)
    assert ports.feed((first, 7), (second, 5)) == []
    assert ports.feed((third, 6)) == [Watermark(5)]
    assert ports.feed((third, 9), (first, 8)) == []
    assert ports.feed((second, 8)) == [Watermark(8)]


def test_W19_a_watermark_passes_an_idle_input_when_that_has_answered_that_it_still_is() -> None:
    ports = Ports(2)
    assert ports.feed((1, True), (0, 900)) == []
    assert ports.answer(1) == [Watermark(900)]


def test_W19_an_idle_input_is_not_waited_for_and_all_idle_ones_are_idle() -> None:
    ports = Ports(2)
    ports.feed((0, 7), (1, 5))
    assert ports.feed((1, True)) == []
    assert ports.answer(1) == [Watermark(7)]
    assert ports.feed((0, True)) == [IDLE]
    assert ports.feed((1, False)) == [ACTIVE]
    assert ports.feed((1, 11)) == []
    assert ports.answer_all() == [Watermark(7), Watermark(11)]


def test_W19_an_input_that_is_active_again_is_waited_for_until_its_first_watermark() -> None:
    """Its rows were in the topic before those that the other one has read since."""
    ports = Ports(2)
    ports.feed((0, 7), (1, 5), (1, True), (1, False))
    assert ports.feed((0, 900)) == []
    assert ports.feed((1, 40)) == [Watermark(40)]


def test_W19_an_answer_counts_when_all_channels_of_the_input_have_given_it() -> None:
    inputs = Inputs([0, 1, 1])
    for channel, control in ((1, IDLE), (2, IDLE), (0, Watermark(9))):
        assert inputs.on_control(channel, control) == []
    assert inputs.take_questions() == [(1, 1), (2, 1)]
    assert inputs.on_control(2, StillIdle(1)) == []
    assert inputs.on_control(1, StillIdle(1)) == [Watermark(9)]


@pytest.mark.parametrize("last", [0, 1])
def test_W19_when_all_inputs_are_idle_the_highest_comes_out_whichever_was_the_last(last: int) -> None:
    ports = Ports(2)
    ports.feed((0, 5), (1, 4))
    assert ports.feed((1 - last, True)) + ports.feed((last, True)) == []
    assert [one for one in ports.answer_all() if one != Watermark(4)] == [Watermark(5), IDLE]


def test_W19_an_input_that_has_ended_does_not_end_one_that_is_idle() -> None:
    ports = Ports(2)
    ports.feed((0, 7), (1, 5), (1, True))
    assert ports.answer(1) == [Watermark(7)]
    assert ports.feed((0, END_OF_TIME)) == [IDLE]
    assert ports.feed((1, False), (1, 9), (1, END_OF_TIME)) == [ACTIVE, Watermark(9), Watermark(END_OF_TIME)]


def test_W19_an_input_without_event_time_does_not_hold_back_the_others() -> None:
    inputs = Inputs([0, 1, 0], untimed={1})
    assert [inputs.on_control(channel, Watermark(time)) for channel, time in ((0, 5), (2, 4))] == [[], [Watermark(4)]]
    assert inputs.on_control(1, Watermark(END_OF_TIME)) == []
    assert inputs.on_control(0, IDLE) + inputs.on_control(2, IDLE) == []
    assert inputs.take_questions() == [(2, 1)]
    assert inputs.on_control(2, StillIdle(1)) == [Watermark(5), IDLE]


def test_W19_inputs_of_which_none_has_event_time_end_together() -> None:
    inputs = Inputs([0, 1], untimed={0, 1})
    assert inputs.on_control(0, Watermark(END_OF_TIME)) == []
    assert inputs.on_control(1, Watermark(END_OF_TIME)) == [Watermark(END_OF_TIME)]


def test_W19_every_input_has_a_valve_of_its_own() -> None:
    inputs = Inputs([0, 1, 0])
    assert [inputs.on_control(channel, Watermark(time)) for channel, time in ((0, 5), (1, 7))] == [[], []]
    assert inputs.on_control(2, Watermark(6)) == [Watermark(5)]
    assert inputs.on_control(0, IDLE) == []
    assert inputs.take_questions() == [(0, 1)]
    assert inputs.on_control(0, StillIdle(1)) == [Watermark(6)]
    assert inputs.on_control(2, IDLE) == []
    assert inputs.take_questions() == [(0, 2), (2, 1)]
    assert inputs.on_control(0, StillIdle(2)) == []
    assert inputs.on_control(2, StillIdle(1)) == [Watermark(7)]
    assert inputs.on_control(1, IDLE) == [IDLE]
    assert inputs.on_control(2, ACTIVE) == [ACTIVE]


# -- against a naive model ---------------------------------------------------------------------------------------------


TIMES = st.one_of(st.integers(-3, 12), st.just(END_OF_TIME))
EVENTS = st.lists(st.tuples(st.integers(0, 3), st.one_of(TIMES, st.booleans())), max_size=40)


def within(channels: int, events: Sequence[Event]) -> list[Event]:
    return [(channel % channels, what) for channel, what in events]


@given(st.integers(1, 4), EVENTS)
def test_W08_to_W18_a_valve_does_what_the_rules_say(channels: int, events: list[Event]) -> None:
    valve, model = Answered(channels), NaiveValve(channels)
    for event in within(channels, events):
        assert feed(valve, [event]) == model.push(*event)
        assert (valve.watermark_ms, valve.idle) == (model.out, model.all_idle)


@given(st.integers(1, 4), EVENTS)
def test_W11_W12_watermarks_only_grow_statuses_alternate_and_no_watermark_comes_while_idle(
    channels: int, events: list[Event]
) -> None:
    idle, resumed, last_ms = False, False, LOWEST
    for control in feed(Answered(channels), within(channels, events)):
        if isinstance(control, Watermark):
            assert not idle
            assert control.time_ms > last_ms or (resumed and control.time_ms == last_ms)
            resumed, last_ms = False, control.time_ms
        else:
            assert isinstance(control, StreamStatus)
            assert control.idle != idle
            idle, resumed = control.idle, not control.idle


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=40))
def test_W11_without_idleness_what_comes_out_is_the_lowest_of_the_highest(channels: int, events: list[Event]) -> None:
    events = within(channels, events)
    highest = [max([LOWEST, *(what for other, what in events if other == channel)]) for channel in range(channels)]
    valve = Valve(channels)
    feed(valve, events)
    assert valve.watermark_ms == min(highest)


@given(st.integers(1, 4), EVENTS)
def test_W13_W18_no_active_channel_that_has_kept_up_is_overtaken(channels: int, events: list[Event]) -> None:
    valve, model = Answered(channels), NaiveValve(channels)
    for event in within(channels, events):
        feed(valve, [event])
        model.push(*event)
        kept_up = [c for c in model.going_on() if not model.idle[c] and c not in model.late]
        assert all(valve.watermark_ms <= model.reached(c) for c in kept_up)
        held_by = valve.held_back_by()
        assert held_by == min(kept_up, key=lambda c: model.marks[c], default=None)


FALLING = st.lists(st.tuples(st.integers(0, 3), st.one_of(TIMES, st.just(True), st.none())), max_size=40)
"""Watermarks and channels that fall idle, and moments (None) at which a channel answers."""


@given(st.integers(1, 4), FALLING)
def test_W13_W14_answers_that_come_later_change_nothing_in_the_end(
    channels: int, events: list[tuple[int, int | bool | None]]
) -> None:
    prompt, late = Answered(channels), Valve(channels)
    asked: dict[int, int] = {}
    for place, what in [*events, *((channel, None) for channel in [*range(channels)] * 3 * len(events))]:
        channel = place % channels
        if what is not None:
            feed(prompt, [(channel, what)])
            feed(late, [(channel, what)])
        elif channel in asked:
            late.on_still_idle(channel, asked.pop(channel))
        asked |= dict(late.take_questions())
    assert (late.watermark_ms, late.idle) == (prompt.watermark_ms, prompt.idle)
    assert not asked


ANSWERED = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(-3, 12), st.booleans(), st.none())), max_size=40)


@given(st.integers(1, 4), ANSWERED, st.integers(0, 3), st.permutations(range(12)))
def test_W14_whatever_has_been_where_a_channel_ends_comes_out_when_all_are_idle(
    channels: int, events: list[tuple[int, int | bool | None]], ahead: int, order: list[int]
) -> None:
    """One channel is far ahead, as where only one partition gets the last records; all are idle in the end."""
    valve, asked = Valve(channels), dict[int, int]()

    def play(channel: int, what: int | bool | None) -> None:
        if what is not None:
            feed(valve, [(channel, what)])
        elif channel in asked:
            valve.on_still_idle(channel, asked.pop(channel))
        asked.update(valve.take_questions())

    for place, what in [*events, (ahead, False), (ahead, 98), (ahead, 99)]:
        play(place % channels, what)
    for place in order:  # they fall idle and answer in any order
        play(place % channels, True if place < 4 else None)
    for channel in [*range(channels)] * 3 * (len(events) + 4):
        play(channel, None)
    assert (valve.watermark_ms, valve.idle, asked) == (99, True, {})


@given(st.integers(2, 4), ANSWERED)
def test_W19_ports_with_a_channel_each_are_merged_as_the_channels_of_one_port(
    ports: int, events: list[tuple[int, int | bool | None]]
) -> None:
    """What the operators are given when all questions are answered is the same."""
    several, one = Inputs([*range(ports)]), Inputs([0] * ports)
    asked: dict[Inputs, dict[int, int]] = {several: {}, one: {}}
    reached: dict[Inputs, list[TimeElement]] = {several: [], one: []}
    for place, what in [*events, *((port, None) for port in [*range(ports)] * 4 * (len(events) + 1))]:
        channel = place % ports
        for inputs, questions in asked.items():
            control: TimeElement | None
            if what is None:
                control = StillIdle(questions.pop(channel)) if channel in questions else None
            else:
                control = StreamStatus(what) if isinstance(what, bool) else Watermark(what)
            if control is not None:
                reached[inputs] += inputs.on_control(channel, control)
            questions |= dict(inputs.take_questions())
    assert asked == {several: {}, one: {}}
    assert _state(reached[several]) == _state(reached[one])


def _state(out: Iterable[TimeElement]) -> tuple[int, bool]:
    """The highest watermark, and whether it is idle."""
    elements = [*out]
    statuses = [one.idle for one in elements if isinstance(one, StreamStatus)]
    marks = [one.time_ms for one in elements if isinstance(one, Watermark)]
    return max(marks, default=LOWEST), bool(statuses and statuses[-1])
