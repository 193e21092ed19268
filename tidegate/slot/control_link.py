"""The slot's end of the control connection: one thread that reads orders, sends answers and holds the lease.

It works while the loop is busy, so it proves that the process is alive, not the loop; every heartbeat includes the age
of the loop's last turn. If the process hears nothing from the daemon for the length of the lease, it ends itself, since
a zombie must not continue to write (facts: a frozen executor's workers live for up to ten seconds after Spark gave them
up). What a slot knows at first is the address of its daemon, and its credentials there.
"""

from __future__ import annotations

import os
import queue
import selectors
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt
from tidegate.task.messages import (
    LENGTH,
    MESSAGE_BYTES_MAX,
    DriverMessage,
    Heartbeat,
    Ping,
    SlotMessage,
    decode_driver_message,
    encode_message,
)


class SlotBootstrap(msgspec.Struct, frozen=True):
    """Everything that travels in the Spark closure; the rest comes over the control connection."""

    host: str
    port: int
    attempt: Attempt
    token: str
    connect_timeout_s: float = 30.0
    key: str = ""
    """See `slot/channel_sockets.py`; empty if connections are not encrypted."""


class WakePipe:
    """A pipe to register with a selector. It closes with its last reference, so that no thread writes into a closed
    one.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        weakref.finalize(self, _close, self._read, self._write)

    def fileno(self) -> int:
        """Returns the end that becomes readable."""
        return self._read

    def wake(self) -> None:
        """Makes it readable; a full pipe already is."""
        with suppress(BlockingIOError):
            os.write(self._write, b"!")

    def drain(self) -> None:
        """Makes it unreadable. Call it only when it is readable."""
        os.read(self._read, 65536)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


LEASE_EXIT_CODE: Final = 75
"""Exit code of a slot process that heard nothing from its daemon for the length of the lease."""


class ControlLost(AttemptFailed):
    """The daemon closed the control connection or cannot be reached."""

    code = "control-lost"


class ControlLink:
    """The slot's connection to the daemon: exchanges the first messages, then serves on a thread after `start`.

    `wake` is called for every order. With `tls` everything is encrypted, and both ends present the daemon's key
    (`slot/channel_sockets.py`).
    """

    def __init__(
        self, host: str, port: int, wake: Callable[[], None], timeout_s: float, tls: ssl.SSLContext | None = None
    ) -> None:
        try:
            self._sock = socket.create_connection((host, port), timeout_s)
            if tls is not None:
                self._sock = tls.wrap_socket(self._sock)
        except OSError as error:
            raise ControlLost(f"the daemon at {host}:{port} cannot be reached from this executor: {error}") from error
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local_host: str = self._sock.getsockname()[0]
        self.orders: queue.SimpleQueue[DriverMessage | None] = queue.SimpleQueue()
        self._wake = wake
        self._outbox: queue.SimpleQueue[SlotMessage] = queue.SimpleQueue()
        self._pipe = WakePipe()
        self._closing = False
        self._thread: threading.Thread | None = None

    def exchange(self, hello: SlotMessage, timeout_s: float) -> DriverMessage:
        """Sends hello and waits for the first order. Raises ControlLost."""
        self._sock.settimeout(timeout_s)
        try:
            self._sock.sendall(encode_message(hello))
            while True:
                message = decode_driver_message(self._read_body())
                if not isinstance(message, Ping):
                    return message
        except OSError as error:
            raise ControlLost(f"no deployment from the daemon within {timeout_s:.0f} s: {error}") from error

    def start(self, heartbeat: Callable[[], Heartbeat], interval_s: float, lease_s: float) -> None:
        """Starts serving: reads orders, sends what `send` queues, sends heartbeats, watches the lease."""
        self._sock.settimeout(lease_s)
        self._thread = threading.Thread(
            target=self._serve, args=(heartbeat, interval_s, lease_s), name="control", daemon=True
        )
        self._thread.start()

    def send(self, message: SlotMessage) -> None:
        """Queues an answer; returns at once. Safe from any thread."""
        self._outbox.put(message)
        self._pipe.wake()

    def waiting(self) -> int:
        """Returns the number of messages queued and not sent yet."""
        return self._outbox.qsize()

    def close(self, timeout_s: float) -> None:
        """Sends what is queued and ends the thread."""
        self._closing = True
        if self._thread is not None:
            self._pipe.wake()
            self._thread.join(timeout_s)
        self._sock.close()

    def _serve(self, heartbeat: Callable[[], Heartbeat], interval_s: float, lease_s: float) -> None:
        watched = selectors.DefaultSelector()
        watched.register(self._sock, selectors.EVENT_READ)
        watched.register(self._pipe, selectors.EVENT_READ)
        heard = time.monotonic()
        beat_at = heard
        try:
            while True:
                now = time.monotonic()
                if now - heard > lease_s:
                    self._end_process(f"nothing heard from the daemon for {lease_s:.1f} s")
                if now >= beat_at:
                    self._sock.sendall(encode_message(heartbeat()))
                    beat_at = now + interval_s
                wait = 0.0 if self._decrypted else max(0.0, min(beat_at, heard + lease_s) - now)
                readable = [key.fileobj for key, _ in watched.select(wait)]
                if self._pipe in readable:
                    self._pipe.drain()
                self._drain_outbox()
                if self._closing:
                    return
                if self._sock in readable or self._decrypted:
                    message = decode_driver_message(self._read_body())
                    heard = time.monotonic()
                    if not isinstance(message, Ping):
                        self.orders.put(message)
                        self._wake()
        except (OSError, ControlLost) as error:
            if not self._closing:
                self._end_process(f"control connection lost: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is: otherwise nothing would watch the lease any more
            self._end_process(f"the control thread failed: {type(error).__name__}: {error}")
        finally:
            watched.close()

    @property
    def _decrypted(self) -> bool:
        """Whether data has arrived that a selector no longer sees."""
        return isinstance(self._sock, ssl.SSLSocket) and self._sock.pending() > 0

    def _drain_outbox(self) -> None:
        while not self._outbox.empty():
            self._sock.sendall(encode_message(self._outbox.get()))

    def _read_body(self) -> bytes:
        (length,) = LENGTH.unpack(self._read_exactly(LENGTH.size))
        if length > MESSAGE_BYTES_MAX:
            raise ControlLost(f"the daemon sent a message of {length} bytes")
        return self._read_exactly(length)

    def _read_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            data = self._sock.recv(count - len(parts))
            if not data:
                raise ControlLost("the daemon closed the control connection")
            parts += data
        return bytes(parts)

    @staticmethod
    def _end_process(reason: str) -> None:
        """Ends the process. Not an exception: the loop may be stuck, and this process must not write any more."""
        print(f"tidegate slot {os.getpid()} exits: {reason}", file=sys.__stderr__, flush=True)
        os._exit(LEASE_EXIT_CODE)
