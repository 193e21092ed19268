"""A port to the model for tests: nothing goes wrong but what a script says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar

from tidegate.simulation.faults import FaultPlan
from tidegate.simulation.kernel import VirtualProcess
from tidegate.simulation.model_broker.codes import Code
from tidegate.simulation.port import NOTHING, PATIENCE_S, BrokerOutages, BrokerPort, Connection, LinkLost

T = TypeVar("T")


class Fate(Enum):
    """What becomes of a request."""

    ARRIVE = "arrive"
    REFUSE = "refuse"
    """Produce only: the leader answers NOT_LEADER_OR_FOLLOWER and does nothing."""
    LOSE_REQUEST = "lose the request"
    LOSE_ANSWER = "lose the answer"


class ScriptedPort(BrokerPort):
    """The fates of requests of one name come from a script."""

    def __init__(self, process: VirtualProcess) -> None:
        super().__init__(process, FaultPlan(()), BrokerOutages())
        self.hurt = 0
        self._name = ""
        self._fates: deque[Fate] = deque()

    def script(self, name: str, fates: Iterable[Fate]) -> None:
        """The fates of the next requests of this name; all after them arrive."""
        self._name, self._fates = name, deque(fates)

    def call(self, name: str, request: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
        match self.fate_of(name):
            case Fate.LOSE_REQUEST:
                raise LinkLost(name)
            case Fate.LOSE_ANSWER:
                super().call(name, request, timeout_s)
                raise LinkLost(name)
        return super().call(name, request, timeout_s)

    def connect(self) -> Connection:
        return ScriptedConnection(self)

    def fate_of(self, name: str) -> Fate:
        """What becomes of the next request."""
        outcome = self._fates.popleft() if name == self._name and self._fates else Fate.ARRIVE
        self.hurt += outcome is not Fate.ARRIVE
        return outcome


class ScriptedConnection(Connection):
    """Of a scripted port."""

    def __init__(self, port: ScriptedPort) -> None:
        super().__init__(port)
        self._script = port

    def post(
        self,
        name: str,
        request: Callable[[], T],
        answered: Callable[[T], None],
        lost: Callable[[], None],
        timeout_s: float = PATIENCE_S,
        instead: Mapping[str, T] = NOTHING,
    ) -> None:
        match self._script.fate_of(name):
            case Fate.ARRIVE:
                super().post(name, request, answered, lost, timeout_s, instead)
            case Fate.REFUSE:
                code: Any = Code.NOT_LEADER_OR_FOLLOWER
                super().post(name, lambda: code, answered, lost)
            case Fate.LOSE_REQUEST:
                super().post(name, lambda: None, lambda _: lost(), lost)
            case Fate.LOSE_ANSWER:
                super().post(name, request, lambda _: lost(), lost)
