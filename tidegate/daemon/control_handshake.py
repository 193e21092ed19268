"""The handshake on the control port: a peer is unauthenticated until its hello has been read.

Unauthenticated peers are limited in number and time, and only the bytes of their hello are read, so that none of them
costs memory or descriptors. If the daemon has a key (`process/channel_key.py`), they must prove that they know it, and
everything is encrypted. `control_server.py` decides whether a hello is from a slot of the running attempt.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.process.repeated_messages import Complaints
from tidegate.task.messages import LENGTH, MESSAGE_BYTES_MAX, Hello, SlotMessage, decode_slot_message

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
