"""Sockets of the data connections between slots: plain ones, and encrypted ones that behave like them.

What `transport.py` uses of a socket is little: `sendmsg` and `recv` that never block, a descriptor for the selector.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, Protocol

from typing_extensions import override

from tidegate.process.channel_key import accepting_context, dialling_context

CONNECT_TIMEOUT_S: Final = 10.0
BACKLOG: Final = 256
WRITE_BYTES: Final = 1 << 16
READ_BYTES: Final = 1 << 14
"""A record of TLS."""


class DataSocket(Protocol):
    """A connected socket that never blocks."""

    def sendmsg(self, parts: Sequence[memoryview], /) -> int:
        """How many bytes were taken. Raises BlockingIOError (AwaitsPeer: until something can be read), OSError."""

    def recv(self, limit: int, /) -> bytes:
        """What has arrived; empty at the end. Raises BlockingIOError, OSError."""

    def fileno(self) -> int:
        """For the selector."""

    def close(self) -> None:
        """End the connection."""


class Listening(Protocol):
    """A listening socket that never blocks."""

    def accept(self) -> tuple[Any, Any]:
        """The next connection and its address. Raises BlockingIOError, OSError."""

    def getsockname(self) -> Any:
        """Address and port."""

    def fileno(self) -> int:
        """For the selector."""

    def close(self) -> None:
        """Nobody listens any more."""


class AwaitsPeer(BlockingIOError):
    """Nothing can be sent before the other end has said something: the connection is being agreed on."""


class Sockets:
    """Where connections come from. The simulation hands in others."""

    def listen(self, host: str) -> Listening:
        """A listening socket on a free port."""
        listening = socket.create_server((host, 0), backlog=BACKLOG)
        listening.setblocking(False)
        return listening

    def connect(self, host: str, port: int) -> DataSocket:
        """Raises OSError."""
        return _prepare(socket.create_connection((host, port), CONNECT_TIMEOUT_S))

    def accept(self, listening: Listening) -> DataSocket:
        """Raises BlockingIOError, OSError."""
        return _prepare(listening.accept()[0])


class EncryptedSockets(Sockets):
    """Every connection is encrypted, and both ends show the daemon's key."""

    def __init__(self, key: str) -> None:
        self._accepting = accepting_context(key)
        self._dialling = dialling_context(key)

    @override
    def connect(self, host: str, port: int) -> DataSocket:
        """The two ends agree on the encryption when something is sent: both may connect at a time."""
        return EncryptedChannel(_prepare(socket.create_connection((host, port), CONNECT_TIMEOUT_S)), self._dialling)

    @override
    def accept(self, listening: Listening) -> DataSocket:
        return EncryptedChannel(_prepare(listening.accept()[0]), self._accepting, accepted=True)


class EncryptedChannel(DataSocket):
    """A connection under TLS."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, accepted: bool = False) -> None:
        self._sock = context.wrap_socket(sock, server_side=accepted, do_handshake_on_connect=False)

    @override
    def sendmsg(self, parts: Sequence[memoryview], /) -> int:
        # A call that blocked must be repeated with the same bytes: the parts still begin with them.
        together, size = [], 0
        for part in parts:
            together.append(part[: WRITE_BYTES - size])
            size += len(together[-1])
            if size == WRITE_BYTES:
                break
        try:
            return self._sock.send(b"".join(together))
        except ssl.SSLWantReadError as wait:
            raise AwaitsPeer from wait
        except ssl.SSLWantWriteError as wait:
            raise BlockingIOError from wait

    @override
    def recv(self, limit: int, /) -> bytes:
        """More than `limit` when a record is larger: what is decrypted no selector sees any more."""
        parts, size = [], 0
        try:
            while size < limit or self._sock.pending():
                data = self._sock.recv(READ_BYTES)
                if not data:
                    break
                parts.append(data)
                size += len(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            if not parts:
                raise BlockingIOError from wait
        return b"".join(parts)

    @override
    def fileno(self) -> int:
        return self._sock.fileno()

    @override
    def close(self) -> None:
        self._sock.close()


def _prepare(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
