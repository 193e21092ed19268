"""Rate-limits repeated messages: each is passed once, and then its number of repetitions once per interval.

Pure except for the clock that is passed in. Used for log lines (`logs.py`) and for complaints about unauthenticated
peers of a port.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

INTERVAL_S: Final = 60.0
KEYS_MAX: Final = 1000
"""How many messages are remembered; beyond that, the oldest is forgotten and may be passed again."""

K = TypeVar("K")


class Withheld(NamedTuple, Generic[K]):
    """A message that was withheld, and how often since it was last passed."""

    key: K
    times: int
    seconds: float


class Repeats(Generic[K]):
    """Counts messages. It may be used from one thread at a time. `elapsed` returns monotonic seconds."""

    def __init__(
        self, interval_s: float = INTERVAL_S, at_once: int = 1, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = interval_s
        self._at_once = at_once
        self._elapsed = elapsed
        self._said: OrderedDict[K, _Said] = OrderedDict()

    def may_say(self, key: K) -> bool:
        """Returns whether the message is passed now: `at_once` times in an interval. Otherwise it is counted.

        Call `overdue` first, so that withheld messages are reported before a new interval begins.
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
        """Returns and forgets what was withheld in past intervals; with `everything`, also in the current ones."""
        now, found = self._elapsed(), []
        while self._said:
            key, said = next(iter(self._said.items()))
            if now - said.since < self._interval_s and not everything:
                break
            del self._said[key]
            if said.withheld:
                found.append(Withheld(key, said.withheld, now - said.since))
        return found


def render_repeats(times: int) -> str:
    """Renders how often a message was withheld."""
    return "once more" if times == 1 else f"{times} times more"


class _Said:
    """When a message was first passed, how often, and how often it was withheld."""

    __slots__ = ("since", "times", "withheld")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.withheld = 0


class Complaints:
    """Warnings about unauthenticated peers: one line per reason and interval, however many peers there are."""

    def __init__(self, logger: logging.Logger, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._repeats: Repeats[str] = Repeats(elapsed=elapsed)

    def report(self, reason: str, detail: str = "") -> None:
        """Reports a complaint. `reason` is one of few texts; `detail` identifies the peer."""
        for withheld in self._repeats.overdue():
            self._logger.warning("%s: %s in %.0f s", withheld.key, render_repeats(withheld.times), withheld.seconds)
        if self._repeats.may_say(reason):
            self._logger.warning("%s%s", reason, f" ({detail})" if detail else "")
