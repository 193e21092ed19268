"""A daemon that only takes orders, and requests to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from tests.waiting import PATIENCE_S
from tidegate.daemon.checkpoint_requests import CheckpointDone, SavepointDone
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.status import Status
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.spark.work_directory import WorkDirectory

PIPELINE = """
version: 1
name: shop
kafka: {{bootstrap.servers: localhost:9092}}
checkpoints: {{directory: file://{directory}}}
http: {{port: {port}}}
sources:
  orders: {{topic: orders, format: raw}}
sinks:
  out: {{from: orders, topic: out, format: raw}}
"""


TOKEN = "the daemon's very own token"
ORDER = b'{"pipeline": "shop"}'


class Daemon:
    """Takes orders on a loop of its own."""

    pipeline = "shop"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.asked: list[str | None] = []
        self.checkpoints = 0
        self.error: TidegateError | None = None
        self.stopped: Future[None] = Future()
        self.work: WorkDirectory | None = None
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    async def take_checkpoint(self) -> CheckpointDone:
        self.checkpoints += 1
        if self.error is not None:
            raise self.error
        return CheckpointDone(CheckpointId(7), 35, 10)

    async def take_savepoint(self, directory: str | None) -> SavepointDone:
        self.asked.append(directory)
        if self.error is not None:
            raise self.error
        return SavepointDone("/mine/savepoint-shop-7-abc", CheckpointId(7), 10)

    async def stop(self) -> None:
        self.stopped.set_result(None)

    def close(self) -> None:
        if self.work is not None:
            self.work.remove()
        if self.loop.is_closed():
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE_S)
        self.loop.close()


def post(server: HttpServer, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """As a command does it, but for the headers (`content_type` is `Content-Type`); an empty one is left out."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=PATIENCE_S)
    given = {"Content-Type": JSON, "Authorization": SCHEME + TOKEN}
    given |= {name.replace("_", "-").title(): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, {name: value for name, value in given.items() if value})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def ending(server: HttpServer, daemon: Daemon) -> threading.Thread:
    """The server goes once it was asked to stop, and its answer was read."""

    def go() -> None:
        daemon.stopped.result(60)
        server.stop()

    closer = threading.Thread(target=go)
    closer.start()
    return closer


@contextmanager
def ending_once_looked_at(daemon: Daemon, server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server ends after the order to stop, and after somebody has asked how that goes: its end would cut off the
    answer to the order. Both have happened when this is over.
    """
    asked = threading.Event()
    snapshot = server._metrics.snapshot

    def tell() -> Status:
        asked.set()
        return snapshot()

    monkeypatch.setattr(server._metrics, "snapshot", tell)

    def go() -> None:
        daemon.stopped.result(60)
        assert asked.wait(60)
        server.stop()

    closer = threading.Thread(target=go)
    closer.start()
    try:
        yield
    finally:
        looked = asked.is_set()
        asked.set()
        closer.join(90)
    assert looked
    assert not closer.is_alive()
