"""Asynchronous steps against a real server that is slow, fails, hangs and disappears, with kills: nothing is lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.lookup_server import LookupServer, lookup_server
from tests.task.async_lives import COLUMNS, NAME, Lives, history_of
from tidegate.datatypes import DOUBLE
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.calls.caller import CallPolicy
from tidegate.operators.calls.spec import CallOperator
from tidegate.operators.kinds.async_calls import AsyncOperator
from tidegate.operators.kinds.http_calls import HttpOperator, parse_url
from tidegate.user_code.describe import CodeDescription

pytestmark = pytest.mark.slow

POLICY = CallPolicy(timeout_ms=150, retries=60, backoff_ms=5, budget_ms=30_000)
SERVER = "LOOKUP_SERVER"
PARTITIONS, COUNT = 4, 250


class Price:
    """A user's class: asks the server."""

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(os.environ[SERVER])

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        async with self._session.get(f"/price/{row['n']}", raise_for_status=True) as response:
            return {"price": (await response.json())["price"]}

    async def close(self) -> None:
        await self._session.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LookupServer]:
    with lookup_server() as running:
        monkeypatch.setenv(SERVER, running.url)
        yield running


def make(kind: str, server: LookupServer, *, ordered: bool) -> CallOperator:
    common: dict[str, Any] = {
        "name": NAME,
        "answers": (("price", DOUBLE),),
        "output": (*COLUMNS, ("price", DOUBLE)),
        "ordered": ordered,
        "capacity": 20,
        "policy": POLICY,
        "bad_records": BadRecordPolicy.FAIL,
        "input": COLUMNS,
    }
    if kind == "async":
        return AsyncOperator(code=CodeDescription(reference=f"{__name__}:Price", digest=""), **common)
    url = parse_url(f"{server.url}/price/{{n}}")
    return HttpOperator(url=url, headers={}, cache_ms=0, missing_fails=True, **common)


@pytest.mark.parametrize(
    ("kind", "ordered", "exchanged"), [("async", True, True), ("http", True, False), ("http", False, True)]
)
def test_nothing_is_lost_or_written_twice_and_order_is_kept_where_it_is_promised(
    server: LookupServer, kind: str, ordered: bool, exchanged: bool
) -> None:
    history = history_of(PARTITIONS, COUNT)
    lives = Lives(lambda: make(kind, server, ordered=ordered), history, exchanged=exchanged, seed=11)
    server.set_mode(delay_s=0.01)
    lives.live(2, 2, turns=20)
    server.set_mode(delay_s=0.02, fail=0.3, throttle=0.1)
    lives.live(2, 3, turns=20)
    server.set_mode(hang=0.2)
    lives.live(2, 2, turns=20)
    server.kill()
    lives.live(2, 1, turns=20)
    server.start()
    lives.finish(2)
    assert lives.committed() == Counter(row for rows in history.values() for row in rows)
    assert lives.restored
    if ordered:
        assert lives.order_violations() == []


def test_nothing_is_lost_when_the_parallelism_changes_with_rows_in_flight(server: LookupServer) -> None:
    history = history_of(PARTITIONS, COUNT)
    lives = Lives(lambda: make("http", server, ordered=True), history, exchanged=True, seed=12)
    for parallelism in (2, 4, 1, 3):
        server.set_mode(delay_s=0.02, fail=0.2)
        lives.live(parallelism, 2, turns=15)
    lives.finish(2)
    assert lives.committed() == Counter(row for rows in history.values() for row in rows)
    assert lives.restored
