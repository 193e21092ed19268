"""Sockets of the data connections between slots: plain ones, and encrypted ones that behave like them; and the key.

`transport.py` uses little of a socket: `sendmsg` and `recv` that never block, and a descriptor for the selector.

The key of a daemon authenticates its control connections and the connections between its slots. It consists of a key
pair and a self-signed certificate; both ends of every connection present it and trust nothing else (TLS 1.3). Each
daemon creates its own, which travels in Spark's closure, encrypted by Spark. It is created with the Java that Spark
needs anyway: `keytool` writes it, and the driver's JVM reads it. ADR 24 describes when there is one.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Final, Protocol

from typing_extensions import override


def accepting_context(key: str) -> ssl.SSLContext:
    """Creates the context of a listening end: the daemon, or a slot that receives."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, key)
    context.num_tickets = 0  # sessions are never resumed, and so readers are not woken up for tickets
    return context


def dialling_context(key: str) -> ssl.SSLContext:
    """Creates the context of a connecting end."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, key)


def _context(protocol: int, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # Spark provides the addresses; the key proves the identity
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=key[: key.index("-----BEGIN PRIVATE KEY-----")])
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)  # the ssl module reads keys from files only
    try:
        os.write(descriptor, key.encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context


CONNECT_TIMEOUT_S: Final = 10.0
BACKLOG: Final = 256
WRITE_BYTES: Final = 1 << 16
READ_BYTES: Final = 1 << 14
"""Maximum size of a TLS record."""


class DataSocket(Protocol):
    """A connected socket that never blocks."""

    def sendmsg(self, parts: Sequence[memoryview], /) -> int:
        """Sends, and returns how many bytes were accepted.

        Raises BlockingIOError (AwaitsPeer until something can be read), OSError.
        """

    def recv(self, limit: int, /) -> bytes:
        """Returns what has arrived; empty at the end. Raises BlockingIOError, OSError."""

    def fileno(self) -> int:
        """Returns the descriptor for the selector."""

    def close(self) -> None:
        """Closes the connection."""


class Listening(Protocol):
    """A listening socket that never blocks."""

    def accept(self) -> tuple[Any, Any]:
        """Returns the next connection and its address. Raises BlockingIOError, OSError."""

    def getsockname(self) -> Any:
        """Returns address and port."""

    def fileno(self) -> int:
        """Returns the descriptor for the selector."""

    def close(self) -> None:
        """Stops listening."""


class AwaitsPeer(BlockingIOError):
    """Nothing can be sent until the other end has sent something: the TLS handshake is in progress."""


class Sockets:
    """Factory of connections. The simulation passes in another one."""

    def listen(self, host: str) -> Listening:
        """Returns a listening socket on a free port."""
        listening = socket.create_server((host, 0), backlog=BACKLOG)
        listening.setblocking(False)
        return listening

    def connect(self, host: str, port: int) -> DataSocket:
        """Connects to another slot. Raises OSError."""
        return _prepare(socket.create_connection((host, port), CONNECT_TIMEOUT_S))

    def accept(self, listening: Listening) -> DataSocket:
        """Accepts a connection. Raises BlockingIOError, OSError."""
        return _prepare(listening.accept()[0])


class EncryptedSockets(Sockets):
    """Encrypted connections; both ends present the daemon's key."""

    def __init__(self, key: str) -> None:
        self._accepting = accepting_context(key)
        self._dialling = dialling_context(key)

    @override
    def connect(self, host: str, port: int) -> DataSocket:
        """Connects without a handshake, which follows with the first data: both ends may connect at the same time."""
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
        """Returns more than `limit` if a record is larger: a selector no longer sees decrypted data."""
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
