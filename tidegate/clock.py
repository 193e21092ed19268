"""Clocks, passed in as values: the machine's own, or a virtual one in the simulation.

There are two (ADR 19). Waiting, expiry and measurements use the monotonic clock, which is never set. The wall clock
only provides timestamps for users and other systems, since it may be set at any moment, by an hour.
"""

from __future__ import annotations

import datetime
import time
from typing import Final, Protocol

from typing_extensions import override

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Clock(Protocol):
    """The clock that the edge needs."""

    def now_ms(self) -> int:
        """Returns the wall clock, ms since 1970."""

    def monotonic(self) -> float:
        """Returns seconds that never go back."""

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread."""


class SystemClock(Clock):
    """The clock of this machine."""

    @override
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """The function itself, not a method around it: it is called several times a batch."""

    @override
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Final = SystemClock()


class SteadyClock:
    """A clock that starts at the wall clock's time and advances with the monotonic clock.

    For objects that live as long as one attempt and compare their own times with a timestamp of another machine (B08).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = wall_offset_ms(clock)

    def now_ms(self) -> int:
        """Returns ms since 1970; never goes back."""
        return monotonic_ms(self._clock) + self._offset_ms

    def monotonic(self) -> float:
        """Returns seconds that never go back."""
        return self._clock.monotonic()

    def elapsed_ms(self) -> float:
        """Returns milliseconds that never go back."""
        return self._clock.monotonic() * 1000


def monotonic_ms(clock: Clock) -> int:
    """Returns the monotonic clock in whole milliseconds."""
    return int(clock.monotonic() * 1000)


def wall_offset_ms(clock: Clock) -> int:
    """Returns the offset that turns a monotonic time into a timestamp: the wall clock minus the monotonic one.

    It changes when the wall clock is set.
    """
    return clock.now_ms() - monotonic_ms(clock)


def render_stamp(at_ms: float) -> str:
    """Renders a timestamp, ms since 1970, as ISO 8601 in UTC with milliseconds. Raises OverflowError beyond the
    calendar.
    """
    moment = _EPOCH + datetime.timedelta(milliseconds=at_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_stamp(at_ms: int) -> str:
    """Renders a timestamp for messages. Beyond the calendar, where producers may write any, it renders the number."""
    try:
        return render_stamp(at_ms)
    except OverflowError:
        return f"{at_ms} ms since 1970"
