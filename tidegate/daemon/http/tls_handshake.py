"""The TLS handshake in front of a connection lease, limited like the request of any unauthenticated client.

A connection counts before its handshake, not after it, so those that never complete one are closed like others.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, cast

from tidegate.daemon.http.connection_limiter import ConnectionLease, Places

SHUTDOWN_S: Final = 1.0
"""How long to wait for the peer's close notification."""


class TlsHandshake(asyncio.Protocol):
    """One connection until its handshake is done; then its lease takes over.

    Data that arrives together with the end of the handshake is kept for the lease, because it may be a whole request.
    """

    def __init__(
        self, place: ConnectionLease, places: Places, context: ssl.SSLContext, shaking: set[asyncio.Task[None]]
    ) -> None:
        self._place = place
        self._places = places
        self._context = context
        self._shaking = shaking
        self._early: list[bytes] = []
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection and starts the handshake (asyncio callback)."""
        raw = cast("asyncio.Transport", transport)
        raw.pause_reading()
        if self._place.enter(raw):
            task = asyncio.get_running_loop().create_task(self._shake(raw))
            self._shaking.add(task)
            task.add_done_callback(self._shaken)

    def data_received(self, data: bytes) -> None:
        """Keeps data that arrives early (asyncio callback)."""
        self._early.append(data)

    def eof_received(self) -> bool | None:
        """Notes that the client has closed its side, so it gets no response (asyncio callback)."""
        self._ended = True
        return None

    def connection_lost(self, _exc: Exception | None) -> None:
        """Notes that the connection has ended (asyncio callback)."""
        self._ended = True

    def _shaken(self, task: asyncio.Task[None]) -> None:
        """Frees the connection of a handshake that was cancelled, possibly before its first step."""
        self._shaking.discard(task)
        if task.cancelled():
            self._place.close()

    async def _shake(self, raw: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                raw,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._places.head_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # from TLS, the connection, or a timeout
            reason = getattr(error, "reason", None) or type(error).__name__
            self._places.complaints.report(f"a TLS handshake of HTTP failed: {reason}")
            self._place.close()
            return
        if encrypted is None or self._ended:
            self._place.close()
            return
        encrypted.set_protocol(self._place)
        self._place.connection_made(encrypted)
        for data in self._early:
            self._place.data_received(data)
