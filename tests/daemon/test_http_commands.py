"""Orders to a running daemon over HTTP: who may give them, what is answered, and the commands that send them."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request
from click.testing import CliRunner

from tests.coordinator.values import IDENTITY, ME, committable, completed, handle
from tidegate.coordinator.journal import Journal
from tidegate.daemon.http import HttpServer
from tidegate.daemon.http_commands import JSON, is_local
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.running_commands import checkpoints, read_rows, savepoint, stop
from tidegate.daemon.savepoints import SavepointDone, SavepointUnavailable
from tidegate.daemon.status import Status
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, OperatorName
from tidegate.storage.local import LocalStorage

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


class Daemon:
    """Takes orders on a loop of its own."""

    pipeline = "shop"

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.asked: list[str | None] = []
        self.error: TidegateError | None = None
        self.stopped: Future[None] = Future()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    async def take_savepoint(self, directory: str | None) -> SavepointDone:
        self.asked.append(directory)
        if self.error is not None:
            raise self.error
        return SavepointDone("/mine/savepoint-shop-7-abc", CheckpointId(7), 10)

    async def stop(self) -> None:
        self.stopped.set_result(None)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
        self.loop.close()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.close()


@pytest.fixture
def server(daemon: Daemon) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
    server.start()
    server.commands.serve(daemon, daemon.loop)
    yield server
    server.stop()


def post(server: HttpServer, path: str, body: bytes, content_type: str = JSON) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=10)
    try:
        connection.request("POST", path, body, {"Content-Type": content_type})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.fixture
def file(tmp_path: Path, server: HttpServer) -> Path:
    path = tmp_path / "pipeline.yaml"
    port = server.address.rpartition(":")[2]
    path.write_text(PIPELINE.format(directory=tmp_path / "checkpoints", port=port))
    return path


def test_C15_an_order_is_carried_out_and_answered(server: HttpServer, daemon: Daemon) -> None:
    status, answer = post(server, "/savepoints", b'{"pipeline": "shop", "directory": "/mine"}')
    assert (status, answer["path"], answer["checkpoint"]) == (200, "/mine/savepoint-shop-7-abc", 7)
    assert post(server, "/savepoints", b'{"pipeline": "shop"}')[0] == 200
    assert daemon.asked == ["/mine", None]


@pytest.mark.parametrize(
    ("body", "content_type", "status", "told"),
    [
        (b'{"pipeline": "other"}', JSON, 409, "runs pipeline 'shop', not 'other'"),
        (b'{"pipeline": "shop"}', "text/plain", 415, "send application/json"),
        (b'{"pipeline": "shop"}', "application/x-www-form-urlencoded", 415, "send application/json"),
        (b"{", JSON, 400, "truncated"),
        (b'{"pipeline": "shop", "more": 1}', JSON, 400, "unknown field"),
        (b"{}", JSON, 400, "missing required field"),
    ],
)
def test_what_is_no_order_for_this_daemon_is_refused(
    server: HttpServer, daemon: Daemon, body: bytes, content_type: str, status: int, told: str
) -> None:
    for path in ("/savepoints", "/stop"):
        found, answer = post(server, path, body, content_type)
        assert (found, told in answer["message"]) == (status, True), answer
    assert daemon.asked == []
    assert not daemon.stopped.done()


def test_an_order_that_fails_is_told_with_its_reason(server: HttpServer, daemon: Daemon) -> None:
    daemon.error = SavepointUnavailable("no savepoint was taken: the pipeline is restarting")
    status, answer = post(server, "/savepoints", b'{"pipeline": "shop"}')
    assert (status, answer) == (503, {"code": "savepoint-unavailable", "message": daemon.error.message})


def test_before_the_daemon_is_up_there_is_nobody_to_take_orders() -> None:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
    server.start()
    try:
        assert post(server, "/stop", b'{"pipeline": "shop"}')[0] == 503
    finally:
        server.stop()


class _Transport:
    def __init__(self, peer: str, own: str) -> None:
        self._names = {"peername": (peer, 40000), "sockname": (own, 9095)}

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._names.get(name, default)


@pytest.mark.parametrize(
    ("peer", "own", "local"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.9.9.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.6", "10.0.0.5", False),
        ("::ffff:10.0.0.6", "10.0.0.5", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
    ],
)
def test_only_the_own_machine_may_give_orders(peer: str, own: str, local: bool) -> None:
    request = make_mocked_request("POST", "/stop", transport=_Transport(peer, own))
    assert is_local(request) is local


def test_C15_the_command_prints_the_path_and_makes_relative_directories_absolute(file: Path, daemon: Daemon) -> None:
    result = CliRunner().invoke(savepoint, [str(file), "mine"], catch_exceptions=False)
    assert (result.exit_code, result.output) == (0, "/mine/savepoint-shop-7-abc\n")
    assert daemon.asked == [str(Path("mine").absolute())]


def test_the_stop_command_waits_until_the_daemon_has_gone(
    file: Path, server: HttpServer, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    snapshot = server._metrics.snapshot

    def tell() -> Status:
        asked.set()
        return snapshot()

    monkeypatch.setattr(server._metrics, "snapshot", tell)

    def go() -> None:
        daemon.stopped.result(60)
        assert asked.wait(60)  # behind the answer to its order, which a server that ends would cut off
        server.stop()

    closer = threading.Thread(target=go)
    closer.start()
    result = CliRunner().invoke(stop, [str(file)], catch_exceptions=False)
    closer.join(90)
    assert not closer.is_alive()
    assert (result.exit_code, result.output) == (0, "stopped\n")


def test_a_daemon_that_is_not_there_is_told_with_the_address(file: Path, server: HttpServer) -> None:
    server.stop()
    result = CliRunner().invoke(savepoint, [str(file)])
    assert isinstance(result.exception, TidegateError)
    assert f"no daemon answers at {server.address}" in result.exception.message


def test_port_0_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(directory=tmp_path, port=0))
    result = CliRunner().invoke(stop, [str(path)])
    assert result.exit_code == 2
    assert "--http" in result.output
    result = CliRunner().invoke(stop, [str(path), "--http", "ftp://x"])
    assert "is no address of a daemon" in result.output


def test_the_list_of_checkpoints_needs_no_daemon_and_creates_nothing(file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "no checkpoints in" in result.output
    assert not (tmp_path / "checkpoints").exists()


def test_the_list_tells_what_is_committed_and_what_is_only_decided(file: Path, tmp_path: Path) -> None:
    journal = Journal(LocalStorage(str(tmp_path / "checkpoints")), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, states=[handle(1)], committables=[committable(1)]))
    journal.append_checkpoint(
        completed(2, states=[handle(2)], committables=[committable(2, producer_id=101)], final=True)
    )
    rows = read_rows(str(tmp_path / "checkpoints"))
    assert [(row.id, row.kind, row.output, row.size_bytes) for row in rows] == [
        (1, "checkpoint", "committed", 10),
        (2, "final", "decided, 1 transactions not confirmed yet", 10),
    ]
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "1970-01-01 00:00:01" in result.output
    listed = CliRunner().invoke(checkpoints, [str(file), "--format", "json"], catch_exceptions=False)
    assert [row["id"] for row in json.loads(listed.output)] == [1, 2]


def test_the_list_tells_the_begin_and_a_savepoint_that_was_not_finished(file: Path, tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "checkpoints"))
    journal = Journal(storage, ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    begin = msgspec.structs.replace(completed(1), starts=((OperatorName("orders"), "latest"),))
    journal.append_checkpoint(begin)
    storage.put("savepoints/savepoint-shop-2-0123/state/00000-totals-0.state", b"state")
    rows = read_rows(str(tmp_path / "checkpoints"))
    assert [(row.id, row.kind) for row in rows] == [(1, "begin"), (None, "unfinished")]
    result = CliRunner().invoke(checkpoints, [str(file)], catch_exceptions=False)
    assert "/savepoints/savepoint-shop-2-0123 (can be deleted" in result.output
