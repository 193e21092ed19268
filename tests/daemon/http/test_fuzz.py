"""Bytes that are nearly a request, or none at all: the port answers or hangs up, gives no order, and goes on."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
from collections.abc import Iterator

import pytest

from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics

CASES, TOGETHER = 400, 50
WHOLE = (
    b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/openmetrics-text\r\n\r\n",
    b'GET /api/v1/history?after_ms=1&step=a%20b HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: "a", W/"b"\r\n\r\n',
    b"HEAD /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nIf-None-Match: *\r\n\r\n",
    b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /savepoints HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
)
STRANGE = (
    b"\x00",
    b"\r\n",
    b"\n",
    b":",
    b"%00",
    b"%ff%ed%a0%80",
    b"../",
    b"\xff\xfe",
    b" ",
    b"HTTP/9.9",
    b"Content-Length: -1\r\n",
    b"A" * 9000,
)


def spoil(dice: random.Random) -> bytes:
    """A request with pieces left out, doubled, changed and put in."""
    data = bytearray(dice.choice(WHOLE))
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(4):
            case 0:
                del data[at : at + dice.randint(1, 20)]
            case 1:
                data[at:at] = dice.choice(STRANGE)
            case 2:
                data[at : at + 1] = bytes([dice.randrange(256)])
            case _:
                data[at:at] = data[: dice.randint(1, 40)]
    return bytes(data)


def send(port: int, requests: list[bytes]) -> list[bytes]:
    """The whole answers, each on a connection of its own, which the other end closes."""
    connections = [socket.create_connection(("127.0.0.1", port), 30) for _ in requests]
    answers = []
    for connection, data in zip(connections, requests, strict=True):
        with contextlib.suppress(ConnectionError):  # it has hung up before everything was sent
            connection.sendall(data)
    for connection in connections:
        answer = b""
        with connection, contextlib.suppress(ConnectionError):
            while more := connection.recv(65536):
                answer += more
        answers.append(answer)
    return answers


@pytest.fixture
def server() -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
    server.places.head_s = 0.2
    server.start()
    yield server
    server.stop()


def test_spoilt_requests_cost_nothing_but_an_answer(server: HttpServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    dice = random.Random(20261123)
    statuses = set()
    for _ in range(CASES // TOGETHER):
        for answer in filter(None, send(server.port, [spoil(dice) for _ in range(TOGETHER)])):
            assert answer.startswith(b"HTTP/"), answer[:100]
            statuses.add(int(answer[9:12]))
    assert {200, 400, 404} <= statuses <= {200, 304, 400, 401, 403, 404, 405, 413, 417, 421, 503}
    assert send(server.port, [WHOLE[0]])[0].startswith(b"HTTP/1.1 200 ")
    assert not [record for record in caplog.records if record.exc_info or "internal error" in record.message]
    assert len(caplog.records) < CASES / 2, "what repeats is counted, not written"
