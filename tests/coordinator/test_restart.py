"""Backoff and the brake for crash loops."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.deployment import RestartSettings
from tidegate.config.fields.units import derive_duration_ms, derive_waits_ms
from tidegate.coordinator.restart import (
    AttemptFailure,
    GiveUp,
    RestartAfter,
    RestartHistory,
    RestartStrategy,
    decide_restart,
)

SETTINGS = RestartStrategy(initial_ms=1000, max_ms=60_000, give_up_failures=20, give_up_window_ms=600_000)


def failure(at_ms: int, ran_ms: int = 0, retriable: bool = True) -> AttemptFailure:
    return AttemptFailure(at_ms, ran_ms, retriable, "worker 1 was lost")


def fault(at_ms: int, fault: str, ran_ms: int = 0) -> AttemptFailure:
    return AttemptFailure(at_ms, ran_ms, True, "slot 0: TypeError: x", fault)


def delays(*moments: tuple[int, int], jitter: float = 0.0) -> list[int]:
    history, found = RestartHistory(), []
    for at_ms, ran_ms in moments:
        history, decision = decide_restart(SETTINGS, history, failure(at_ms, ran_ms), jitter)
        assert isinstance(decision, RestartAfter)
        found.append(decision.delay_ms)
    return found


def test_delays_double_up_to_the_limit() -> None:
    assert delays(*((number * 100_000, 0) for number in range(9))) == [
        0, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000,
    ]  # fmt: skip


def test_jitter_takes_up_to_a_fifth_away() -> None:
    assert delays((0, 0), (1, 0), jitter=0.5) == [0, 900]
    assert delays((0, 0), (1, 0), jitter=1.0) == [0, 800]


def test_stable_running_begins_the_delays_anew() -> None:
    assert delays((0, 0), (1, 0), (2, 59_999), (100_000, 60_000), (100_001, 0)) == [0, 1000, 2000, 0, 1000]


def test_what_is_not_retriable_ends_at_once_with_its_reason() -> None:
    history, decision = decide_restart(SETTINGS, RestartHistory(), failure(0, retriable=False), 0.0)
    assert decision == GiveUp("worker 1 was lost")
    assert history == RestartHistory()


def test_the_brake_stops_a_crash_loop() -> None:
    history = RestartHistory()
    for number in range(19):
        history, decision = decide_restart(SETTINGS, history, failure(number * 1000), 0.0)
        assert isinstance(decision, RestartAfter)
    _, decision = decide_restart(SETTINGS, history, failure(20_000), 0.0)
    assert decision == GiveUp("20 failures within 600 s (restart.give_up_after); the last: worker 1 was lost")


def count_attempts(strategy: RestartStrategy, attempts: list[tuple[int, float]]) -> int | None:
    """After how many of these attempts (ms that each takes, jitter of the wait after it) the daemon ends."""
    history, now_ms = RestartHistory(), 0
    for number, (takes_ms, jitter) in enumerate(attempts, 1):
        now_ms += takes_ms
        history, decision = decide_restart(strategy, history, failure(now_ms), jitter)
        if isinstance(decision, GiveUp):
            return number
        now_ms += decision.delay_ms
    return None


@given(st.lists(st.tuples(st.integers(0, 50_000), st.floats(0, 1)), min_size=20, max_size=20))
def test_a_crash_loop_reaches_the_default_limit_with_the_waits_that_it_is_given(
    attempts: list[tuple[int, float]],
) -> None:
    default = RestartSettings()
    limit = default.give_up_after
    strategy = RestartStrategy(default.initial_ms, default.max_ms, limit.failures, limit.within_ms)
    assert count_attempts(strategy, attempts) == 20


@given(st.integers(1, 50_000), st.integers(1, 50_000), st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_a_limit_longer_than_its_waits_is_reached_whatever_is_taken_from_them(
    initial_ms: int, max_ms: int, jitters: list[float]
) -> None:
    failures, attempts = len(jitters), [(0, jitter) for jitter in jitters]
    waits_ms = derive_waits_ms(initial_ms, max_ms, failures)
    assert count_attempts(RestartStrategy(initial_ms, max_ms, failures, waits_ms + 1), attempts) == failures
    full = [(0, 0.0)] * failures
    assert failures == 1 or count_attempts(RestartStrategy(initial_ms, max_ms, failures, waits_ms), full) is None


def test_the_waits_of_many_failures_are_added_up_at_once() -> None:
    assert derive_waits_ms(1000, 60_000, 1) == 0
    assert derive_waits_ms(1000, 60_000, 20) == derive_duration_ms("13m3s")
    assert derive_waits_ms(1000, 60_000, 10**12) == 63_000 + (10**12 - 8) * 60_000
    assert derive_waits_ms(60_000, 1000, 4) == 2000


def test_what_had_to_end_counts_for_no_limit_and_a_stable_run_before_it_ends_the_row() -> None:
    history = RestartHistory(5, (1, 2), "here", 2)
    found = AttemptFailure(10, 0, retriable=True, reason="a new topic", expected=True)
    assert decide_restart(SETTINGS, history, found, 0.0) == (history, RestartAfter(SETTINGS.initial_ms))
    stable = msgspec.structs.replace(found, ran_ms=SETTINGS.stable_after_ms)
    after, _ = decide_restart(SETTINGS, history, stable, 0.0)
    assert after == RestartHistory(0, (1, 2))
    failure = AttemptFailure(20, 0, retriable=True, reason="x", fault="here")
    again, decision = decide_restart(SETTINGS, after, failure, 0.0)
    assert (again.fault_times, decision) == (1, RestartAfter(0))


def test_failures_outside_the_window_do_not_count() -> None:
    history = RestartHistory()
    for number in range(100):
        history, decision = decide_restart(SETTINGS, history, failure(number * 40_000), 0.0)
        assert isinstance(decision, RestartAfter)


def test_the_same_error_of_the_program_three_times_in_a_row_ends_the_daemon() -> None:
    history = RestartHistory()
    for number in range(2):
        history, decision = decide_restart(SETTINGS, history, fault(number * 1000, "TypeError < a.py:1"), 0.0)
        assert isinstance(decision, RestartAfter)
    _, decision = decide_restart(SETTINGS, history, fault(2000, "TypeError < a.py:1"), 0.0)
    assert isinstance(decision, GiveUp)
    assert decision.reason.startswith("3 attempts in a row ended with the same program error")
    assert "slot 0: TypeError: x" in decision.reason


@pytest.mark.parametrize(
    "between", [fault(1500, "TypeError < a.py:2"), failure(1500)], ids=["another-place", "a-lost-worker"]
)
def test_another_failure_in_between_begins_the_count_anew(between: AttemptFailure) -> None:
    same = [fault(number * 1000, "TypeError < a.py:1") for number in range(4)]
    history = RestartHistory()
    for one in (*same[:2], between, *same[2:]):
        history, decision = decide_restart(SETTINGS, history, one, 0.0)
        assert isinstance(decision, RestartAfter)


def test_an_error_that_comes_back_after_a_stable_run_begins_the_count_anew() -> None:
    history = RestartHistory()
    for number in range(9):
        history, decision = decide_restart(
            SETTINGS, history, fault(number * 100_000, "TypeError < a.py:1", ran_ms=60_000), 0.0
        )
        assert isinstance(decision, RestartAfter)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)), max_size=60), st.floats(0, 1))
def test_history_and_delays_stay_bounded(steps: list[tuple[int, int]], jitter: float) -> None:
    history, now_ms = RestartHistory(), 0
    for pause_ms, ran_ms in steps:
        now_ms += pause_ms
        history, decision = decide_restart(SETTINGS, history, failure(now_ms, ran_ms), jitter)
        assert len(history.failed_at_ms) <= 20
        if isinstance(decision, RestartAfter):
            assert decision.delay_ms == 0 if history.in_a_row == 1 else 800 <= decision.delay_ms <= 60_000


@pytest.mark.parametrize("jitter", [-0.1, 1.1])
def test_jitter_out_of_range_is_refused(jitter: float) -> None:
    with pytest.raises(ValueError, match="is not within"):
        decide_restart(SETTINGS, RestartHistory(), failure(0), jitter)
