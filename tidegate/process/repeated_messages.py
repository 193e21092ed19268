"""The same thing said again and again: once, and then how often more, once per interval.

Pure but for the clock that is handed in. Used for the lines of a log (`logs.py`) and for what strangers do to a port.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

INTERVAL_S: Final = 60.0
KEYS_MAX: Final = 1000
"""How many different things are remembered; when there are more, the oldest is forgotten and may be said again."""

K = TypeVar("K")


class Withheld(NamedTuple, Generic[K]):
    """Something that was not said, and how often, since it was said last."""

    key: K
    times: int
    seconds: float


class Repeats(Generic[K]):
    """May be asked from one thread at a time. `elapsed` gives monotonic seconds."""

    def __init__(
        self, interval_s: float = INTERVAL_S, at_once: int = 1, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._at_once = at_once
        self._elapsed = elapsed
        self._said: OrderedDict[K, _Said] = OrderedDict()

    def may_say(self, key: K) -> bool:
        """Whether it is said now: `at_once` times in an interval; else it is counted.

        Ask for `overdue` first, so that what was withheld is said before a new interval begins.
        """
        said = self._said.get(key)
        if said is None:
            while len(self._said) >= KEYS_MAX:
                self._said.popitem(last=False)
            said = self._said[key] = _Said(self._elapsed())
        if said.times < self._at_once:
            said.times += 1
            return True
        said.withheld += 1
        return False

    def overdue(self, *, everything: bool = False) -> list[Withheld[K]]:
        """What was withheld in intervals that are over (`everything`: in all); they are forgotten."""
        now, found = self._elapsed(), []
        while self._said:
            key, said = next(iter(self._said.items()))
            if now - said.since < self._interval_s and not everything:
                break
            del self._said[key]
            if said.withheld:
                found.append(Withheld(key, said.withheld, now - said.since))
        return found


class _Said:
    """Since when, how often, and how often not."""

    __slots__ = ("since", "times", "withheld")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.withheld = 0


class Complaints:
    """Warnings about what strangers do: one line per reason and interval, however many of them come."""

    def __init__(self, logger: logging.Logger, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._repeats: Repeats[str] = Repeats(elapsed=elapsed)

    def report(self, reason: str, detail: str = "") -> None:
        """`reason` is one of few texts; `detail` says who this one was."""
        for withheld in self._repeats.overdue():
            self._logger.warning("%s: %d times more in %.0f s", *withheld)
        if self._repeats.may_say(reason):
            self._logger.warning("%s%s", reason, f" ({detail})" if detail else "")
