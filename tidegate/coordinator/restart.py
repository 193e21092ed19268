"""Whether and when a failed attempt is followed by another: exponential backoff with a brake for crash loops. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.config.fields.backoff import derive_wait_ms

JITTER: Final = 0.2
"""Up to this part of a delay is taken away at random, so that many pipelines do not come back at one moment."""
SAME_FAULT_MAX: Final = 3
"""An error of the program that so many attempts in a row met at the same place will be met by the next one."""


class RestartStrategy(msgspec.Struct, frozen=True):
    """`restart: {initial: 1s, max: 1m, give_up_after: 20 in 30m}` of the pipeline file."""

    initial_ms: int
    max_ms: int
    give_up_failures: int
    """This many failures within `give_up_window_ms` end the daemon."""
    give_up_window_ms: int
    stable_after_ms: int = 60_000
    """An attempt that ran as long as this makes the next delay `initial_ms` again."""


class RestartHistory(msgspec.Struct, frozen=True):
    """What earlier decisions left; begins as `RestartHistory()`. Holds at most `give_up_failures` moments."""

    in_a_row: int = 0
    failed_at_ms: tuple[int, ...] = ()
    fault: str = ""
    """Of the last failure."""
    fault_times: int = 0
    """How many attempts in a row ended with it."""


class AttemptFailure(msgspec.Struct, frozen=True):
    """An attempt ended. `at_ms` and `ran_ms` are of a clock that never goes back."""

    at_ms: int
    ran_ms: int
    """From the moment all subtasks ran; 0 when they never did."""
    retriable: bool
    reason: str
    fault: str = ""
    """Equal for errors of the program that happened at the same place; empty for every other failure."""
    expected: bool = False
    """It had to end for something new, or no broker answered: no crash loop is near however often it does."""


class RestartAfter(msgspec.Struct, frozen=True):
    """Try again when `delay_ms` have passed."""

    delay_ms: int


class GiveUp(msgspec.Struct, frozen=True):
    """End the daemon with `reason`."""

    reason: str


def decide_restart(
    settings: RestartStrategy, history: RestartHistory, failure: AttemptFailure, jitter: float
) -> tuple[RestartHistory, RestartAfter | GiveUp]:
    """`jitter` is a random number from 0 to 1. Raises ValueError when it is not."""
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
            f"{after.fault_times} attempts in a row ended with the same error of the program, and the next one would: "
            f"{failure.reason}; the log has its traceback"
        )
    if len(recent) >= settings.give_up_failures:
        return after, GiveUp(
            f"{len(recent)} failures within {settings.give_up_window_ms / 1000:g} s (restart.give_up_after); the last: "
            f"{failure.reason}"
        )
    delay_ms = derive_wait_ms(settings.initial_ms, settings.max_ms, in_a_row)
    return after, RestartAfter(int(delay_ms * (1.0 - JITTER * jitter)))
