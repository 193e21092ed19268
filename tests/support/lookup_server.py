"""A lookup server in a process of its own that a test can make slow, failing, hanging or unavailable.

`GET /price/{sku}` answers `{"price": number, "sku": text}`. `POST /mode` replaces the JSON object that controls its
behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tests.waiting import PATIENCE_S, wait_until
from tidegate.dev.broker.server import reserve_ports


class Lookup:
    """The web application."""

    def __init__(self) -> None:
        self.mode: dict[str, Any] = {}
        """`delay_s` is the maximum delay; `fail`, `throttle` and `hang` are fractions of the requests; `status` applies
        to all.
        """
        self.asked: Counter[str] = Counter()
        self.headers: dict[str, str] = {}
        self.random = random.Random(7)

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes([
            web.get("/price/{sku}", self.price),
            web.get("/raw", self.raw),
            web.get("/seen", self.seen),
            web.post("/mode", self.set_mode),
        ])  # fmt: skip
        return application

    async def price(self, request: web.Request) -> web.Response:
        sku = request.match_info["sku"]
        self.asked[request.raw_path] += 1
        self.headers = dict(request.headers)
        mode, draw = self.mode, self.random.random
        if mode.get("status"):
            return web.Response(status=mode["status"], headers=mode.get("headers", {}))
        if draw() < mode.get("hang", 0):
            await asyncio.Event().wait()
        await asyncio.sleep(mode.get("delay_s", 0) * draw())
        if draw() < mode.get("fail", 0):
            return web.Response(status=503)
        if draw() < mode.get("throttle", 0):
            return web.Response(status=429, headers={"Retry-After": "0"})
        if sku.startswith("missing"):
            return web.Response(status=404)
        return web.json_response({"price": float(len(sku)), "sku": sku, "more": [1]})

    async def raw(self, request: web.Request) -> web.Response:
        """Responds with the body that the mode defines."""
        return web.Response(body=str(self.mode["body"]).encode() * int(self.mode.get("times", 1)))

    async def seen(self, request: web.Request) -> web.Response:
        return web.json_response({"asked": self.asked, "headers": self.headers})

    async def set_mode(self, request: web.Request) -> web.Response:
        self.mode = await request.json()
        return web.Response()


class LookupServer:
    """A handle on the server process."""

    def __init__(self) -> None:
        (self.port,) = reserve_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.support.lookup_server", str(self.port)])
        wait_until(self._answers, "the lookup server answers")

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def set_mode(self, **mode: object) -> None:
        self._request("/mode", json.dumps(mode).encode())

    def seen(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._request("/seen"))
        return found

    def _request(self, path: str, data: bytes | None = None) -> bytes:
        with urllib.request.urlopen(self.url + path, data, timeout=PATIENCE_S) as response:
            body: bytes = response.read()
        return body

    def _answers(self) -> bool:
        try:
            self._request("/seen")
        except OSError:
            return False
        return True


@contextlib.contextmanager
def lookup_server() -> Iterator[LookupServer]:
    """Starts a server for a test and kills it afterwards."""
    server = LookupServer()
    try:
        yield server
    finally:
        server.kill()


if __name__ == "__main__":
    web.run_app(Lookup().application(), host="127.0.0.1", port=int(sys.argv[1]), print=None, handle_signals=False)
