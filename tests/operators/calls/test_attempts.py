"""One call with its retries: limits, pauses, budget, and what is reported in the end. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure
from tidegate.operators.calls.caller import (
    PAUSE_MAX_MS,
    CallPolicy,
    Refused,
    Unavailable,
    attempt_call,
    derive_pause_ms,
)

POLICY = CallPolicy(timeout_ms=1000, retries=3, backoff_ms=100, budget_ms=60_000)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time skips to whatever is due next, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]  # of the base class
        due = [one.when() for one in scheduled if not one.cancelled()]
        if not self._ready and due:  # type: ignore[attr-defined]  # of the base class
            self.now = max(self.now, min(due))
        super()._run_once()  # type: ignore[misc]  # of the base class


class Asked:
    """What is asked in these tests: each attempt does the next thing, or the last one once more."""

    def __init__(self, loop: VirtualLoop, *deeds: object) -> None:
        self.at: list[float] = []
        self._loop = loop
        self._deeds = list(deeds)

    async def __call__(self) -> object:
        self.at.append(self._loop.now)
        deed = self._deeds.pop(0) if len(self._deeds) > 1 else self._deeds[0]
        if isinstance(deed, BaseException):
            raise deed
        if deed is asyncio.Event:
            await asyncio.Event().wait()
        return deed


def attempt(*deeds: object, policy: CallPolicy = POLICY) -> tuple[object, list[float]]:
    """What comes of it, and when it was tried. Nothing is drawn: pauses are as long as they can be."""
    loop = VirtualLoop()
    asked = Asked(loop, *deeds)
    ask: Callable[[], Awaitable[object]] = asked
    try:
        return loop.run_until_complete(attempt_call(ask, policy, lambda: 1.0)), asked.at
    finally:
        loop.close()


def test_an_answer_ends_it() -> None:
    assert attempt({"a": 1}) == ({"a": 1}, [0.0])


def test_pauses_between_attempts_double() -> None:
    answer, at = attempt(ValueError("x"), OSError("y"), OSError("y"), 7)
    assert answer == 7
    assert at == pytest.approx([0.0, 0.1, 0.3, 0.7])


def test_the_last_failure_is_reported_with_the_number_of_attempts() -> None:
    answer, at = attempt(ValueError("no such thing"))
    assert answer == CallFailure(
        FailureKind.CALL_FAILED, "ValueError: no such thing, at test_attempts.py:55 in __call__ (4 attempts)"
    )
    assert len(at) == 4


def test_an_attempt_that_hangs_times_out_and_is_made_again() -> None:
    answer, at = attempt(asyncio.Event, 7)
    assert (answer, at) == (7, [0.0, 1.1])
    answer, _ = attempt(asyncio.Event)
    assert answer == CallFailure(FailureKind.CALL_TIMED_OUT, "no answer within 1s (4 attempts)")


def test_all_attempts_together_keep_to_the_budget() -> None:
    policy = CallPolicy(timeout_ms=1000, retries=100, backoff_ms=500, budget_ms=3000)
    answer, at = attempt(asyncio.Event, policy=policy)
    assert at == [0.0, 1.5]
    assert answer == CallFailure(
        FailureKind.CALL_TIMED_OUT, "no answer within 1s (2 attempts, the budget of 3s is used up)"
    )


def test_what_is_refused_is_not_tried_again() -> None:
    answer, at = attempt(Refused("401 Unauthorized"))
    assert (answer, len(at)) == (CallFailure(FailureKind.CALL_FAILED, "401 Unauthorized"), 1)


def test_a_server_says_when_it_may_be_asked_again() -> None:
    answer, at = attempt(Unavailable("429", retry_after_s=7.0), 7)
    assert (answer, at) == (7, [0.0, 7.0])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_function_cannot_end_the_thread_that_it_runs_on(error: BaseException) -> None:
    answer, at = attempt(error)
    assert isinstance(answer, CallFailure)
    assert len(at) == 4


class Unshown(Exception):
    """As of a library that shows what it does not have."""

    def __str__(self) -> str:
        raise AttributeError("response")


class Panic(BaseException):
    """As compiled libraries raise: no `Exception`."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unshown(), "Unshown: (its text raises AttributeError), at test_attempts.py:55 in __call__ (4 attempts)"),
        (Panic("index out of bounds"), "Panic: index out of bounds, at test_attempts.py:55 in __call__ (4 attempts)"),
    ],
)
def test_whatever_a_function_raises_is_an_answer(error: BaseException, said: str) -> None:
    """Its record waited for one without end."""
    answer, _ = attempt(error)
    assert answer == CallFailure(FailureKind.CALL_FAILED, said)


def test_pauses_are_drawn_from_the_upper_half_and_end_to_double() -> None:
    assert derive_pause_ms(POLICY, 1, 0.0) == 50
    assert derive_pause_ms(POLICY, 1, 1.0) == 100
    assert derive_pause_ms(POLICY, 100, 1.0) == PAUSE_MAX_MS
