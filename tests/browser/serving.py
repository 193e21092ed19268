"""The real HTTP server over a recording. Resources that ask a broker or slots answer with made-up values."""

from __future__ import annotations

from typing import Any
from wsgiref.handlers import format_date_time

from aiohttp import web

from tests.browser.made_up import make_up
from tests.browser.recording import Recording
from tidegate.daemon.http.resources import Resource
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.resources import make_resources
from tidegate.daemon.taps import TapService


class SituationServer(HttpServer):
    """An HttpServer whose clock is the recording's."""

    def __init__(self, port: int, recording: Recording, resources: list[Resource[Any]]) -> None:
        super().__init__("127.0.0.1", port, recording.metrics, elapsed=recording.clock, resources=resources)
        self._recording = recording

    def _application(self) -> web.Application:
        application = super()._application()
        application.on_response_prepare.append(self._set_date)
        return application

    async def _set_date(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Date"] = format_date_time(self._recording.now_ms() / 1000)


def make_situation_resources(name: str, recording: Recording) -> list[Resource[Any]]:
    """Makes the resources of a daemon in the situation `name`."""
    made_up = make_up(name, recording)
    instead = {one.name for one in made_up}
    taps = TapService(recording.plan, ())
    every = make_resources(recording.loaded, recording.plan, recording.metrics, taps)
    return [*(one for one in every if one.name not in instead), *made_up]


def serve_recording(name: str, recording: Recording, port: int = 0) -> SituationServer:
    """Starts a server that shows a recording of the situation `name`."""
    server = SituationServer(port, recording, make_situation_resources(name, recording))
    server.start()
    return server
