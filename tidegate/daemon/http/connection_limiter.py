"""Places for HTTP connections: how many there are, and how long and how much each may take before its request is whole.

The port answers strangers, so a connection that does not say what it needs costs little and not for long. When all
places are taken, the one that has waited longest for its request is closed in favour of the newest: a probe sends its
request at once, so it gets through whatever else comes. Everything happens on the server's loop.
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
"""For a request, from the connection on; the same for the next one on a connection that is kept."""
ANSWER_S: Final = 30.0
"""For an answer, and then for the client to read it. An order may take longer."""
HEAD_BYTES_MAX: Final = 16_384


class Places:
    """The connections of one server."""

    def __init__(self, connections_max: int = CONNECTIONS_MAX, head_s: float = HEAD_S) -> None:
        self.connections_max = connections_max
        self.head_s = head_s
        self.complaints = Complaints(logger)
        self._taken: dict[asyncio.BaseProtocol, ConnectionLease] = {}
        """By the protocol that answers, oldest first."""

    def __len__(self) -> int:
        return len(self._taken)

    def find(self, protocol: asyncio.BaseProtocol) -> ConnectionLease | None:
        """The place of the connection that a request came on; None when it has been closed since."""
        return self._taken.get(protocol)

    def take(self, place: ConnectionLease) -> bool:
        """Whether there is room for a connection, if need be that of another one."""
        if place.protocol in self._taken:
            return True
        if len(self._taken) >= self.connections_max:
            evicted = next((one for one in self._taken.values() if not one.holds), None)
            self.complaints.report(
                f"all {self.connections_max} places for HTTP connections are taken: closing the oldest"
            )
            if evicted is None:
                return False
            evicted.close()
        self._taken[place.protocol] = place
        return True

    def leave(self, place: ConnectionLease) -> None:
        """It has ended."""
        self._taken.pop(place.protocol, None)

    def close(self) -> None:
        """End all connections at once: one whose other end does not answer the end of TLS would outlive the loop."""
        for place in tuple(self._taken.values()):
            place.close()


class ConnectionLease(asyncio.Protocol):
    """One connection, between asyncio and the protocol that answers."""

    def __init__(self, protocol: asyncio.Protocol, places: Places) -> None:
        self.protocol = protocol
        self.holds = False
        """It carries an order, which is not given up."""
        self._places = places
        self._waits = True
        self._drains = False
        self._head_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def request_begins(self) -> None:
        """Its head is whole."""
        self._waits, self._head_bytes = False, 0
        self._allow(ANSWER_S)

    def order_begins(self) -> None:
        """It is whole and allowed: it takes as long as it takes."""
        self.holds = True
        self._allow(None)

    def request_ends(self) -> None:
        """It is answered; the answer may still be on its way."""
        self._waits, self._drains, self.holds = True, False, False
        self._allow(self._places.head_s)

    def close(self) -> None:
        """End the connection at once."""
        self._allow(None)
        self._places.leave(self)
        if self._transport is not None:
            self._transport.abort()

    def enter(self, transport: asyncio.Transport) -> bool:
        """Take the place of a connection that has to be encrypted first; False when there is none, and it is ended."""
        self._transport = transport
        self._allow(self._places.head_s)
        taken = self._places.take(self)
        if not taken:
            self.close()
        return taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._allow(self._places.head_s)
        if not self._places.take(self):
            self._transport.abort()
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._waits:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self._places.complaints.report(
                    f"an HTTP request with more than {HEAD_BYTES_MAX} bytes of head was cut off"
                )
                self.close()
                return
        self.protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """See asyncio."""
        return self.protocol.eof_received()

    def pause_writing(self) -> None:
        """See asyncio."""
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio."""
        self.protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._allow(None)
        self._places.leave(self)
        self.protocol.connection_lost(exc)

    def _allow(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self._on_timeout)

    def _on_timeout(self) -> None:
        """An answer that the client is still reading is waited for, once."""
        reading = self._waits and self._transport is not None and self._transport.get_write_buffer_size() > 0
        if reading and not self._drains:
            self._drains = True
            self._allow(ANSWER_S)
        else:
            self.close()


def make_client_logger(complaints: Complaints) -> Any:
    """A logger for the library: what it says about clients' faults is counted, anything else is an error of ours."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if isinstance(error, HttpProcessingError):
                who = record.args[0] if isinstance(record.args, tuple) and record.args else "?"
                complaints.report(f"no HTTP request: {type(error).__name__}", f"from {who}")
            else:
                logger.handle(record)

    made = logging.Logger(f"{__name__}.clients", logging.WARNING)  # noqa: LOG001 - one per server, not one per process
    made.addHandler(Handler())
    return made
