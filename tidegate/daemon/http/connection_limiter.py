"""Limits HTTP connections: their number, and the time and bytes that each may take until its request is complete.

Any client can connect to the port, so a connection that sends no request costs little and is closed soon. When the
limit is reached, the connection that has waited longest for its request is closed in favour of the newest one. A probe
sends its request at once, so it gets through under any load. Everything runs on the server's loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, cast

from aiohttp.http_exceptions import HttpProcessingError

from tidegate.process.repeated_messages import Complaints

logger = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 64
HEAD_S: Final = 5.0
"""Time limit for a request, from the start of the connection, and for each further request on a kept connection."""
ANSWER_S: Final = 30.0
"""Time limit for a response, and again for the client to read it. A command may take longer."""
HEAD_BYTES_MAX: Final = 16_384


class Places:
    """The connections of one server."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX, head_s: float = HEAD_S) -> None:
        self.connections_max = connections_max
        self.head_s = head_s
        self.complaints = Complaints(logger)
        self._taken: dict[asyncio.BaseProtocol, ConnectionLease] = {}
        """By the protocol that serves them, oldest first."""

    def __len__(self) -> int:
        return len(self._taken)

    def find(self, protocol: asyncio.BaseProtocol) -> ConnectionLease | None:
        """Returns the lease of the connection that a request came on; None if it has been closed since."""
        return self._taken.get(protocol)

    def take(self, place: ConnectionLease) -> bool:
        """Adds a connection if there is room, closing another one if necessary; returns whether it was added."""
        if place.protocol in self._taken:
            return True
        if len(self._taken) >= self.connections_max:
            evicted = next((one for one in self._taken.values() if not one.holds), None)
            self.complaints.report(
                f"the limit of {self.connections_max} HTTP connections is reached: closing the oldest"
            )
            if evicted is None:
                return False
            evicted.close()
        self._taken[place.protocol] = place
        return True

    def leave(self, place: ConnectionLease) -> None:
        """Removes a connection that has ended."""
        self._taken.pop(place.protocol, None)

    def close(self) -> None:
        """Ends all connections at once. A peer that does not respond to the end of TLS would outlive the loop."""
        for place in tuple(self._taken.values()):
            place.close()


class ConnectionLease(asyncio.Protocol):
    """One connection, between asyncio and the protocol that serves it."""

    def __init__(self, protocol: asyncio.Protocol, places: Places) -> None:
        self.protocol = protocol
        self.holds = False
        """True while it carries a command: it is not closed in favour of others."""
        self._places = places
        self._waits = True
        self._drains = False
        self._head_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def request_begins(self) -> None:
        """Starts the response timeout: the head of the request is complete."""
        self._waits, self._head_bytes = False, 0
        self._allow(ANSWER_S)

    def order_begins(self) -> None:
        """Removes the time limit: the request is a complete and allowed command."""
        self.holds = True
        self._allow(None)

    def request_ends(self) -> None:
        """Starts the timeout for the next request. The response to this one may still be in transit."""
        self._waits, self._drains, self.holds = True, False, False
        self._allow(self._places.head_s)

    def close(self) -> None:
        """Ends the connection at once."""
        self._allow(None)
        self._places.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def enter(self, transport: asyncio.Transport) -> bool:
        """Registers a connection before its TLS handshake; ends it and returns False if there is no room."""
        self._transport = transport
        self._allow(self._places.head_s)
        taken = self._places.take(self)
        if not taken:
            self.close()
        return taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers a connection without TLS, or ends it if there is no room (asyncio callback)."""
        self._transport = cast("asyncio.Transport", transport)
        self._allow(self._places.head_s)
        if not self._places.take(self):
            self._transport.abort()
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Passes data on while the head of the request is within its limit (asyncio callback)."""
        if self._waits:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._places.complaints.report(
                    f"an HTTP request with a head of more than {HEAD_BYTES_MAX} bytes was rejected"
                )
                self.close()
                return
        self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Passes the end of input on (asyncio callback)."""
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        """Passes the pause on (asyncio callback)."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """Passes the end of the pause on (asyncio callback)."""
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection (asyncio callback)."""
        self._allow(None)
        self._places.leave(self)
        self.protocol.connection_lost(exc)

    def _allow(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        """Closes the connection; extends the time once if the client is still reading a response."""
        reading = self._waits and self._transport is not None and self._transport.get_write_buffer_size() > 0
        if reading and not self._drains:
            self._drains = True
            self._allow(ANSWER_S)
        else:
            self.close()


def make_client_logger(complaints: Complaints) -> Any:
    """Creates a logger for aiohttp: errors of clients are counted, all others are reported as errors of the server."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if isinstance(error, HttpProcessingError):
                who = record.args[0] if isinstance(record.args, tuple) and record.args else "?"
                complaints.report(f"an invalid HTTP request was rejected: {type(error).__name__}", f"from {who}")
            else:
                logger.handle(record)

    made = logging.Logger(f"{__name__}.clients", logging.WARNING)  # noqa: LOG001 - one per server, not one per process
    made.addHandler(Handler())
    return made
