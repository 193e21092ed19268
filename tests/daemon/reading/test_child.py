"""A process that reads for a request is bounded in time, in what it answers, and in number, and never outlives it."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import find_descendants
from tests.waiting import wait_until
from tidegate.daemon.http.admission import HttpRefusal
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.reading.child import ChildReader

MODULE = "tests.daemon.reading.small_reader"


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process does not look for modules in its directory."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    yield
    assert not children(), "all processes have ended"


def children() -> list[int]:
    return [one.pid for one in find_descendants(os.getpid()) if MODULE in one.command]


def reader(**bounds: Any) -> ChildReader[Any]:
    return ChildReader(MODULE, dict[str, Any], {"lost": 404}, **bounds)


def refusal(order: str, one: ChildReader[Any]) -> HttpRefusal:
    with pytest.raises(ResourceRefused) as refused:
        asyncio.run(one.read(order))
    return refused.value.refusal


def test_an_answer_comes_from_another_process_whatever_it_prints() -> None:
    answer = asyncio.run(reader().read("talk"))
    assert (answer["order"], answer["parent"]) == ("talk", os.getpid())
    assert answer["pid"] != os.getpid()


def test_errors_have_the_status_of_their_code() -> None:
    assert refusal("refuse", reader()) == (404, "lost", "there is no such thing")
    assert refusal("refuse", ChildReader(MODULE, dict)).status == 503


def test_a_process_that_breaks_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = refusal("crash", reader())
    assert (found.status, found.code) == (500, "internal-error")
    assert "a bug" not in found.message
    assert "ended with code 1: ValueError: a bug" in caplog.text


def test_a_process_that_does_not_end_is_killed() -> None:
    assert refusal("wait", reader(deadline_s=0.05))[:2] == (503, "too-slow")


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    assert refusal("much", reader(answer_bytes_max=10_000))[:2] == (503, "too-large")


def test_there_is_one_process_at_a_time_and_it_ends_with_its_request() -> None:
    async def story() -> None:
        one = reader()
        first = asyncio.create_task(one.read("wait"))
        await asyncio.sleep(0)
        with pytest.raises(ResourceRefused, match="another request is in progress"):
            await one.read("tell")
        await asyncio.to_thread(wait_until, lambda: bool(children()), "the process has started")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await one.read("tell"))["order"] == "tell"

    asyncio.run(story())


def test_a_process_ends_with_the_server_that_has_started_it() -> None:
    one = reader()

    async def read(_query: ResourceQuery) -> object:
        return await one.read("wait")

    resource = Resource(name="slow", summary="Never ends.", answer=dict, read=read)
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"), resources=[resource])
    server.start()
    client = http.client.HTTPConnection("127.0.0.1", server.port)
    try:
        client.request("GET", "/api/v1/slow")
        wait_until(lambda: bool(children()), "the process has started")
        server.stop()
        assert not children()
    finally:
        client.close()
        server.stop()
