"""The real HTTP server over a recording. Resources that it does not have yet are answered from made-up values."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from tests.browser.made_up import Answer, make_up
from tests.browser.recording import Recording
from tests.browser.situations import SITUATIONS
from tidegate.daemon.http.server import HttpServer

API = "/api/v1"
TODAYS = ("status", "checkpoints", "failures")


class SituationServer(HttpServer):
    """An HttpServer; `answers` are made up, by resource."""

    def __init__(self, port: int, recording: Recording, answers: Mapping[str, Answer]) -> None:
        super().__init__("127.0.0.1", port, recording.metrics, elapsed=recording.clock)
        self._answers = answers

    def _application(self) -> web.Application:
        application = super()._application()
        known = {resource.canonical for resource in application.router.resources()}
        for name, answer in self._answers.items():
            if f"{API}/{name}" not in known:
                application.router.add_get(f"{API}/{name}", _answer(answer))
        today = {
            "status": self._answer_status,
            "checkpoints": self._answer_checkpoints,
            "failures": self._answer_failures,
        }
        for name, handler in today.items():
            if f"{API}/{name}" not in known:
                application.router.add_get(f"{API}/{name}", handler)
        return application


def _answer(answer: Answer):  # type: ignore[no-untyped-def]  # until the resources are there
    body = msgspec.json.encode(answer)

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    return handler


def serve_situation(name: str, now_ms: int, port: int = 0) -> tuple[SituationServer, Recording]:
    """Starts a server that shows a situation as it was at `now_ms`."""
    recording = SITUATIONS[name](now_ms)
    server = SituationServer(port, recording, make_up(name, recording))
    server.start()
    return server, recording
