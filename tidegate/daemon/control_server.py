"""The daemon's end of the control connections: admits the slots of the running attempt.

A peer is unauthenticated until its hello has been read. Unauthenticated peers are limited in number and time, and only
the bytes of their hello are read, so that none of them costs memory or descriptors. If the daemon has a key
(`slot/channel_sockets.py`), they must prove that they know it, and everything is encrypted.

The server pings every slot, which renews the slot's lease, and listens for heartbeats. It reports a slot as lost when
its connection ends, when its process sends nothing after its deployment, or when its loop is stuck. Spark does not
detect the last two.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from tidegate import __version__
from tidegate.errors import UNDECODABLE, AttemptFailed, TidegateError
from tidegate.ids import Attempt, SlotIndex
from tidegate.process.repeated_messages import Complaints
from tidegate.task.messages import (
    LENGTH,
    MESSAGE_BYTES_MAX,
    DriverMessage,
    Heartbeat,
    Hello,
    Ping,
    SlotMessage,
    decode_slot_message,
    encode_message,
)

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S: Final = 5.0
HELLO_BYTES_MAX: Final = 4096
UNAUTHENTICATED_MAX: Final = 64
BACKLOG: Final = 256
ACCEPT_PAUSE_S: Final = 0.5
"""Pause when no connection can be accepted, for example because there are no free descriptors."""
READ_LIMIT: Final = 1 << 20
TROUBLE: Final = (asyncio.IncompleteReadError, OSError, TimeoutError, *UNDECODABLE)
"""Errors that end a connection: it is broken or silent, or sends what no slot sends. `ssl.SSLError` is an OSError."""

Serve: TypeAlias = Callable[[Hello, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves a connection that has sent its hello until it ends, and closes it."""
_Read: TypeAlias = Callable[[int], Awaitable[bytes]]
"""Reads exactly this many bytes."""


class ControlHandshake:
    """A listening port. At most `unauthenticated_max` connections may lack a hello; a further one ends the oldest."""

    def __init__(self, host: str, unauthenticated_max: int, serve: Serve) -> None:
        self._unauthenticated_max = unauthenticated_max
        self._serve = serve
        self._tls: ssl.SSLContext | None = None
        self._unauthenticated: dict[asyncio.Task[None], None] = {}
        """In order of arrival."""
        self._greeted: set[asyncio.Task[None]] = set()
        """Keeps references, because the event loop holds tasks by weak references only."""
        self._complaints = Complaints(logger)
        self._listening = socket.create_server((host, 0), backlog=BACKLOG)
        self._listening.setblocking(False)
        self.port = int(self._listening.getsockname()[1])
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Encrypts connections from now on; peers without the key are rejected."""
        self._tls = context

    def close(self) -> None:
        """Stops accepting connections; those that have been accepted stay open."""
        for task in (self._accepting, *self._unauthenticated):
            task.cancel()
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listening)
            except OSError as error:
                self._complaints.report(f"the control port cannot accept connections: {error.strerror}")
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            if len(self._unauthenticated) >= self._unauthenticated_max:
                self._complaints.report("too many unauthenticated connections to the control port: closing the oldest")
                oldest = next(iter(self._unauthenticated))
                del self._unauthenticated[oldest]
                oldest.cancel()
            self._unauthenticated[loop.create_task(self._greet(sock, address[0]))] = None
            await asyncio.sleep(0)  # lets existing connections make progress, however many arrive

    async def _greet(self, sock: socket.socket, who: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello, reader, writer = await _introduce(sock, self._tls)
        except TROUBLE as error:
            self._complaints.report(
                f"a connection to the control port did not authenticate ({type(error).__name__})", who
            )
            sock.close()
            return
        except asyncio.CancelledError:
            sock.close()
            raise
        finally:
            self._unauthenticated.pop(task, None)
        self._greeted.add(task)
        task.add_done_callback(self._greeted.discard)
        await self._serve(hello, reader, writer)


async def _introduce(
    sock: socket.socket, tls: ssl.SSLContext | None
) -> tuple[Hello, asyncio.StreamReader, asyncio.StreamWriter]:
    """Reads the hello; returns it with streams for what follows. Raises TROUBLE."""
    if tls is None:
        hello = await read_hello(lambda count: _receive(sock, count))
        return hello, *await asyncio.open_connection(sock=sock, limit=READ_LIMIT)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=READ_LIMIT)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, sock, ssl=tls)
    try:
        hello = await read_hello(reader.readexactly)
    except BaseException:
        transport.abort()
        raise
    return hello, reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_hello(read: _Read) -> Hello:
    """Reads the first message, which must be a hello. Raises TROUBLE."""
    message = await read_message(read, HELLO_BYTES_MAX)
    if not isinstance(message, Hello):
        raise msgspec.DecodeError(f"{type(message).__name__} instead of a hello")
    return message


async def read_message(read: _Read, bytes_max: int = MESSAGE_BYTES_MAX) -> SlotMessage:
    """Reads the next message. Raises TROUBLE."""
    (length,) = LENGTH.unpack(await read(LENGTH.size))
    if length > bytes_max:
        raise msgspec.DecodeError(f"message of {length} bytes")
    return decode_slot_message(await read(length))


async def _receive(sock: socket.socket, count: int) -> bytes:
    """Receives exactly this many bytes; what follows stays in the socket buffer."""
    loop, parts = asyncio.get_running_loop(), b""
    while len(parts) < count:
        data = await loop.sock_recv(sock, count - len(parts))
        if not data:
            raise asyncio.IncompleteReadError(parts, count)
        parts += data
    return parts


LOOP_STUCK_MS: Final = 120_000
"""A loop that has not completed a turn for this long is stuck in an operator, even if its process responds."""

BLOCKED_MS: Final = 5_000
"""A loop that has not completed a turn for this long may be why checkpoints fail."""


class SlotLost(AttemptFailed):
    """A slot's process is gone, silent or stuck."""

    code = "slot-lost"


class SlotConnection:
    """One admitted slot."""

    def __init__(self, hello: Hello, writer: asyncio.StreamWriter) -> None:
        self.hello = hello
        self.index: SlotIndex | None = None
        self.heard_at: float | None = None
        """None while it waits for its deployment, when it sends nothing."""
        self.code_steps: tuple[str, ...] = ()
        """The steps whose user code it runs; that code may end the process without any report."""
        self.user_code = ""
        """The user code that ran at the last heartbeat."""
        self.loop_age_ms = 0
        """As in the last heartbeat."""
        self.stopped = False
        self.closed = asyncio.Event()
        """Set when the connection has ended: the process is gone or about to be."""
        self._writer = writer

    def __str__(self) -> str:
        index = "?" if self.index is None else self.index
        return f"slot {index} (process {self.hello.process} on {self.hello.host})"

    def send(self, message: DriverMessage) -> bool:
        """Queues a message. Returns False if the connection has ended or is closing, which is reported separately."""
        if self._writer.is_closing():
            return False
        self._writer.write(encode_message(message))
        return True

    def begin_watch(self, now: float) -> None:
        """Starts to expect heartbeats, because the slot has been deployed."""
        self.heard_at = now

    def describe_code(self) -> str:
        """Returns what is known of the user code that ran last, to be added to a message; empty if there is none."""
        if self.user_code:
            return f"; at its last heartbeat it ran the code of {self.user_code}"
        return f"; it ran the code of {', '.join(self.code_steps)}" if self.code_steps else ""

    def describe_block(self) -> str:
        """Returns which user code keeps the loop from turning, to be added to a message; empty if none does."""
        if not self.user_code or self.loop_age_ms < BLOCKED_MS:
            return ""
        return f"; the code of {self.user_code} has blocked slot {self.index} for {self.loop_age_ms / 1000:.0f} s"

    def close(self) -> None:
        """Closes the connection."""
        self._writer.close()


class Listener(NamedTuple):
    """Callbacks of the running attempt for what the server reports."""

    registered: Callable[[SlotConnection], None]
    message: Callable[[SlotConnection, SlotMessage], None]
    lost: Callable[[SlotLost], None]


class ControlServer:
    """Serves one attempt at a time; slots of any other attempt are rejected."""

    def __init__(
        self, host: str, interval_s: float, timeout_s: float, unauthenticated_max: int = UNAUTHENTICATED_MAX
    ) -> None:
        """`unauthenticated_max` is passed to `ControlHandshake`."""
        self._host = host
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._unauthenticated_max = unauthenticated_max
        self._complaints = Complaints(logger)
        self._handshake: ControlHandshake | None = None
        self._attempt: Attempt | None = None
        self._token = ""
        self._listener: Listener | None = None
        self._slots: dict[SlotConnection, None] = {}
        """In order of arrival."""
        self._watch: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Binds to a free port."""
        self._handshake = ControlHandshake(self._host, self._unauthenticated_max, self._serve_slot)
        self.port = self._handshake.port
        self._watch = asyncio.get_running_loop().create_task(self._watch_slots())

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Encrypts connections from now on; peers without the key are rejected."""
        if self._handshake is not None:
            self._handshake.encrypt(context)

    def admit(self, attempt: Attempt, token: str, listener: Listener) -> None:
        """Admits slots of this attempt from now on, and no others."""
        self._attempt, self._token, self._listener = attempt, token, listener

    def dismiss(self) -> None:
        """Closes the remaining connections and admits no more: the attempt is over."""
        self._attempt, self._listener = None, None
        for slot in list(self._slots):
            slot.close()
        self._slots.clear()

    @staticmethod
    async def wait_closed(slots: Iterable[SlotConnection]) -> None:
        """Waits until the connections of these slots have ended."""
        for slot in slots:
            await slot.closed.wait()

    async def stop(self) -> None:
        """Closes everything."""
        self.dismiss()
        if self._watch is not None:
            self._watch.cancel()
        if self._handshake is not None:
            self._handshake.close()

    async def _serve_slot(self, hello: Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._admits(hello):
            writer.close()
            return
        slot = SlotConnection(hello, writer)
        self._slots[slot] = None
        assert self._listener is not None
        self._listener.registered(slot)
        try:
            while True:
                message = await read_message(reader.readexactly)
                slot.heard_at = _now()
                if slot not in self._slots:
                    return
                self._check_loop(slot, message)
                self._listener.message(slot, message)
        except TROUBLE as error:
            self._report_lost(slot, f"its control connection ended ({type(error).__name__})")
        except TidegateError as error:
            self._report_lost(slot, error.message)
        except Exception as error:
            logger.exception("internal error after a message of %s", slot)
            self._report_lost(slot, f"internal error: {type(error).__name__}: {error}")
        finally:
            slot.closed.set()
            writer.close()

    def _admits(self, hello: Hello) -> bool:
        right = hmac.compare_digest(hello.token.encode(), self._token.encode())
        if self._attempt is None or hello.attempt != self._attempt or not right:
            running = "none runs" if self._attempt is None else f"the running one is {self._attempt}"
            self._complaints.report("a slot of another attempt was rejected", f"{hello.attempt}; {running}")
            return False
        if hello.version != __version__:
            logger.error(
                "the slot on %s runs tidegate %s, but the daemon runs %s: install the same version on all machines",
                hello.host,
                hello.version,
                __version__,
            )
            return False
        return True

    def _check_loop(self, slot: SlotConnection, message: SlotMessage) -> None:
        if not isinstance(message, Heartbeat):
            return
        slot.user_code, slot.loop_age_ms = message.user_code, message.loop_age_ms
        if message.loop_age_ms > LOOP_STUCK_MS:
            self._report_lost(slot, f"its loop has been stuck for {message.loop_age_ms / 1000:.0f} s")

    def _report_lost(self, slot: SlotConnection, reason: str) -> None:
        if slot not in self._slots:
            return
        del self._slots[slot]
        if self._listener is not None and not slot.stopped:
            self._listener.lost(SlotLost(f"{slot} was lost: {reason}{slot.describe_code()}", slot=str(slot)))

    async def _watch_slots(self) -> None:
        while True:
            looked_at = _now()
            await asyncio.sleep(self._interval_s)
            stood_s = _now() - looked_at - self._interval_s
            for slot in list(self._slots):
                silent_s = 0.0 if slot.heard_at is None else _now() - slot.heard_at
                if silent_s > self._timeout_s:
                    own = stood_s > silent_s / 2
                    self._report_lost(slot, f"no heartbeat for {silent_s:.1f} s{_stood(stood_s) if own else ''}")
                    slot.close()
                else:
                    slot.send(Ping())


def _stood(seconds: float) -> str:
    return (
        f"; this daemon itself did not run for {seconds:.0f} s of that time: it was paused, or its machine was "
        "suspended or overloaded"
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
