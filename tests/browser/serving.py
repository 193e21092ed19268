"""The real HTTP server over a recording. Resources that ask a broker or slots answer with made-up values."""

from __future__ import annotations

from typing import Any
from wsgiref.handlers import format_date_time

from aiohttp import web

from tests.browser.made_up import Answer, make_up
from tests.browser.recording import Recording
from tests.browser.situations import SITUATIONS
from tidegate.daemon.http.resources import Resource, ResourceQuery
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.resources import make_resources
from tidegate.daemon.tap_resource import TapService


class AnyQuery(ResourceQuery, frozen=True, kw_only=True):
    """The parameters of the resources that are made up."""

    step: str = ""
    key: str = ""
    rows: int = 10


NEED_PARTS = frozenset({"dead-letters", "state", "tap"})
"""Resources that read Kafka, the storage or slots, which a situation does not have."""


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
    taps = TapService(recording.plan, ())
    every = make_resources(recording.loaded, recording.plan, recording.metrics, taps)
    real = [one for one in every if one.name not in NEED_PARTS]
    known = {one.name for one in real}
    made_up = {other: answer for other, answer in make_up(name, recording).items() if other not in known}
    return [*real, *(_pretend(other, answer) for other, answer in made_up.items())]


def _pretend(name: str, answer: Answer) -> Resource[AnyQuery]:
    async def read(_query: AnyQuery) -> Answer:
        return answer

    return Resource(name=name, summary="Made up.", answer=dict[str, Any], read=read, query=AnyQuery)


def serve_situation(name: str, now_ms: int, port: int = 0) -> tuple[SituationServer, Recording]:
    """Starts a server that shows a situation as it was at `now_ms`."""
    recording = SITUATIONS[name](now_ms)
    server = SituationServer(port, recording, make_situation_resources(name, recording))
    server.start()
    return server, recording
