"""HTTP lookups against a real server in a process of its own."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator

import pytest

from tests.support.lookup_server import LookupServer, lookup_server
from tests.waiting import PATIENCE_S
from tidegate.formats.failures import FailureKind
from tidegate.operators.calls.caller import Refused, Unavailable
from tidegate.operators.calls.http_client import BODY_BYTES_MAX, HttpTarget, derive_retry_after_s

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[LookupServer]:
    with lookup_server() as server:
        yield server


@pytest.fixture
def server(running: LookupServer) -> LookupServer:
    running.set_mode()
    return running


def ask(
    do: Callable[[HttpTarget], Awaitable[object]],
    cache_s: float = 0.0,
    *,
    missing_fails: bool = False,
    is_readable: Callable[[bytes], bool] = bool,
    **headers: str,
) -> object:
    async def run() -> object:
        target = HttpTarget(headers, cache_s, 10, missing_fails=missing_fails, is_readable=is_readable)
        await target.open()
        try:
            return await do(target)
        finally:
            await target.close()

    return asyncio.run(run())


def test_the_answer_is_the_body(server: LookupServer) -> None:
    answer = ask(lambda target: target.ask(f"{server.url}/price/a%2Fb"))
    assert answer == b'{"price": 3.0, "sku": "a/b", "more": [1]}'


def test_headers_are_sent(server: LookupServer) -> None:
    ask(lambda target: target.ask(f"{server.url}/price/x"), Authorization="Bearer 7")
    headers = server.seen()["headers"]
    assert headers["Authorization"] == "Bearer 7"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"].startswith("tidegate/")


def test_what_the_server_does_not_have_is_none_or_refused(server: LookupServer) -> None:
    url = f"{server.url}/price/missing"
    assert ask(lambda target: target.ask(url)) is None
    with pytest.raises(Refused, match="/price/missing: 404 Not Found"):
        ask(lambda target: target.ask(url), missing_fails=True)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_an_answer_that_may_change_is_worth_another_attempt(server: LookupServer, status: int) -> None:
    server.set_mode(status=status, headers={"Retry-After": "3"})
    with pytest.raises(Unavailable, match=str(status)) as caught:
        ask(lambda target: target.ask(f"{server.url}/price/x"))
    assert caught.value.retry_after_s == 3


@pytest.mark.parametrize("status", [400, 401, 403, 422])
def test_an_answer_that_stays_is_refused(server: LookupServer, status: int) -> None:
    server.set_mode(status=status)
    with pytest.raises(Refused, match=str(status)):
        ask(lambda target: target.ask(f"{server.url}/price/x"))


def test_a_redirect_to_another_host_is_refused_and_gets_no_headers(server: LookupServer) -> None:
    with lookup_server() as other:
        server.set_mode(status=302, headers={"Location": f"{other.url}/price/x"})
        with pytest.raises(Refused, match="redirects to another host"):
            ask(lambda target: target.ask(f"{server.url}/price/x"), Authorization="secret")
        assert other.seen()["headers"] == {}


def test_a_redirect_to_the_same_host_is_followed(server: LookupServer) -> None:
    server.set_mode(status=301, headers={"Location": "/raw"}, body="{}")
    assert ask(lambda target: target.ask(f"{server.url}/price/x")) == b"{}"
    server.set_mode(status=301, headers={"Location": "/price/x"})
    with pytest.raises(Refused, match="more than 5 times"):
        ask(lambda target: target.ask(f"{server.url}/price/x"))


def test_an_answer_that_is_too_large_is_refused(server: LookupServer) -> None:
    server.set_mode(body="x" * 1024, times=1 + BODY_BYTES_MAX // 1024)
    with pytest.raises(Refused, match="more than 1 MiB") as caught:
        ask(lambda target: target.ask(f"{server.url}/raw"))
    assert caught.value.kind is FailureKind.RESULT_TOO_LARGE


def test_cached_answers_are_not_asked_for_again(server: LookupServer) -> None:
    async def several(target: HttpTarget) -> object:
        first = await asyncio.gather(*(target.ask(f"{server.url}/price/cached") for _ in range(5)))
        return [*first, await target.ask(f"{server.url}/price/cached")]

    answers = ask(several, cache_s=60.0)
    assert answers == [b'{"price": 6.0, "sku": "cached", "more": [1]}'] * 6
    assert server.seen()["asked"]["/price/cached"] == 1


def test_an_answer_that_nobody_can_read_is_not_kept(server: LookupServer) -> None:
    """A proxy that says for a moment that it is back soon must not make records bad for as long as the cache lasts."""

    async def several(target: HttpTarget) -> object:
        return [await target.ask(f"{server.url}/price/unread") for _ in range(3)]

    answers = ask(several, cache_s=60.0, is_readable=lambda body: server.seen()["asked"]["/price/unread"] > 1)
    assert isinstance(answers, list)
    assert len(answers) == 3
    assert server.seen()["asked"]["/price/unread"] == 2


def test_without_a_cache_each_row_has_its_own_request(server: LookupServer) -> None:
    async def several(target: HttpTarget) -> object:
        return await asyncio.gather(*(target.ask(f"{server.url}/price/twice") for _ in range(2)))

    ask(several)
    assert server.seen()["asked"]["/price/twice"] == 2


def test_a_shared_request_that_fails_fails_all_that_share_it(server: LookupServer) -> None:
    async def several(target: HttpTarget) -> object:
        url = f"{server.url}/price/x"
        return await asyncio.gather(target.ask(url), target.ask(url), return_exceptions=True)

    server.set_mode(status=503)
    answers = ask(several, cache_s=60.0)
    assert isinstance(answers, list)
    assert [type(one) for one in answers] == [Unavailable, Unavailable]


def test_a_row_whose_shared_request_ran_out_of_time_has_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came later than the one that asked: it has not waited for as long."""
    asked: list[str] = []

    async def fetch(_target: HttpTarget, url: str) -> bytes | None:
        asked.append(url)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return b"{}"

    async def scenario() -> list[object]:
        target = HttpTarget({}, 60.0, 10)
        first = asyncio.create_task(target.ask("http://prices/x"))
        await asyncio.sleep(0)
        others = [asyncio.create_task(target.ask("http://prices/x")) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        return await asyncio.gather(*others, return_exceptions=True)

    monkeypatch.setattr(HttpTarget, "_fetch", fetch)
    assert asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S)) == [b"{}", b"{}"]
    assert len(asked) == 2


def test_retry_after_is_seconds_or_a_date() -> None:
    now = dt.datetime(2026, 11, 22, 12, 0, 0, tzinfo=dt.UTC)
    assert derive_retry_after_s(None, now) == 0
    assert derive_retry_after_s("7", now) == 7
    assert derive_retry_after_s("Sun, 22 Nov 2026 12:00:09 GMT", now) == 9
    assert derive_retry_after_s("Sun, 22 Nov 2026 11:00:00 GMT", now) == 0
    assert derive_retry_after_s("soon", now) == 0
    assert derive_retry_after_s("999999999", now) == 3600
    assert derive_retry_after_s("Thu, 01 Jan 99999999999 00:00:00 GMT", now) == 0


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"^http://127\.0\.0\.1:1/price/x: ClientConnectorError: Cannot connect"):
        ask(lambda target: target.ask("http://127.0.0.1:1/price/x"))
