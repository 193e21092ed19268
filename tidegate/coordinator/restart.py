"""The restart strategy for failed attempts: exponential backoff, and an end to crash loops. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.config.fields.units import derive_wait_ms

JITTER: Final = 0.2
"""A delay is shortened at random by up to this fraction, so that many pipelines do not restart at the same time."""
SAME_FAULT_MAX: Final = 3
"""Consecutive attempts that end with the same program error at the same place before the daemon gives up."""


class RestartStrategy(msgspec.Struct, frozen=True):
    """`restart: {initial: 1s, max: 1m, give_up_after: 20 in 30m}` of the pipeline file."""

    initial_ms: int
    max_ms: int
    give_up_failures: int
    """This many failures within `give_up_window_ms` end the daemon."""
    give_up_window_ms: int
    stable_after_ms: int = 60_000
    """An attempt that ran this long resets the next delay to `initial_ms`."""


class RestartHistory(msgspec.Struct, frozen=True):
    """The failures so far; initially `RestartHistory()`. Holds at most `give_up_failures` timestamps."""

    in_a_row: int = 0
    failed_at_ms: tuple[int, ...] = ()
    fault: str = ""
    """The fault of the last failure."""
    fault_times: int = 0
    """Number of consecutive attempts that ended with it."""


class AttemptFailure(msgspec.Struct, frozen=True):
    """The end of an attempt. `at_ms` and `ran_ms` are from a monotonic clock."""

    at_ms: int
    ran_ms: int
    """From the moment when all subtasks ran; 0 if they never did."""
    retriable: bool
    reason: str
    fault: str = ""
    """Equal for program errors at the same place; empty for every other failure."""
    expected: bool = False
    """True if the attempt ended for a change or because no broker answered; this never counts toward a crash loop."""


class RestartAfter(msgspec.Struct, frozen=True):
    """Start another attempt after `delay_ms`."""

    delay_ms: int


class GiveUp(msgspec.Struct, frozen=True):
    """End the daemon with `reason`."""

    reason: str


def decide_restart(
    settings: RestartStrategy, history: RestartHistory, failure: AttemptFailure, jitter: float
) -> tuple[RestartHistory, RestartAfter | GiveUp]:
    """Decides whether to restart. `jitter` is a random number from 0 to 1. Raises ValueError if it is out of range."""
    if not 0.0 <= jitter <= 1.0:
        raise ValueError(f"jitter {jitter} is not within 0 .. 1")
    if not failure.retriable:
        return history, GiveUp(failure.reason)
    stable = failure.ran_ms >= settings.stable_after_ms
    if failure.expected:
        after = msgspec.structs.replace(history, in_a_row=0, fault="", fault_times=0) if stable else history
        return after, RestartAfter(int(settings.initial_ms * (1.0 - JITTER * jitter)))
    in_a_row = 1 if stable else history.in_a_row + 1
    window_start = failure.at_ms - settings.give_up_window_ms
    recent = (*(at for at in history.failed_at_ms if at > window_start), failure.at_ms)[-settings.give_up_failures :]
    stays = bool(failure.fault) and in_a_row > 1 and failure.fault == history.fault
    after = RestartHistory(in_a_row, recent, failure.fault, history.fault_times + 1 if stays else 1)
    if failure.fault and after.fault_times >= SAME_FAULT_MAX:
        return after, GiveUp(
            f"{after.fault_times} attempts in a row ended with the same program error, and the next one would as well: "
            f"{failure.reason}; the log has its traceback"
        )
    if len(recent) >= settings.give_up_failures:
        return after, GiveUp(
            f"{len(recent)} failures within {settings.give_up_window_ms / 1000:g} s (restart.give_up_after); the last: "
            f"{failure.reason}"
        )
    delay_ms = derive_wait_ms(settings.initial_ms, settings.max_ms, in_a_row)
    return after, RestartAfter(int(delay_ms * (1.0 - JITTER * jitter)))
