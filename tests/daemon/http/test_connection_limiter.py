"""Strangers on the HTTP port: they are bounded in number, time and size, and whoever asks properly is answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until
from tidegate.daemon.http.connection_limiter import CONNECTIONS_MAX, HEAD_BYTES_MAX, ConnectionLease, Places
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.process.limits import raise_descriptor_limit

FLOOD = 1000
DESCRIPTORS = 512
HALF_A_REQUEST = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "

SERVER = """
import json, logging, os, resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from tidegate.daemon.http.server import HttpServer
from tidegate.process.logs import configure_logging
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.storage.local import LocalStorage
logs = configure_logging("shop", logging.INFO, "json")
storage = LocalStorage(sys.argv[2])
server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
print(server.start(), flush=True)
ended, most, written = threading.Event(), 0, 0
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
while not ended.wait(0.002):  # as the journal, next to it
    written += storage.put_if_absent(f"journal/{written:012d}.json", b"{}")
    most = max(most, len(os.listdir("/proc/self/fd")))
server.stop()
logs.close()
print(json.dumps({"written": written, "descriptors": most}))
"""


@pytest.fixture
def server() -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"))
    yield server
    server.stop()


def dial(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(data)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """The other end has hung up."""
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def ask(port: int, path: str = "/livez") -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return int(answer.status)


@pytest.mark.slow
def test_X30_a_flood_of_half_open_requests_neither_stops_probes_nor_takes_files_from_the_journal(
    tmp_path: Path,
) -> None:
    """1,000 connections against a process that may have 512 descriptors."""
    assert raise_descriptor_limit() > FLOOD + 100, "this test needs as many connections itself"
    command = [sys.executable, "-c", SERVER, str(DESCRIPTORS), str(tmp_path)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    held: list[socket.socket] = []
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        for number in range(FLOOD):
            with contextlib.suppress(ConnectionError):  # closed again already
                held.append(dial(port, HALF_A_REQUEST))
            if number % 50 == 0:
                assert ask(port) == 200
        assert [ask(port, path) for path in ("/livez", "/metrics", "/status")] == [200, 200, 200]
        told, log = process.communicate("", timeout=60)
    finally:
        process.kill()
        process.communicate()
        for connection in held:
            connection.close()
    found = json.loads(told)
    assert found["written"] > 0
    assert found["descriptors"] < DESCRIPTORS
    messages = [json.loads(line)["message"] for line in log.splitlines()]
    assert any(f"limit of {CONNECTIONS_MAX} HTTP connections" in message for message in messages), messages
    assert len(messages) <= 5, messages


def test_X30_a_request_that_does_not_come_is_not_waited_for_long(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hurry() -> bytes:
        """From this answer on."""
        server.places.head_s = 0.05
        return b""

    monkeypatch.setattr(server, "_render_metrics", hurry)
    server.places.head_s = PATIENCE_S
    kept = dial(server.start(), b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert kept.recv(4096).startswith(b"HTTP/1.1 200")
    for connection in (kept, dial(server.port), dial(server.port, HALF_A_REQUEST)):
        with connection:
            assert is_closed(connection)
    wait_until(lambda: len(server.places) == 0, "all places are free")


def test_X30_a_client_that_trickles_its_request_gets_no_more_time(server: HttpServer) -> None:
    server.places.head_s = 0.2
    with dial(server.start(), HALF_A_REQUEST) as connection:

        def trickled() -> bool:
            try:
                connection.sendall(b"x")
            except ConnectionError:
                return True
            return False

        wait_until(trickled, "the connection is closed")


def test_X30_the_head_of_a_request_is_bounded(server: HttpServer) -> None:
    with dial(server.start(), b"GET / HTTP/1.1\r\n") as connection:
        with contextlib.suppress(ConnectionError):
            for number in range(2 * HEAD_BYTES_MAX // 1000):
                connection.sendall(f"X-{number}: {'x' * 1000}\r\n".encode())
        assert is_closed(connection)
    assert ask(server.port) == 200


def test_X30_the_connection_that_has_waited_longest_makes_room(server: HttpServer) -> None:
    server.places.connections_max, server.places.head_s = 3, PATIENCE_S
    port = server.start()
    connections = [dial(port, HALF_A_REQUEST) for _ in range(3)]
    wait_until(lambda: len(server.places) == 3, "three places are taken")
    assert ask(port) == 200
    assert is_closed(connections[0])
    for connection in connections[1:]:
        connection.sendall(b"x\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    for connection in connections:
        connection.close()


def test_X30_an_answer_that_nobody_reads_holds_no_place_for_ever(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hurry() -> bytes:
        """From this answer on."""
        server.places.head_s = 0.05
        monkeypatch.setattr("tidegate.daemon.http.connection_limiter.ANSWER_S", 0.1)
        asked.set()
        return b"x" * (64 << 20)

    asked = threading.Event()
    monkeypatch.setattr(server, "_render_metrics", hurry)
    with dial(server.start(), b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        assert asked.wait(PATIENCE_S)
        wait_until(lambda: len(server.places) == 0, "it is given up")


def test_an_answer_that_is_read_slowly_arrives_whole(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def hurry() -> bytes:
        """From this answer on."""
        server.places.head_s = 0.05
        return b"x" * size

    size = 16 << 20
    monkeypatch.setattr(server, "_render_metrics", hurry)
    monkeypatch.setattr("tidegate.daemon.http.connection_limiter.ANSWER_S", PATIENCE_S)
    with dial(server.start(), b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as connection:
        wait_until(lambda: any(place._drains for place in list(server.places._taken.values())), "more time is given")
        received = 0
        while received < size:
            data = connection.recv(1 << 20)
            assert data, f"cut off after {received} bytes"
            received += len(data)


def test_X30_an_order_keeps_its_place_whoever_comes() -> None:
    places = Places(connections_max=1)
    order, other = _place(places), _place(places)
    assert places.take(order)
    order.holds = True
    assert not places.take(other)
    order.holds = False
    assert places.take(other)
    assert len(places) == 1


def _place(places: Places) -> ConnectionLease:
    return ConnectionLease(asyncio.Protocol(), places)


MALFORMED = {
    "not HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x03" * 100,
    "a long line": b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\n\r\n",
    "a header that is none": b"GET / HTTP/1.1\r\nno header\r\n\r\n",
    "two lengths": b"POST /stop HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "a chunk that is none": b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    "another version": b"GET / HTTP/9.9\r\n\r\n",
    "an escape that is none": b"GET /%zz%00 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
}


def test_X35_malformed_requests_are_one_line_for_each_kind_and_no_traceback(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = server.start()
    for _ in range(3):
        for what, request in MALFORMED.items():
            with dial(port, request) as connection:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(60)
                with contextlib.suppress(ConnectionError):
                    answer = connection.recv(4096)
                    assert not answer.startswith(b"HTTP/1.1 5"), what
    assert ask(port) == 200
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told
    assert not any(record.exc_info for record in told)
    reasons = [record.getMessage().partition(" (")[0] for record in told]
    assert len(reasons) == len(set(reasons)), reasons


def test_an_error_of_ours_is_500_with_its_traceback_in_the_log(
    server: HttpServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server._metrics, "snapshot", fail)
    with dial(server.start(), b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 500")
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.exc_info is not None
    assert told.exc_info[0] is ZeroDivisionError


@pytest.mark.parametrize(("bound", "status"), [("127.0.0.1", b"421"), ("0.0.0.0", b"200")])
def test_X33_a_page_that_gives_its_own_name_our_loopback_address_reads_nothing(bound: str, status: bytes) -> None:
    """An address that others can reach is read by them anyway, under names that only they know."""
    server = HttpServer(bound, 0, PipelineMetrics("shop", "0.1.0"))
    try:
        with dial(server.start(), b"GET /status HTTP/1.1\r\nHost: rebound.example\r\n\r\n") as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)
    finally:
        server.stop()
