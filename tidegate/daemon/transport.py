"""Data connections between slots: non-blocking sockets around the channels of tidegate.task.

Every ordered pair of slots that an edge joins has one TCP connection, opened by the sender; frames flow one way,
credits the other. All calls come from the slot's one thread.
"""

from __future__ import annotations

import logging
import selectors
import socket
from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, SlotIndex
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.messages import PeerAddress
from tidegate.task.wire import (
    ChannelBroken,
    ChannelHello,
    Frame,
    FrameReader,
    Kind,
    SequenceCheck,
    decode_element,
    write_frame,
)

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 10.0
RECEIVE_BYTES: Final = 1 << 20
SEND_PARTS_MAX: Final = 64
HELLO_BYTES_MAX: Final = 4096
"""More than this without a hello is no slot."""


class Sockets:
    """Where connections come from. The simulation hands in others."""

    def listen(self, host: str) -> socket.socket:
        """A listening socket on a free port."""
        return socket.create_server((host, 0), backlog=256)

    def connect(self, host: str, port: int) -> socket.socket:
        """Raises OSError."""
        return socket.create_connection((host, port), CONNECT_TIMEOUT_S)


SOCKETS: Final = Sockets()


class PeerLost(AttemptFailed):
    """A data connection to another slot ended."""

    code = "peer-lost"


class _Connection:
    """One socket: an outgoing buffer and a frame reader."""

    def __init__(self, transport: DataTransport, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.reader = FrameReader()
        self._transport = transport
        self._out: deque[memoryview] = deque()
        self._wants_write = False
        transport.selector.register(sock, selectors.EVENT_READ, self.on_event)

    def queue(self, parts: list[bytes]) -> None:
        self._out.extend(memoryview(part) for part in parts if part)

    @property
    def backlog(self) -> bool:
        return bool(self._out)

    def flush(self) -> None:
        """Write until the socket is full."""
        while self._out:
            try:
                sent = self.sock.sendmsg([self._out[i] for i in range(min(len(self._out), SEND_PARTS_MAX))])
            except BlockingIOError:
                break
            except OSError as error:
                raise PeerLost(f"data connection to {self.name} broke: {error}") from error
            while sent:
                part = self._out[0]
                if sent >= len(part):
                    sent -= len(part)
                    self._out.popleft()
                else:
                    self._out[0] = part[sent:]
                    sent = 0
        if bool(self._out) != self._wants_write:
            self._wants_write = bool(self._out)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._wants_write else 0)
            self._transport.selector.modify(self.sock, events, self.on_event)

    def on_event(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self.flush()
        if mask & selectors.EVENT_READ:
            try:
                data = self.sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLost(f"data connection to {self.name} broke: {error}") from error
            if not data:
                self.on_end()
                return
            for frame in self.reader.feed(data):
                self.on_frame(frame)

    def on_end(self) -> None:
        raise PeerLost(f"data connection to {self.name} was closed by the other side")

    @property
    def name(self) -> str:
        return "another slot"

    def on_frame(self, frame: Frame) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._transport.selector.unregister(self.sock)
        self.sock.close()


class _Sender(_Connection):
    """To one other slot: takes frames from the outputs, reads credits."""

    def __init__(self, transport: DataTransport, sock: socket.socket, peer: int, outputs: Mapping[int, RemoteOutput]):
        super().__init__(transport, sock)
        self._peer = peer
        self._outputs = outputs

    @property
    def name(self) -> str:
        return f"slot {self._peer}"

    def on_frame(self, frame: Frame) -> None:
        if frame.kind is not Kind.CREDIT or frame.channel not in self._outputs:
            raise ChannelBroken(f"{self.name} answered with {frame.kind.name} on edge {frame.channel}")
        self._outputs[frame.channel].grant(frame.sequence)

    def pump(self) -> bool:
        moved = False
        while not self.backlog:
            taken = [(edge, item) for edge, output in self._outputs.items() if (item := output.take()) is not None]
            if not taken:
                break
            for edge, (kind, sequence, body) in taken:
                self.queue(write_frame(kind, edge, sequence, body))
            moved = True
            self.flush()
        return moved


class _Receiver(_Connection):
    """From one other slot: fills input channels, grants credits. Unknown until its hello frame.

    Whatever goes wrong before the hello is a stranger's matter (a port scan, a zombie of an older attempt): its
    connection is closed and the attempt goes on.
    """

    def __init__(self, transport: DataTransport, sock: socket.socket) -> None:
        super().__init__(transport, sock)
        self._sender: int | None = None
        self._sequence = SequenceCheck()
        self._inputs: dict[int, InputChannel] = {}

    @property
    def name(self) -> str:
        return "an unknown sender" if self._sender is None else f"slot {self._sender}"

    def on_event(self, mask: int) -> None:
        try:
            super().on_event(mask)
            self._check_greeting()
        except (ChannelBroken, PeerLost) as error:
            if self._sender is not None:
                raise
            logger.warning("data connection refused: %s", error.message)
            self._transport.drop(self)

    def on_frame(self, frame: Frame) -> None:
        if self._sender is None:
            self._on_hello(frame)
            return
        self._sequence.check(frame)
        channel = self._inputs.get(frame.channel)
        if channel is None:
            raise ChannelBroken(f"{self.name} sends on edge {frame.channel}, which does not lead here")
        channel.push(decode_element(frame))

    def _check_greeting(self) -> None:
        if self._sender is None and self.reader.pending_bytes > HELLO_BYTES_MAX:
            raise ChannelBroken(f"{self.reader.pending_bytes} bytes without a hello")

    def _on_hello(self, frame: Frame) -> None:
        if frame.kind is not Kind.HELLO:
            raise ChannelBroken(f"a {frame.kind.name} frame came before the hello")
        try:
            hello = msgspec.json.decode(frame.body, type=ChannelHello)
        except msgspec.DecodeError as error:
            raise ChannelBroken(f"the hello cannot be read: {error}") from error
        if not self._transport.admits(hello):
            raise ChannelBroken(f"hello of attempt {hello.attempt}, slot {hello.sender}: not of this attempt")
        self._sender = hello.sender
        self._inputs = self._transport.inputs_from(hello.sender)

    def pump(self) -> bool:
        for edge, channel in self._inputs.items():
            credit = channel.take_credit()
            if credit:
                self.queue(write_frame(Kind.CREDIT, edge, credit, b""))
        if self.backlog:
            self.flush()
        return False


class DataTransport:
    """All data connections of a slot. `port` is bound at construction and told to the daemon in the hello."""

    def __init__(
        self, selector: selectors.BaseSelector, host: str, attempt: Attempt, token: str, sockets: Sockets = SOCKETS
    ) -> None:
        self.selector = selector
        self._sockets = sockets
        self._attempt = attempt
        self._token = token
        self._listener = sockets.listen(host)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[_Sender | _Receiver] = []
        self._inputs: dict[tuple[int, int], InputChannel] = {}
        selector.register(self._listener, selectors.EVENT_READ, self._on_accept)

    def open(
        self,
        slot: SlotIndex,
        peers: tuple[PeerAddress, ...],
        inputs: dict[tuple[int, int], InputChannel],
        outputs: Mapping[int, Mapping[int, RemoteOutput]],
    ) -> None:
        """Connect to the slots we send to: `inputs` by (sender, edge), `outputs` by receiver and edge.

        Raises PeerLost.
        """
        self._inputs = inputs
        for peer, channels in outputs.items():
            address = peers[peer]
            try:
                sock = self._sockets.connect(address.host, address.port)
            except OSError as error:
                raise PeerLost(f"slot {peer} at {address.host}:{address.port} cannot be reached: {error}") from error
            sender = _Sender(self, sock, peer, channels)
            hello = msgspec.json.encode(ChannelHello(self._attempt, self._token, slot))
            sender.queue(write_frame(Kind.HELLO, 0, 0, hello))
            sender.flush()
            self._connections.append(sender)

    def admits(self, hello: ChannelHello) -> bool:
        """Only this attempt, with its token."""
        return hello.attempt == self._attempt and hello.token == self._token

    def inputs_from(self, sender: int) -> dict[int, InputChannel]:
        """Input channels by edge."""
        return {edge: channel for (slot, edge), channel in self._inputs.items() if slot == sender}

    def drop(self, connection: _Receiver) -> None:
        """Close a connection that is not ours."""
        self._connections.remove(connection)
        connection.close()

    def pump(self) -> bool:
        """Move what may leave into the sockets; True when frames left."""
        moved = [connection.pump() for connection in self._connections]  # every one, not up to the first that moved
        return any(moved)

    def close(self) -> None:
        """Close every socket."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self.selector.unregister(self._listener)
        self._listener.close()

    def _on_accept(self, mask: int) -> None:  # noqa: ARG002  # the selector's callback
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        self._connections.append(_Receiver(self, sock))
