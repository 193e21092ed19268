"""Data connections between slots: non-blocking sockets around the channels of tidegate.task.

Every ordered pair of slots that an edge joins has one TCP connection, opened by the sender; frames flow one way,
credits the other. A peer is unauthenticated until its hello is verified: only a few such connections are allowed, for
seconds and a few hundred bytes. All calls come from the slot's single thread.
"""

from __future__ import annotations

import hmac
import logging
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from tidegate.errors import UNDECODABLE, AttemptFailed
from tidegate.ids import Attempt, SlotIndex
from tidegate.process.repeated_messages import Complaints
from tidegate.slot.channel_sockets import AwaitsPeer, DataSocket, Sockets
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.messages import PeerAddress
from tidegate.task.wire import (
    ChannelBroken,
    ChannelHello,
    Frame,
    FrameKind,
    FrameReader,
    SequenceCheck,
    decode_element,
    write_frame,
)

logger = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 1 << 20
SEND_PARTS_MAX: Final = 64
HELLO_BYTES_MAX: Final = 512
"""A peer that sends more than this without a hello is not a slot."""
HELLO_TIMEOUT_S: Final = 10.0
"""Seconds for the hello of a connection; a slot sends it at once."""
UNAUTHENTICATED_MAX: Final = 64
"""Unauthenticated connections at a time, or twice the number of slots if that is more; a further one ends
the oldest.
"""
ACCEPT_PAUSE_S: Final = 0.5
"""Pause after a connection could not be accepted (for instance, if no descriptors are left)."""
SOCKETS: Final = Sockets()


class PeerLost(AttemptFailed):
    """A data connection to another slot ended."""

    code = "peer-lost"


class _Connection:
    """One socket: an outgoing buffer and a frame reader."""

    receive_bytes = RECEIVE_BYTES

    def __init__(self, transport: DataTransport, sock: DataSocket) -> None:
        self.sock = sock
        self.reader = FrameReader()
        self._transport = transport
        self._out: deque[memoryview] = deque()
        self._wants_write = False
        self._awaits_peer = False
        transport.selector.register(sock, selectors.EVENT_READ, self.on_event)

    def queue(self, parts: list[bytes]) -> None:
        self._out.extend(memoryview(part) for part in parts if part)

    @property
    def backlog(self) -> bool:
        return bool(self._out)

    def flush(self) -> None:
        """Writes until the socket is full."""
        self._awaits_peer = False
        while self._out:
            try:
                sent = self.sock.sendmsg([self._out[i] for i in range(min(len(self._out), SEND_PARTS_MAX))])
            except BlockingIOError as blocked:
                self._awaits_peer = isinstance(blocked, AwaitsPeer)
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
        wants_write = bool(self._out) and not self._awaits_peer
        if wants_write != self._wants_write:
            self._wants_write = wants_write
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._wants_write else 0)
            self._transport.selector.modify(self.sock, events, self.on_event)

    def on_event(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self.flush()
        if mask & selectors.EVENT_READ:
            self._read()
            if self._awaits_peer:
                self.flush()

    def _read(self) -> None:
        try:
            data = self.sock.recv(self.receive_bytes)
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
    """A connection to another slot: takes frames from the outputs, reads credits and questions."""

    def __init__(self, transport: DataTransport, sock: DataSocket, peer: int, outputs: Mapping[int, RemoteOutput]):
        super().__init__(transport, sock)
        self._peer = peer
        self._outputs = outputs

    @property
    def name(self) -> str:
        return f"slot {self._peer}"

    def on_frame(self, frame: Frame) -> None:
        output = self._outputs.get(frame.channel)
        if output is not None and frame.kind is FrameKind.CREDIT:
            output.grant(frame.sequence)
        elif output is not None and frame.kind is FrameKind.QUESTION:
            output.on_question(frame.sequence)
        else:
            raise ChannelBroken(f"{self.name} answered with {frame.kind.name} on edge {frame.channel}")

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
    """A connection from another slot: fills input channels, grants credits, asks. Unauthenticated until its hello
    frame.

    Errors before the hello come from an unauthenticated peer (a port scan, a zombie of an older attempt): its
    connection is closed and the attempt continues.
    """

    receive_bytes = HELLO_BYTES_MAX

    def __init__(self, transport: DataTransport, sock: DataSocket) -> None:
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
            self._transport.refuse(self, error.message)

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
        if frame.kind is not FrameKind.HELLO:
            raise ChannelBroken(f"a {frame.kind.name} frame came before the hello")
        try:
            hello = msgspec.json.decode(frame.body, type=ChannelHello)
        except UNDECODABLE as error:
            raise ChannelBroken(f"the hello cannot be read: {error}") from error
        if not self._transport.admits(hello):
            raise ChannelBroken(f"hello of attempt {hello.attempt}, slot {hello.sender}: not of this attempt")
        self._sender = hello.sender
        self.receive_bytes = RECEIVE_BYTES
        self._inputs = self._transport.inputs_from(hello.sender)
        self._transport.welcome(self)

    def pump(self) -> bool:
        for edge, channel in self._inputs.items():
            credit = channel.take_credit()
            if credit:
                self.queue(write_frame(FrameKind.CREDIT, edge, credit, b""))
            question = channel.take_question()
            if question:
                self.queue(write_frame(FrameKind.QUESTION, edge, question, b""))
        if self.backlog:
            self.flush()
        return False


class DataTransport:
    """All data connections of a slot. `port` is bound at construction and sent to the daemon in the hello.

    `elapsed` returns monotonic seconds.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        host: str,
        attempt: Attempt,
        token: str,
        sockets: Sockets = SOCKETS,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self.selector = selector
        self._sockets = sockets
        self._elapsed = elapsed
        self._attempt = attempt
        self._token = token
        self._complaints = Complaints(logger, elapsed)
        self._listener = sockets.listen(host)
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[_Sender | _Receiver] = []
        self._unauthenticated: dict[_Receiver, float] = {}
        """Connections without a hello, oldest first, and when each is closed."""
        self._unauthenticated_max = UNAUTHENTICATED_MAX
        self._inputs: dict[tuple[int, int], InputChannel] = {}
        self._accepts_at: float | None = None
        """When connections are accepted again; None for now."""
        selector.register(self._listener, selectors.EVENT_READ, self._on_accept)

    def open(
        self,
        slot: SlotIndex,
        peers: tuple[PeerAddress, ...],
        inputs: dict[tuple[int, int], InputChannel],
        outputs: Mapping[int, Mapping[int, RemoteOutput]],
    ) -> None:
        """Connects to the slots that this one sends to: `inputs` by (sender, edge), `outputs` by receiver and edge.

        Raises PeerLost.
        """
        self._inputs = inputs
        self._unauthenticated_max = max(UNAUTHENTICATED_MAX, 2 * len(peers))
        for peer, channels in outputs.items():
            address = peers[peer]
            try:
                sock = self._sockets.connect(address.host, address.port)
            except OSError as error:
                raise PeerLost(f"slot {peer} at {address.host}:{address.port} cannot be reached: {error}") from error
            sender = _Sender(self, sock, peer, channels)
            hello = msgspec.json.encode(ChannelHello(self._attempt, self._token, slot))
            sender.queue(write_frame(FrameKind.HELLO, 0, 0, hello))
            sender.flush()
            self._connections.append(sender)

    def admits(self, hello: ChannelHello) -> bool:
        """Returns whether the hello is of this attempt, with its token."""
        return hello.attempt == self._attempt and hmac.compare_digest(hello.token.encode(), self._token.encode())

    def inputs_from(self, sender: int) -> dict[int, InputChannel]:
        """Returns the input channels from a sender, by edge."""
        return {edge: channel for (slot, edge), channel in self._inputs.items() if slot == sender}

    def welcome(self, connection: _Receiver) -> None:
        """Accepts a connection whose hello was verified."""
        del self._unauthenticated[connection]
        self._connections.append(connection)

    def refuse(self, connection: _Receiver, why: str) -> None:
        """Closes a connection that is not ours."""
        if self._unauthenticated.pop(connection, None) is None:
            return  # its last event was queued when it was closed
        self._complaints.report("a data connection was refused", why)
        connection.close()

    def pump(self) -> bool:
        """Writes what can be sent to the sockets. Returns True if frames were sent."""
        if self._unauthenticated or self._accepts_at is not None:
            self._check_clock()
        moved = [connection.pump() for connection in self._connections]  # pump all of them, even after one has moved
        return any(moved)

    def close(self) -> None:
        """Closes every socket."""
        for connection in (*self._connections, *self._unauthenticated):
            connection.close()
        self._connections.clear()
        self._unauthenticated.clear()
        self._stop_accepting()
        self._listener.close()

    def _on_accept(self, mask: int) -> None:  # noqa: ARG002  # the selector's callback
        try:
            sock = self._sockets.accept(self._listener)
        except BlockingIOError:
            return
        except OSError as error:  # of one connection, or no descriptors are left: neither ends the slot
            self._complaints.report("a data connection cannot be accepted", error.strerror or type(error).__name__)
            self._stop_accepting()
            self._accepts_at = self._elapsed() + ACCEPT_PAUSE_S
            return
        while len(self._unauthenticated) >= self._unauthenticated_max:
            self.refuse(next(iter(self._unauthenticated)), "there are too many without a hello")
        self._unauthenticated[_Receiver(self, sock)] = self._elapsed() + HELLO_TIMEOUT_S

    def _stop_accepting(self) -> None:
        if self._accepts_at is None:
            self.selector.unregister(self._listener)

    def _check_clock(self) -> None:
        now = self._elapsed()
        for peer, until in list(self._unauthenticated.items()):
            if until > now:
                break
            self.refuse(peer, f"no hello within {HELLO_TIMEOUT_S:g} s")
        if self._accepts_at is not None and now >= self._accepts_at:
            self._accepts_at = None
            self.selector.register(self._listener, selectors.EVENT_READ, self._on_accept)
