"""The connection of one process to the broker. Every request may be late, lost, or the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.kernel import Kernel, Signal, SimKilled, VirtualProcess, generator
from tidegate.simulation.model_broker.codes import RequestRefused

T = TypeVar("T")

WAY_S: Final = (0.0002, 0.003)
LATE_S: Final = (0.05, 0.4)
"""Added to the way to a slow cluster, and to the way back."""
LOST_AFTER_S: Final = 0.7
"""Time until a client notices a broken connection."""
PATIENCE_S: Final = 10.0
"""Maximum time that a client waits for an answer."""
FETCH: Final = "fetch"
NOTHING: Final[Mapping[str, Any]] = {}


class LinkLost(Exception):
    """No answer arrived. The request may or may not have had its effect."""


class LinkSilent(LinkLost):
    """No answer arrived in time. The request may still have its effect later."""


class BrokerOutages:
    """Outages of one cluster with their ends (in virtual seconds), and its latency."""

    def __init__(self, pace: float = 1.0) -> None:
        self.way_s = (WAY_S[0], WAY_S[1] * pace)
        self.away = 0.0
        """Until when it accepts no connections."""
        self.frozen = 0.0
        """Until when it accepts connections and answers nothing."""
        self.slow = 0.0
        """Until when it answers every request late."""
        self.slots_cut_off = 0.0
        """Until when no slot reaches it."""
        self.cut_off: dict[str, float] = {}
        """Process name -> end of a partition between the process and the broker."""
        self.late_fetches: dict[str, float] = {}
        """Process name -> until when the broker answers its fetches late, but all other requests quickly."""

    def is_over(self, now_s: float) -> bool:
        """Returns whether every process reaches the cluster, as far as this is up to the cluster."""
        return max(self.away, self.frozen, self.slow) <= now_s

    def clear(self) -> None:
        """Makes the cluster reachable."""
        self.away = self.frozen = self.slow = self.slots_cut_off = 0.0
        self.cut_off.clear()
        self.late_fetches.clear()


class StorageOutage:
    """The outage of the storage with its end (in virtual seconds), and the latency."""

    def __init__(self, pace: float = 1.0) -> None:
        self.way_s = (WAY_S[0], WAY_S[1] * pace)
        self.away = 0.0

    def clear(self) -> None:
        """Makes the storage reachable."""
        self.away = 0.0


class BrokerPort:
    """The connection of one process to the broker of a cluster.

    A request that has been sent arrives even if its process has ended meanwhile.
    """

    def __init__(self, process: VirtualProcess, faults: FaultPlan, outages: BrokerOutages, salt: str = "") -> None:
        self.process = process
        self.kernel: Kernel = process.kernel
        self.random = generator(self.kernel.seed, f"broker{salt}/{process.name}")
        self._faults = faults
        self._outages = outages

    @property
    def clock(self) -> Clock:
        """The broker's clock, which the model clients use as well."""
        return self.kernel.clock

    @property
    def broker_away(self) -> bool:
        """True if the broker accepts no connections now."""
        return self._outages.away > self.kernel.now

    def call(self, name: str, request: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
        """Runs `request` at the broker and waits for its answer, which may be the RequestRefused that it raised.

        Raises LinkLost, with or without the effect, and LinkSilent if the timeout is over.
        """
        kernel, process = self.kernel, self.process
        kernel.check_alive()
        sent_s = kernel.now
        fault = self.strike(name)
        kind = "" if fault is None else fault.kind
        if kind == "crash-before":
            raise SimKilled
        if self.broker_away or kind == "lose-before":
            kernel.block(min(LOST_AFTER_S, timeout_s))
            raise LinkLost(name)
        way_s = self.way_s(fault)
        back_s = LOST_AFTER_S if kind == "lose-after" else self.back_s()
        answer: list[tuple[bool, object]] = []
        answered = Signal(kernel)

        def arrive() -> None:
            try:
                answer.append((True, request()))
            except RequestRefused as refused:
                answer.append((False, refused))
            if process.alive:
                good, result = answer[0]
                kernel.trace.tell(f"{process.name} {name}", result if good else f"{type(result).__name__} {result}")
            if kind == "crash-after":
                process.kill(str(fault))
            answered.set(back_s)

        if way_s + back_s <= timeout_s and kernel.advance(way_s):
            arrive()
            kernel.block(back_s)
        else:
            kernel.at(way_s, arrive)
            kernel.wait(answered, timeout_s)
            if kernel.now < sent_s + way_s + back_s:
                raise LinkSilent(name)
        if kind == "lose-after":
            raise LinkLost(name)
        good, result = answer[0]
        if not good:
            assert isinstance(result, Exception)
            raise result
        return result  # type: ignore[return-value]  # what the request returned

    def connect(self) -> Connection:
        """Opens a connection for requests that are not awaited."""
        return Connection(self)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls `action` later, unless the process has ended."""
        self.kernel.at(seconds, action, self.process)

    def strike(self, name: str) -> Fault | None:
        """Returns the fault planned for this request. A crash or an outage before it has already been carried out."""
        fault = self._faults.strike(f"{self.process.kind}.broker.{name}")
        if fault is not None:
            self.kernel.trace.tell(f"{self.process.name}: {fault}")
            if fault.kind == "crash-before":
                self.process.kill(str(fault))
            elif fault.kind == "away-before":
                self._outages.away = max(self._outages.away, self.kernel.now + fault.seconds)
        return fault

    def way_s(self, fault: Fault | None, name: str = "") -> float:
        """Draws the latency to the broker. Across a partition, a request is on its way until the partition ends."""
        way_s = self.back_s()
        if fault is not None and fault.kind == "slow":
            way_s += fault.seconds
        outages, process, until_s = self._outages, self.process, self._outages.frozen
        if process.kind == "slot":
            until_s = max(until_s, outages.slots_cut_off)
        if outages.cut_off:
            until_s = max(until_s, outages.cut_off.get(process.name, 0.0))
        if outages.late_fetches and name == FETCH:
            until_s = max(until_s, outages.late_fetches.get(process.name, 0.0))
        return way_s + max(0.0, until_s - self.kernel.now)

    def back_s(self) -> float:
        """Draws the latency back."""
        late_s = self.random.uniform(*LATE_S) if self._outages.slow > self.kernel.now else 0.0
        return late_s + self.random.uniform(*self._outages.way_s)


class Connection:
    """A connection of one client to one node.

    Requests arrive and are answered in order until it breaks and a new one replaces it.
    """

    def __init__(self, port: BrokerPort) -> None:
        self._port = port
        self._kernel = port.kernel
        self._arrival_s = 0.0
        self._answers = 0.0
        self._number = 0
        """Number of connections that have broken so far."""

    def post(
        self,
        name: str,
        request: Callable[[], T],
        answered: Callable[[T], None],
        lost: Callable[[], None],
        timeout_s: float = PATIENCE_S,
        instead: Mapping[str, T] = NOTHING,
    ) -> None:
        """Sends `request`, which raises nothing, and returns at once.

        The request may arrive even if the process ends meanwhile. Later, on the process's time, either `answered` or
        `lost` is called once, or neither if the process has ended. A request without an answer in time is lost together
        with its connection, but still arrives. If a fault has a kind in `instead`, that value is the answer and the
        request has no effect.
        """
        kernel, process = self._kernel, self._port.process
        if not process.alive:
            return
        fault = self._port.strike(name)
        kind = "" if fault is None else fault.kind
        if kind == "crash-before":
            return
        if self._port.broker_away:
            self._drop(lost)
            return
        self._arrival_s = max(self._arrival_s, kernel.now + self._port.way_s(fault, name))
        number = self._number
        late = self._arrival_s - kernel.now > timeout_s

        def arrive() -> None:
            if number != self._number or kind == "lose-before":
                self._break(number)
                self._drop(lost)
                return
            result = instead[kind] if kind in instead else request()
            if kind == "crash-after":
                process.kill(str(fault))
            elif kind == "lose-after":
                self._break(number)
                self._drop(lost)
            else:
                self._answers = max(self._answers, kernel.now + self._port.back_s())
                kernel.at(self._answers - kernel.now, lambda: answered(result), process)

        def give_up() -> None:
            self._break(number)
            lost()

        if late:
            kernel.at(timeout_s, give_up, process)
            kernel.at(self._arrival_s - kernel.now, request)  # type: ignore[arg-type]  # its answer is not awaited
        else:
            kernel.at(self._arrival_s - kernel.now, arrive)

    def _break(self, number: int) -> None:
        if number == self._number:
            self._number += 1
            self._arrival_s = self._answers = 0.0

    def _drop(self, lost: Callable[[], None]) -> None:
        self._kernel.at(LOST_AFTER_S, lost, self._port.process)
