"""The wall clock is set while a daemon runs: reported, and followed by nothing else."""

from __future__ import annotations

import logging

import pytest

from tidegate.clock import SteadyClock, wall_offset_ms
from tidegate.daemon.service import ClockWatch


class SetClock:
    """A machine whose wall clock somebody sets."""

    def __init__(self) -> None:
        self.passed_ms = 5_000
        self.set_by_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.passed_ms + self.set_by_ms

    def monotonic(self) -> float:
        return self.passed_ms / 1000

    def sleep(self, seconds: float) -> None:
        self.passed_ms += int(seconds * 1000)


def test_X05_a_step_of_the_wall_clock_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = SetClock()
    steps: list[float] = []
    watch = ClockWatch(clock, steps.append)
    clock.passed_ms += 60_000
    clock.set_by_ms += 900  # a time service at work
    watch.look()
    assert caplog.messages == []
    clock.set_by_ms -= 3_600_000
    with caplog.at_level(logging.WARNING):
        watch.look()
        watch.look()
    assert steps == [-3599.1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "set back by 3599.1 s" in caplog.messages[0]
    clock.set_by_ms += 3_600_000
    watch.look()
    assert "set forward by 3600.0 s" in caplog.messages[1]


def test_X05_a_steady_clock_does_not_follow_a_step() -> None:
    clock = SetClock()
    steady, begun = SteadyClock(clock), clock.now_ms()
    offset = wall_offset_ms(clock)
    clock.passed_ms += 250
    clock.set_by_ms -= 3_600_000
    assert steady.now_ms() == begun + 250
    assert wall_offset_ms(clock) == offset - 3_600_000
