"""One call with its retries: a timeout for each attempt, pauses that double, and a budget for all attempts together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from tidegate.config.fields.units import render_duration
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import CallFailure
from tidegate.user_code.failure import describe_failure, text_of

PAUSE_MAX_MS: Final = 30_000
"""The maximum length of a pause."""


class CallPolicy(msgspec.Struct, frozen=True):
    """How long and how often a call is attempted."""

    timeout_ms: int
    retries: int
    backoff_ms: int
    budget_ms: int


class Refused(Exception):
    """A failure that another attempt would only repeat."""

    def __init__(self, message: str, kind: FailureKind = FailureKind.CALL_FAILED) -> None:
        super().__init__(message)
        self.kind = kind


class Unavailable(Exception):
    """A failure after which another attempt may succeed, but not before `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def derive_pause_ms(policy: CallPolicy, attempt: int, share: float) -> float:
    """Returns the pause after attempt number `attempt` (from 1). `share`, 0 to 1, spreads it over its upper half."""
    doubled = min(float(PAUSE_MAX_MS), policy.backoff_ms * 2.0 ** min(attempt - 1, 32))
    return doubled * (0.5 + share / 2)


async def attempt_call(
    ask: Callable[[], Awaitable[object]], policy: CallPolicy, draw: Callable[[], float]
) -> object | CallFailure:
    """Returns the answer, or why there is none. `draw` returns a number from 0 to 1.

    No exception of `ask` is propagated, except a cancellation of the task that runs this function.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + policy.budget_ms / 1000
    attempt = 1
    while True:
        limit_s = min(policy.timeout_ms / 1000, deadline - clock())
        answer, retry_after_s = await _attempt_once(ask, limit_s)
        if not isinstance(answer, CallFailure) or retry_after_s is None:
            return answer
        pause_s = max(derive_pause_ms(policy, attempt, draw()) / 1000, retry_after_s)
        if attempt > policy.retries:
            return _after(answer, attempt, "")
        if clock() + pause_s >= deadline:
            return _after(answer, attempt, f", the budget of {render_duration(policy.budget_ms)} is used up")
        await asyncio.sleep(pause_s)
        attempt += 1


async def _attempt_once(ask: Callable[[], Awaitable[object]], limit_s: float) -> tuple[object, float | None]:
    """Returns the answer or a failure, and the time until another attempt is allowed; None for never."""
    scope = asyncio.timeout(limit_s)
    try:
        async with scope:
            return await ask(), None
    except Refused as error:
        return CallFailure(error.kind, text_of(error)), None
    except Unavailable as error:
        return CallFailure(FailureKind.CALL_FAILED, text_of(error)), error.retry_after_s
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise  # the step is being closed
        return CallFailure(
            FailureKind.CALL_FAILED, f"the call was cancelled from within: {describe_failure(error)}"
        ), 0.0
    except GeneratorExit:
        raise  # nothing waits for the answer any more
    except BaseException as error:  # noqa: BLE001  # whatever a user's function raises, even a panic of a compiled library
        if scope.expired() and isinstance(error, TimeoutError):
            limit = render_duration(max(1, round(limit_s * 1000)))
            return CallFailure(FailureKind.CALL_TIMED_OUT, f"no answer within {limit}"), 0.0
        return CallFailure(FailureKind.CALL_FAILED, describe_failure(error)), 0.0


def _after(failure: CallFailure, attempts: int, why: str) -> CallFailure:
    count = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return CallFailure(failure.kind, f"{failure.message} ({count}{why})")
