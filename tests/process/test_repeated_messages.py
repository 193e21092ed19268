"""What may be said again, and when what was withheld is reported."""

from __future__ import annotations

from tests.support.clocks import HandClock
from tidegate.process.repeated_messages import KEYS_MAX, Repeats


def test_a_thing_is_said_once_in_an_interval_and_then_counted() -> None:
    clock = HandClock()
    repeats: Repeats[str] = Repeats(10, elapsed=clock)
    assert [repeats.may_say("a") for _ in range(4)] == [True, False, False, False]
    assert repeats.may_say("b")
    clock.now = 9.0
    assert repeats.overdue() == []
    clock.now = 10.0
    assert repeats.overdue() == [("a", 3, 10.0)]
    assert repeats.overdue() == []
    assert repeats.may_say("a")


def test_at_the_end_everything_is_told() -> None:
    repeats: Repeats[str] = Repeats(10, at_once=2, elapsed=HandClock())
    assert [repeats.may_say("a") for _ in range(3)] == [True, True, False]
    assert repeats.overdue(everything=True) == [("a", 1, 0.0)]


def test_only_so_many_things_are_remembered() -> None:
    repeats: Repeats[int] = Repeats(10, elapsed=HandClock())
    assert all(repeats.may_say(number) for number in range(KEYS_MAX + 1))
    assert len(repeats._said) == KEYS_MAX
    assert not repeats.may_say(KEYS_MAX)
    assert repeats.may_say(0), "the oldest was forgotten"
