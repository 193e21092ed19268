"""Connections between processes: bytes in order, with latency.

The end of a connection is noticed, except across a partition.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tidegate.simulation.faults import FaultPlan
from tidegate.simulation.kernel import Kernel, VirtualProcess, generator
from tidegate.task.wire import HEADER, FrameKind

LATENCY_S: Final = (0.0001, 0.002)
CAPACITY_BYTES: Final = (1_500, 40_000)
"""Limits of a data connection's capacity: bytes sent and not read yet."""


class Endpoint:
    """One end of a connection. Data sent to a dead or closed end is dropped; data it sent before may still arrive."""

    def __init__(self, network: Network, process: VirtualProcess) -> None:
        self.process = process
        self.open = True
        self.on_data: Callable[[bytes], None] = _nothing
        self.on_end: Callable[[], None] = _nothing
        self.peer: Endpoint
        self._network = network
        self._arrival_s = 0.0

    def send(self, data: bytes) -> None:
        """Sends data, which arrives later."""
        if self.open and self.process.alive:
            self._deliver(lambda peer: peer.on_data(data))

    def close(self) -> None:
        """Closes this end. The other end notices it after all data."""
        if self.open:
            self.open = False
            self._network.forget(self)
            if self.process.alive:
                self._deliver(Endpoint._end)

    def break_off(self) -> None:
        """Resets the connection. Both ends notice it, and data on its way is lost."""
        for end in (self, self.peer):
            if end.open:
                end.open = False
                self._network.forget(end)
                self._network.kernel.at(self._network.latency(), end.on_end, end.process)

    def died(self) -> None:
        """Closes the connection of a dead process, with or without the data on its way."""
        self.open = False
        if self._network.random.random() < 0.5:
            self.peer.break_off()
        else:
            self._deliver(Endpoint._end)

    def _end(self) -> None:
        self.open = False
        self._network.forget(self)
        self.on_end()

    def _deliver(self, what: Callable[[Endpoint], None]) -> None:
        kernel, peer = self._network.kernel, self.peer
        free_at = self._network.blocked_until(self.process, peer.process)
        self._arrival_s = max(self._arrival_s, max(kernel.now, free_at) + self._network.latency())

        def arrive() -> None:
            if peer.open:
                what(peer)

        kernel.at(self._arrival_s - kernel.now, arrive, peer.process)


class Network:
    """The listening ports, and the pairs of processes that cannot reach each other."""

    def __init__(self, kernel: Kernel, faults: FaultPlan) -> None:
        self.kernel = kernel
        self.faults = faults
        self.random = generator(kernel.seed, "network")
        self._ports: dict[int, tuple[VirtualProcess, Callable[[Endpoint], None]]] = {}
        self._next_port = 10_000
        self._ends: dict[VirtualProcess, list[Endpoint]] = {}
        self._blocked: dict[frozenset[str], float] = {}

    def latency(self) -> float:
        """Draws the latency of one message."""
        return self.random.uniform(*LATENCY_S)

    def listen(self, process: VirtualProcess, accept: Callable[[Endpoint], None]) -> int:
        """Opens a port and returns it."""
        self._next_port += 1
        self._ports[self._next_port] = (process, accept)
        return self._next_port

    def close_port(self, port: int) -> None:
        """Stops listening on a port."""
        self._ports.pop(port, None)

    def connect(self, process: VirtualProcess, port: int) -> Endpoint:
        """Connects to a port. Blocks. Raises ConnectionRefusedError, and TimeoutError across a partition."""
        self.kernel.block(self.latency())
        host, accept = self._ports.get(port, (None, _nothing))
        if host is None or not host.alive:
            raise ConnectionRefusedError(f"nobody listens on {port}")
        if self.blocked_until(process, host) > self.kernel.now:
            self.kernel.block(1.0)
            raise TimeoutError(f"{port} cannot be reached")
        mine, theirs = Endpoint(self, process), Endpoint(self, host)
        mine.peer, theirs.peer = theirs, mine
        for end in (mine, theirs):
            ends = self._ends.setdefault(end.process, [])
            if not ends:
                end.process.at_death.append(partial(self._died, end.process))
            ends.append(end)
        way_s = self.latency()
        mine._arrival_s = self.kernel.now + way_s  # noqa: SLF001 - no data arrives before the connection itself
        self.kernel.at(way_s, lambda: accept(theirs), host)
        return mine

    def forget(self, end: Endpoint) -> None:
        """Forgets a closed end."""
        ends = self._ends.get(end.process, [])
        if end in ends:
            ends.remove(end)

    def partition(self, one: str, other: str, seconds: float) -> None:
        """Blocks all messages between two processes for a while; TCP delivers them later."""
        pair = frozenset((one, other))
        self._blocked[pair] = max(self._blocked.get(pair, 0.0), self.kernel.now + seconds)

    def blocked_until(self, one: VirtualProcess, other: VirtualProcess) -> float:
        """Returns the earliest time at which a message between two processes may leave."""
        if not self._blocked:
            return 0.0
        return self._blocked.get(frozenset((one.name, other.name)), 0.0)

    def connections(self, one: str, other: str) -> list[Endpoint]:
        """Returns the open connections between two processes, given by name."""
        return [
            end
            for process, ends in self._ends.items()
            if process.name == one
            for end in ends
            if end.peer.process.name == other and end.open
        ]

    def _died(self, process: VirtualProcess) -> None:
        for end in self._ends.pop(process, []):
            end.died()


class SimSocket:
    """The end of a data connection, with the socket methods that `tidegate.slot.transport` uses.

    `wake` notifies its owner.
    """

    def __init__(self, end: Endpoint, capacity: int, wake: Callable[[], None], network: Network) -> None:
        self._end = end
        self._wake = wake
        self._capacity = capacity
        self._network = network
        self._unread = 0
        self._received: deque[bytes] = deque()
        self._ended = False
        self.other: SimSocket | None = None
        end.on_data = self._on_data
        end.on_end = self._on_end

    @property
    def readable(self) -> bool:
        """True if the selector reports it as readable."""
        return bool(self._received) or self._ended

    @property
    def writable(self) -> bool:
        """True if the selector reports it as writable."""
        return self._unread < self._capacity or self._ended

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Sends as much as fits and returns the number of bytes. Raises BlockingIOError, BrokenPipeError."""
        if self._ended or not self._end.open:
            raise BrokenPipeError("the connection has ended")
        room = self._capacity - self._unread
        if room <= 0:
            raise BlockingIOError
        whole = _first_frame(parts)
        if whole is not None and (fault := self._network.faults.strike(f"{self._end.process.kind}.frame")):
            size = sum(map(len, whole))
            for _ in range({"double": 2, "lose": 0}[fault.kind]):
                self._send(b"".join(whole))
            return size
        data = b"".join(parts)[:room]
        self._send(data)
        return len(data)

    def recv(self, limit: int) -> bytes:
        """Returns received data, or b"" at the end. Raises BlockingIOError."""
        if not self._received:
            if self._ended:
                return b""
            raise BlockingIOError
        data = b"".join(self._received)
        self._received.clear()
        if len(data) > limit:
            self._received.append(data[limit:])
            data = data[:limit]
        if self.other is not None:
            self.other.read_by_peer(len(data))
        return data

    def read_by_peer(self, count: int) -> None:
        """Frees capacity after the peer has read."""
        full = self._unread >= self._capacity
        self._unread -= count
        if full and self._unread < self._capacity:
            self._wake()

    def close(self) -> None:
        """Ends the connection."""
        self._end.close()

    def _send(self, data: bytes) -> None:
        self._unread += len(data)
        self._end.send(data)

    def _on_data(self, data: bytes) -> None:
        self._received.append(data)
        self._wake()

    def _on_end(self) -> None:
        self._ended = True
        self._wake()


class SimListener:
    """A listening socket of a slot."""

    def __init__(self, network: Network, process: VirtualProcess, wake: Callable[[], None]) -> None:
        self._network = network
        self._process = process
        self._wake = wake
        self._waiting: deque[SimSocket] = deque()
        self.port = network.listen(process, self._accept)

    @property
    def readable(self) -> bool:
        """True if the selector reports it as readable."""
        return bool(self._waiting)

    writable = False

    def accept(self) -> tuple[SimSocket, None]:
        """Returns the next connection. Raises BlockingIOError."""
        if not self._waiting:
            raise BlockingIOError
        return self._waiting.popleft(), None

    def getsockname(self) -> tuple[str, int]:
        """Returns address and port."""
        return self._process.name, self.port

    def close(self) -> None:
        """Stops listening."""
        self._network.close_port(self.port)

    def _accept(self, end: Endpoint) -> None:
        sock = SimSocket(end, _capacity(self._network), self._wake, self._network)
        other = end.peer.on_data.__self__  # type: ignore[attr-defined]  # the socket at the other end
        sock.other, other.other = other, sock
        self._waiting.append(sock)
        self._wake()


class SimSockets:
    """The sockets of one slot's transport, in the form of `tidegate.slot.channel_sockets.Sockets`."""

    def __init__(self, network: Network, process: VirtualProcess, wake: Callable[[], None]) -> None:
        self._network = network
        self._process = process
        self._wake = wake

    def listen(self, _host: str) -> SimListener:
        """Opens a listening socket."""
        return SimListener(self._network, self._process, self._wake)

    def accept(self, listening: SimListener) -> SimSocket:
        """Accepts the next connection."""
        return listening.accept()[0]

    def connect(self, _host: str, port: int) -> SimSocket:
        """Connects to another slot."""
        end = self._network.connect(self._process, port)
        return SimSocket(end, _capacity(self._network), self._wake, self._network)


class SimSelector:
    """Readiness of simulated sockets, in the order of their registration."""

    def __init__(self) -> None:
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> None:
        """Adds a socket."""
        self._keys[id(fileobj)] = selectors.SelectorKey(fileobj, 0, events, data)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> None:
        """Changes the events of a socket."""
        self.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> None:
        """Removes a socket."""
        self._keys.pop(id(fileobj), None)

    def select(self, _timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns what is ready now."""
        found = []
        for key in list(self._keys.values()):
            sock: Any = key.fileobj
            mask = selectors.EVENT_READ if key.events & selectors.EVENT_READ and sock.readable else 0
            if key.events & selectors.EVENT_WRITE and sock.writable:
                mask |= selectors.EVENT_WRITE
            if mask:
                found.append((key, mask))
        return found


def _capacity(network: Network) -> int:
    return network.random.randint(*CAPACITY_BYTES)


def _first_frame(parts: Sequence[memoryview]) -> list[memoryview] | None:
    """Returns header and body of a data or control frame that is complete at the start of `parts`, or None."""
    if len(parts) < 2 or len(parts[0]) != HEADER.size:
        return None
    length, kind, _, _ = HEADER.unpack(parts[0])
    whole = kind in (FrameKind.BATCH, FrameKind.CONTROL) and length == len(parts[1])
    return [parts[0], parts[1]] if whole else None


def _nothing(*_: object) -> None:
    return
