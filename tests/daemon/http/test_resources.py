"""Resources over real HTTP: queries, entity tags, roles, one reading for many requests, errors in JSON."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest

from tests.daemon.http.orders import TOKEN, Daemon
from tests.waiting import PATIENCE_S, wait_until
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused, parse_query
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics


class Rows(ResourceQuery, frozen=True):
    step: str
    rows: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10


class Taken(msgspec.Struct):
    step: str
    rows: int


class Readings:
    """Counts what is read, and lets `slow` wait."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = threading.Event()

    async def read(self, query: Rows) -> Taken:
        self.count += 1
        if query.step == "gone":
            raise ResourceRefused(404, "no-step", "there is no step 'gone': orders")
        if query.step == "slow":
            await asyncio.to_thread(self.go_on.wait, PATIENCE_S)
        return Taken(query.step, query.rows)


@pytest.fixture
def readings() -> Readings:
    return Readings()


def resources(readings: Readings) -> list[Resource[Any]]:
    rows = Resource(name="rows", summary="Rows.", answer=Taken, query=Rows, read=readings.read)
    tap = Resource(name="tap", summary="Rows.", answer=Taken, query=Rows, read=readings.read, operates=True)
    return [rows, tap]


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.close()


@pytest.fixture
def server(readings: Readings) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"), resources=resources(readings))
    server.start()
    yield server
    server.stop()


def ask(
    server: HttpServer, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_a_query_becomes_a_value_and_the_answer_is_json(server: HttpServer) -> None:
    status, headers, body = ask(server, "/api/v1/rows?step=orders&rows=3")
    assert (status, json.loads(body)) == (200, {"step": "orders", "rows": 3})
    assert headers["Content-Type"] == "application/json"
    assert headers["Cache-Control"] == "no-store"
    assert json.loads(ask(server, "/api/v1/rows/?step=or%20ders")[2]) == {"step": "or ders", "rows": 10}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("step=a&limit=1", "/api/v1/rows has no parameter 'limit': it takes step, rows"),
        ("step=a&step=b", "/api/v1/rows: parameter 'step' is given 2 times: give it once"),
        ("rows=1", "/api/v1/rows: give the parameter step"),
        ("step=a&rows=many", "/api/v1/rows: parameter 'rows': 'many' is not a whole number"),
        ("step=a&rows=101", "/api/v1/rows: parameter 'rows': Expected `int` <= 100"),
    ],
)
def test_a_wrong_query_is_refused_with_the_parameter_and_a_remedy(
    server: HttpServer, readings: Readings, query: str, message: str
) -> None:
    status, _, body = ask(server, f"/api/v1/rows?{query}")
    assert (status, json.loads(body)) == (400, {"code": "bad-request", "message": message})
    assert readings.count == 0


def test_a_resource_without_parameters_says_so() -> None:
    with pytest.raises(ResourceRefused, match="/api/v1/x has no parameter 'a': it takes none"):
        parse_query(Resource(name="x", summary="", answer=Taken, read=lambda _query: asyncio.sleep(0)), [("a", "1")])


class Key(ResourceQuery, frozen=True):
    key: tuple[str, ...] = ()


def test_a_parameter_may_be_repeated_if_its_field_is_a_tuple() -> None:
    state: Resource[Key] = Resource(
        name="state",
        summary="",
        answer=Taken,
        query=Key,
        read=lambda _query: asyncio.sleep(0),
        operates=lambda q: bool(q.key),
    )
    assert parse_query(state, [("key", "sku=ink"), ("key", "region=eu")]).key == ("sku=ink", "region=eu")
    assert parse_query(state, [("key", "sku=ink")]).key == ("sku=ink",)
    assert state.needs_operator(Key(key=("a",)))
    assert not state.needs_operator(Key())


def test_the_same_answer_is_304_for_who_has_it(server: HttpServer) -> None:
    _, headers, _ = ask(server, "/api/v1/rows?step=orders")
    tag = headers["ETag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, again, body = ask(server, "/api/v1/rows?step=orders", If_None_Match=known)
        assert (status, again["ETag"], body) == (304, tag, b""), known
    assert ask(server, "/api/v1/rows?step=other", If_None_Match=tag)[0] == 200


def test_head_has_the_head_of_get(server: HttpServer) -> None:
    status, headers, body = ask(server, "/api/v1/rows?step=orders")
    got = ask(server, "/api/v1/rows?step=orders", "HEAD")
    assert (got[0], got[1]["ETag"], got[1]["Content-Length"], got[2]) == (status, headers["ETag"], str(len(body)), b"")


def test_requests_that_arrive_meanwhile_share_one_reading(server: HttpServer, readings: Readings) -> None:
    answers: list[int] = []
    asking = [
        threading.Thread(target=lambda: answers.append(ask(server, "/api/v1/rows?step=slow")[0])) for _ in range(5)
    ]
    for one in asking:
        one.start()
    wait_until(lambda: len(server.places) == 5, "all are connected")
    readings.go_on.set()
    for one in asking:
        one.join(PATIENCE_S)
    assert answers == [200] * 5
    assert 1 <= readings.count < 5


def test_what_is_polled_is_read_once_for_viewers_that_ask_one_after_the_other(readings: Readings) -> None:
    kept = Resource(name="rows", summary="", answer=Taken, query=Rows, read=readings.read, kept_s=3600.0)
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0"), resources=[kept])
    server.start()
    try:
        tags = {ask(server, "/api/v1/rows?step=orders")[1]["ETag"] for _ in range(3)}
        assert (len(tags), readings.count) == (1, 1)
        assert ask(server, "/api/v1/rows?step=other")[0] == 200
        assert readings.count == 2
    finally:
        server.stop()


def test_a_refusal_of_a_resource_is_its_answer(server: HttpServer) -> None:
    status, _, body = ask(server, "/api/v1/rows?step=gone")
    assert (status, json.loads(body)["code"]) == (404, "no-step")


def test_unknown_paths_and_methods_are_answered_in_json(server: HttpServer) -> None:
    status, _, body = ask(server, "/api/v1/nothing")
    assert (status, json.loads(body)["code"]) == (404, "not-found")
    status, headers, body = ask(server, "/api/v1/rows?step=a", "DELETE")
    assert (status, json.loads(body)["message"]) == (405, "this path takes GET, HEAD")
    assert headers["Allow"] == "GET, HEAD"


def test_what_shows_records_needs_the_role_operate_and_is_logged(
    server: HttpServer, daemon: Daemon, readings: Readings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = "/api/v1/tap?step=orders"
    assert ask(server, path)[0] == 503
    server.commands.serve(daemon, daemon.loop, TOKEN)
    server.read_token = "reading"
    assert ask(server, path, Authorization=SCHEME + "reading")[0] == 401
    assert ask(server, path, Authorization=SCHEME + TOKEN, Origin="http://evil.example")[0] == 403
    assert ask(server, path, Authorization=SCHEME + TOKEN, Sec_Fetch_Site="cross-site")[0] == 403
    assert readings.count == 0
    assert ask(server, path, Authorization=SCHEME + TOKEN, Sec_Fetch_Site="same-origin")[0] == 200
    lines = [record.message for record in caplog.records if "/api/v1/tap" in record.message]
    assert "reading /api/v1/tap?step=orders from 127.0.0.1: done" in lines
    assert TOKEN not in caplog.text


def test_resources_have_one_name_each(readings: Readings) -> None:
    with pytest.raises(ValueError, match="same name"):
        HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0"), resources=resources(readings) * 2)
