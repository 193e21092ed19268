"""One process's way to the broker. Every request may be late, lost, or the last one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.simulation.chance import generator
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.kernel import Kernel, Signal, SimKilled, VirtualProcess
from tidegate.simulation.model_broker.codes import RequestRefused

T = TypeVar("T")

WAY_S: Final = (0.0002, 0.003)
LOST_AFTER_S: Final = 0.7
"""Until a client notices that a connection is broken."""
PATIENCE_S: Final = 10.0
"""How long a client waits for an answer."""
FETCH: Final = "fetch"
NOTHING: Final[Mapping[str, Any]] = {}


class LinkLost(Exception):
    """No answer came: the request had its effect, or it had not."""


class LinkSilent(LinkLost):
    """No answer came in time: the request may have its effect later on."""


class Outages:
    """What cannot be reached, until when (virtual seconds), and how long the ways are."""

    def __init__(self, broker_pace: float = 1.0, storage_pace: float = 1.0) -> None:
        self.broker_way_s = (WAY_S[0], WAY_S[1] * broker_pace)
        self.storage_way_s = (WAY_S[0], WAY_S[1] * storage_pace)
        self.broker = 0.0
        self.storage = 0.0
        self.cut_off: dict[str, float] = {}
        """By process name: a partition between it and the broker."""
        self.late_fetches: dict[str, float] = {}
        """By process name: the broker is slow to read what it has for it, and quick at all else."""

    def clear(self) -> None:
        """Everything can be reached."""
        self.broker = self.storage = 0.0
        self.cut_off.clear()
        self.late_fetches.clear()


class BrokerPort:
    """One process's way to the broker. A request that has left arrives even when its process has ended meanwhile."""

    def __init__(self, process: VirtualProcess, faults: FaultPlan, outages: Outages) -> None:
        self.process = process
        self.kernel: Kernel = process.kernel
        self.random = generator(self.kernel.seed, f"broker/{process.name}")
        self._faults = faults
        self._outages = outages

    @property
    def clock(self) -> Clock:
        """Of the broker; the model of its clients goes by it, too."""
        return self.kernel.clock

    @property
    def broker_away(self) -> bool:
        """Nobody takes a connection now."""
        return self._outages.broker > self.kernel.now

    def call(self, name: str, request: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
        """Run `request` at the broker and wait for its answer, which may be the RequestRefused that it raised.

        Raises LinkLost, with or without the effect, and LinkSilent when the time is over.
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
        """A connection for requests that nobody waits for."""
        return Connection(self)

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` later on, unless the process has ended."""
        self.kernel.at(seconds, action, self.process)

    def strike(self, name: str) -> Fault | None:
        """The fault that is planned for this request; a crash before it has happened already."""
        fault = self._faults.strike(f"{self.process.kind}.broker.{name}")
        if fault is not None:
            self.kernel.trace.tell(f"{self.process.name}: {fault}")
            if fault.kind == "crash-before":
                self.process.kill(str(fault))
        return fault

    def way_s(self, fault: Fault | None, name: str = "") -> float:
        """To the broker. Across a partition a request is on its way until that is over."""
        way_s = self.back_s()
        if fault is not None and fault.kind == "slow":
            way_s += fault.seconds
        ends = self._outages.cut_off, self._outages.late_fetches if name == FETCH else {}
        until_s = max(end.get(self.process.name, 0.0) for end in ends)
        return way_s + max(0.0, until_s - self.kernel.now)

    def back_s(self) -> float:
        """And back."""
        return self.random.uniform(*self._outages.broker_way_s)


class Connection:
    """Of one client to one node: requests arrive, and are answered, in their order, until it breaks; then it is new."""

    def __init__(self, port: BrokerPort) -> None:
        self._port = port
        self._kernel = port.kernel
        self._arrival_s = 0.0
        self._answers = 0.0
        self._number = 0
        """Of the present connection, of those that have broken one after the other."""

    def post(
        self,
        name: str,
        request: Callable[[], T],
        answered: Callable[[T], None],
        lost: Callable[[], None],
        timeout_s: float = PATIENCE_S,
        instead: Mapping[str, T] = NOTHING,
    ) -> None:
        """Send `request`, which raises nothing, and go on. It may arrive even when the process ends meanwhile.

        Later, on the process's time, either `answered` or `lost` is called once; when the process has ended, neither.
        What has no answer in time is lost, and the connection with it; it arrives all the same. Under a fault of a kind
        in `instead` this is the answer, and the request has no effect.
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
            kernel.at(self._arrival_s - kernel.now, request)  # type: ignore[arg-type]  # nobody waits for its answer
        else:
            kernel.at(self._arrival_s - kernel.now, arrive)

    def _break(self, number: int) -> None:
        if number == self._number:
            self._number += 1
            self._arrival_s = self._answers = 0.0

    def _drop(self, lost: Callable[[], None]) -> None:
        self._kernel.at(LOST_AFTER_S, lost, self._port.process)
