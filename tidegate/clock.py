"""The time, as a value that is handed in: a machine's own, or a virtual one under the simulation.

Two clocks (ADR 19). Whatever waits, expires or is measured goes by the monotonic one, which is never set. The wall
clock only makes stamps, for people and for others: somebody may set it at any moment, by an hour.
"""

from __future__ import annotations

import datetime
import time
from typing import Final, Protocol

from typing_extensions import override

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Clock(Protocol):
    """What the edge asks of a clock."""

    def now_ms(self) -> int:
        """Wall clock, ms since 1970."""

    def monotonic(self) -> float:
        """Seconds, never goes back."""

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""


class SystemClock(Clock):
    """The clock of this machine."""

    @override
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(time.monotonic)
    """See Clock. Not a method around it: it is asked several times a batch."""

    @override
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Final = SystemClock()


class SteadyClock:
    """Shows what the wall clock showed when this was made, and continues from there by the monotonic clock.

    For what lives as long as one attempt and compares its own times with a stamp of another machine (B08).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = wall_offset_ms(clock)

    def now_ms(self) -> int:
        """Milliseconds since 1970, never goes back."""
        return monotonic_ms(self._clock) + self._offset_ms

    def monotonic(self) -> float:
        """See Clock."""
        return self._clock.monotonic()

    def elapsed_ms(self) -> float:
        """The same in milliseconds."""
        return self._clock.monotonic() * 1000


def monotonic_ms(clock: Clock) -> int:
    """The monotonic clock in whole milliseconds."""
    return int(clock.monotonic() * 1000)


def wall_offset_ms(clock: Clock) -> int:
    """What makes a stamp of a monotonic time: the wall clock minus the monotonic one. It changes when somebody sets
    the wall clock.
    """
    return clock.now_ms() - monotonic_ms(clock)


def render_stamp(at_ms: float) -> str:
    """A stamp, ms since 1970, as ISO 8601 in UTC with milliseconds. Raises OverflowError beyond the calendar."""
    moment = _EPOCH + datetime.timedelta(milliseconds=at_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def describe_stamp(at_ms: int) -> str:
    """The same for people: beyond the calendar, where producers may write any, the number."""
    try:
        return render_stamp(at_ms)
    except OverflowError:
        return f"{at_ms} ms since 1970"
