"""The end of a TLS handshake that was cancelled."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from tidegate.daemon.http.tls import TlsHandshake


class RecordedPlace:
    def __init__(self) -> None:
        self.closed = 0

    def enter(self, _transport: asyncio.Transport) -> bool:
        return True

    def close(self) -> None:
        self.closed += 1


class PausedTransport:
    def pause_reading(self) -> None:
        """Nothing is read here."""


@pytest.mark.parametrize("turns", [0, 1])
def test_a_connection_whose_handshake_is_cancelled_is_closed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before the handshake's first step: a connection accepted right before the server closes stayed open."""
    place: Any = RecordedPlace()

    async def play() -> None:
        async def never(*_arguments: object, **_options: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "start_tls", never)
        shaking: set[asyncio.Task[None]] = set()
        places: Any = type("Places", (), {"head_s": 1.0})
        door = TlsHandshake(place, places, ssl.create_default_context(), shaking)
        transport: Any = PausedTransport()
        door.connection_made(transport)
        for _ in range(turns):
            await asyncio.sleep(0)
        (task,) = shaking
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)
        assert shaking == set()

    asyncio.run(play())
    assert place.closed == 1
