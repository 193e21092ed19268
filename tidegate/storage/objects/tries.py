"""Retries of one call under one deadline, with growing pauses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.storage.objects.failures import FailureKindOfStore, StoreFailure, describe, judge

T = TypeVar("T")


class RetryLimits(msgspec.Struct, frozen=True):
    """Timeouts of requests. A call lasts at most its deadline plus one request."""

    request_s: float = 10.0
    deadline_s: float = 30.0
    large_request_s: float = 120.0
    """For writing more than LARGE_BYTES."""
    large_deadline_s: float = 240.0
    bulk_request_s: float = 30.0
    """For deleting many objects."""
    bulk_deadline_s: float = 60.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 3.0


LIMITS: Final = RetryLimits()


class Failed(Exception):
    """A failed try that the code around a request has detected, rather than obstore."""

    def __init__(self, failure: StoreFailure) -> None:
        super().__init__(failure.reason)
        self.failure = failure


class Tries:
    """Retries of one storage. `dice` returns random numbers from 0 to 1, so that the pauses of many slots do not
    coincide.
    """

    def __init__(
        self,
        location: str,
        limits: RetryLimits,
        errors: tuple[type[Exception], ...],
        clock: Clock = SYSTEM_CLOCK,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._location = location
        self._limits = limits
        self._errors: tuple[type[Exception], ...] = (*errors, Failed)
        self._clock = clock
        self._dice = dice

    def run(self, operation: str, name: str, action: Callable[[], T], deadline_s: float = 0.0) -> T:
        """Returns the result of `action`, which may run several times. Raises StorageError."""
        began = self._clock.monotonic()
        deadline = began + (deadline_s or self._limits.deadline_s)
        pause = self._limits.first_pause_s
        while True:
            try:
                return action()
            except self._errors as error:
                failure = error.failure if isinstance(error, Failed) else judge(error)
                now = self._clock.monotonic()
                if failure.kind is not FailureKindOfStore.PASSING or now + pause >= deadline:
                    raise describe(self._location, operation, name, failure, now - began) from None
            self._clock.sleep(pause * (0.5 + self._dice() / 2))
            pause = min(2 * pause, self._limits.longest_pause_s)
