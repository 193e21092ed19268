"""A link to the model for tests: a clock that moves by sleeping, timers, and posted requests that a script may hurt."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

from tidegate.simulation.model_broker.codes import Code
from tidegate.simulation.model_broker.link import LinkLost

T = TypeVar("T")

START_MS = 1_700_000_000_000


class Fate(Enum):
    """What becomes of a posted request."""

    ARRIVE = "arrive"
    REFUSE = "refuse"
    """The leader answers NOT_LEADER_OR_FOLLOWER and does nothing."""
    LOSE_REQUEST = "lose the request"
    LOSE_ANSWER = "lose the answer"


class VirtualClock:
    """Time that passes only by `sleep`; what is planned until then happens on the way."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return START_MS + round(self._now_s * 1000)

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        until_s = self._now_s + seconds
        while self._planned and self._planned[0][0] <= until_s:
            self._now_s, _, action = heapq.heappop(self._planned)
            action()
        self._now_s = until_s

    def plan(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self._now_s + seconds, next(self._numbers), action))


class ScriptedLink:
    """Posted requests arrive after a millisecond; the fates of those named `produce` come from a script."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.produce_fates: deque[Fate] = deque()
        self.hurt = 0
        self.call_fates: deque[bool] = deque()
        """For each next call: whether it is lost behind its effect."""

    def script(self, fates: Iterable[Fate]) -> None:
        """The fates of the next produce requests; all behind them arrive."""
        self.produce_fates = deque(fates)

    def call(self, name: str, request: Callable[[], T]) -> T:
        answer = request()
        if self.call_fates and self.call_fates.popleft():
            self.hurt += 1
            raise LinkLost(name)
        return answer

    def post(
        self, name: str, request: Callable[[], T], answered: Callable[[T], None], lost: Callable[[], None]
    ) -> None:
        fate = self.produce_fates.popleft() if name == "produce" and self.produce_fates else Fate.ARRIVE
        self.hurt += fate is not Fate.ARRIVE
        self.clock.plan(0.001, lambda: self._deliver(fate, request, answered, lost))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.clock.plan(seconds, action)

    def _deliver(
        self, fate: Fate, request: Callable[[], T], answered: Callable[[T], None], lost: Callable[[], None]
    ) -> None:
        match fate:
            case Fate.ARRIVE:
                answered(request())
            case Fate.REFUSE:
                answered(Code.NOT_LEADER_OR_FOLLOWER)  # type: ignore[arg-type]  # produce requests answer with a code
            case Fate.LOSE_REQUEST:
                lost()
            case Fate.LOSE_ANSWER:
                request()
                lost()
