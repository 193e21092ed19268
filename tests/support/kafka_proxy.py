"""A TCP proxy that parses the frames of Kafka's protocol, so that a test can disturb single requests.

The broker must advertise the proxy's address in `advertised.listeners`, so that all its traffic passes through here.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, Self

import msgspec

from tests.support.holdings import LENT, lent_sockets
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import reserve_ports

PRODUCE: Final = 0
NOT_LEADER_OR_FOLLOWER: Final = 6
_HEADER: Final = struct.Struct(">hhi")
_SIZE: Final = struct.Struct(">i")


class Verdict(Enum):
    """What happens to a request."""

    FORWARD = "forward"
    REFUSE = "refuse"
    """Produce only: the proxy answers every partition with NOT_LEADER_OR_FOLLOWER; the
    broker never sees the request.
    """
    DROP = "drop"
    """The connection is closed instead of forwarding the request."""
    CUT = "cut"
    """The request is forwarded, and the connection is closed instead of returning the response: the request has taken
    effect.
    """
    SWALLOW = "swallow"
    """The request is neither forwarded nor answered."""


class Request(msgspec.Struct, frozen=True):
    """One frame from a client."""

    api_key: int
    version: int
    correlation: int
    frame: bytes
    """Everything after the size."""


class KafkaProxy:
    """Listens on 127.0.0.1:`port` and forwards to `target`. `rule` decides about each request; by default it is
    forwarded.
    """

    def __init__(self, port: int, target: int) -> None:
        self.rule: Callable[[Request], Verdict] = lambda request: Verdict.FORWARD
        self.hurt = 0
        """Number of requests that were not simply forwarded; a test with a planned fault asserts on it."""
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", port))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._sockets:
                _close(one)

    def cut_all(self) -> int:
        """Closes all connections, as a restarted firewall does; returns their number."""
        with self._lock:
            open_now, self._sockets = [one for one in self._sockets if one.fileno() >= 0], []
        for one in open_now:
            _close(one)
        return len(open_now) // 2

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue  # closed by __exit__, or the peer was gone before it was accepted
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lent_sockets.update((client, server))
            with self._lock:
                self._sockets = [one for one in self._sockets if one.fileno() >= 0] + [client, server]
            answering, unanswered = threading.Lock(), set[int]()
            for forward in (self._requests, self._answers):
                arguments = (client, server, answering, unanswered)
                threading.Thread(target=forward, args=arguments, name=f"{LENT}kafka-proxy", daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, answering: threading.Lock, unanswered: set[int]
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = _read_frame(client)
                if frame is None:
                    break
                api_key, version, correlation = _HEADER.unpack_from(frame)
                request = Request(api_key, version, correlation, frame)
                verdict = self.rule(request)
                if verdict is not Verdict.FORWARD:
                    self.hurt += 1
                if verdict is Verdict.DROP:
                    break
                if verdict is Verdict.REFUSE:
                    with answering:
                        client.sendall(_sized(refused_produce(request)))
                elif verdict is Verdict.CUT:
                    unanswered.add(correlation)
                    server.sendall(_sized(frame))
                    return  # closed at the response: a broker may drop unread data of a closed connection
                elif verdict is not Verdict.SWALLOW:
                    server.sendall(_sized(frame))
        _close(client)
        _close(server)

    def _answers(
        self, client: socket.socket, server: socket.socket, answering: threading.Lock, unanswered: set[int]
    ) -> None:
        with contextlib.suppress(OSError):
            while True:
                frame = _read_frame(server)
                if frame is None or _SIZE.unpack_from(frame)[0] in unanswered:
                    break
                with answering:
                    client.sendall(_sized(frame))
        _close(client)
        _close(server)


def refused_produce(request: Request) -> bytes:
    """Returns a response to a produce request with NOT_LEADER_OR_FOLLOWER for every partition."""
    from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

    asked = ProduceRequest.decode(request.frame, version=request.version, header=True)
    topic = ProduceResponse.TopicProduceResponse
    part = topic.PartitionProduceResponse
    answer = ProduceResponse(
        responses=[
            topic(
                name=data.name,
                partition_responses=[
                    part(index=one.index, error_code=NOT_LEADER_OR_FOLLOWER, base_offset=-1)
                    for one in data.partition_data
                ],
            )
            for data in asked.topic_data
        ],
        throttle_time_ms=0,
    )
    answer.API_VERSION = request.version  # before the header: a response header has no version field
    answer.with_header(correlation_id=request.correlation)
    return bytes(answer.encode(header=True))


def _sized(frame: bytes) -> bytes:
    return _SIZE.pack(len(frame)) + frame


def _read_frame(source: socket.socket) -> bytes | None:
    size = _read(source, _SIZE.size)
    return None if size is None else _read(source, _SIZE.unpack(size)[0])


def _read(source: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        more = source.recv(min(count - len(data), 1 << 20))
        if not more:
            return None
        data += more
    return bytes(data)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def proxied_broker(
    directory: Path, properties: Mapping[str, str] | None = None, transaction_version: int = 2
) -> Iterator[tuple[DevelopmentBroker, KafkaProxy]]:
    """Starts a real broker that can only be reached through the proxy."""
    port, behind = reserve_ports(2)
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with KafkaProxy(port, behind) as proxy:  # first of all, so that no other process gets the port
        broker = DevelopmentBroker(
            directory, behind, transaction_version=transaction_version, properties={**(properties or {}), **advertised}
        )
        try:
            broker.start()
            yield broker, proxy
        finally:
            broker.kill()
