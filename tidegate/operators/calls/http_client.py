"""HTTP lookups as a target of calls, by aiohttp: one session per subtask; and the answers as columns, by the rules of
JSON sources. Imported only where operators run.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import aiohttp
import msgspec
from typing_extensions import override
from yarl import URL

from tidegate import __version__
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.operators.calls.caller import CallTarget, Refused, Unavailable
from tidegate.user_code.failure import SHOWN_MAX, name_error, show_value

BYTES_MAX: Final = 32 << 20
"""The maximum size of one subtask's answers with their URLs."""
OVERHEAD_BYTES: Final = 300


class AnswerCache:
    """A cache that evicts the oldest answers when it is full. It keeps nothing if `lifetime_s` is 0."""

    def __init__(self, lifetime_s: float, bytes_max: int = BYTES_MAX) -> None:
        self._lifetime_s = lifetime_s
        self._bytes_max = self._room = bytes_max
        self._entries: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of cached answers, including expired ones."""
        return len(self._entries)

    @property
    def keeps(self) -> bool:
        """True if it keeps anything at all."""
        return self._lifetime_s > 0

    def find(self, url: str, now_s: float) -> tuple[bytes | None] | None:
        """Returns the answer, wrapped because it may be None; None if there is no answer or it has expired."""
        found = self._entries.get(url)
        if found is None:
            return None
        if found[0] <= now_s:
            self._forget(url)
            return None
        return (found[1],)

    def put(self, url: str, answer: bytes | None, now_s: float) -> None:
        """Caches an answer from now on, unless it is larger than the cache."""
        size = _size(url, answer)
        if not self.keeps or size > self._bytes_max:
            return
        if url in self._entries:
            self._forget(url)
        while size > self._room:
            self._forget(next(iter(self._entries)))
        self._entries[url] = (now_s + self._lifetime_s, answer)
        self._room -= size

    def _forget(self, url: str) -> None:
        _, answer = self._entries.pop(url)
        self._room += _size(url, answer)


def _size(url: str, answer: bytes | None) -> int:
    return OVERHEAD_BYTES + len(url) + (0 if answer is None else len(answer))


BODY_BYTES_MAX: Final = 1 << 20
REDIRECTS_MAX: Final = 5
RETRY_AFTER_MAX_S: Final = 3600.0
URL_SHOWN_MAX: Final = 200
_AGAIN: Final = frozenset({408, 425, 429})
_MISSING: Final = frozenset({404, 410})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class HttpTarget(CallTarget):
    """An HTTP server. A request is a URL, and an answer is the body, or None if the server has no such resource.

    TLS certificates are verified. Cookies are not kept, and the environment's proxies are not used. Compressed bodies
    are not requested, so that the limit of a body also limits memory.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        cache_s: float,
        connections_max: int,
        *,
        missing_fails: bool = False,
        is_readable: Callable[[bytes], bool] = lambda _body: True,
    ) -> None:
        """An unreadable answer is not cached: a brief fault of the server must not last as long as the cache."""
        self._headers = {"Accept": "application/json", "User-Agent": f"tidegate/{__version__}", **headers}
        self._cache = AnswerCache(cache_s)
        self._connections_max = connections_max
        self._missing_fails = missing_fails
        self._is_readable = is_readable
        self._asking: dict[str, asyncio.Future[bytes | None]] = {}
        self._session: aiohttp.ClientSession | None = None

    @override
    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._connections_max),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={**self._headers, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),  # each attempt has its own timeout
            auto_decompress=False,
        )

    @override
    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @override
    async def ask(self, request: object) -> object:
        """Shares one request between rows that request the same URL at the same time, if answers are cached."""
        assert isinstance(request, str)
        if not self._cache.keeps:
            return await self._fetch(request)
        clock = asyncio.get_running_loop().time
        while True:
            found = self._cache.find(request, clock())
            if found is not None:
                return found[0]
            leader = self._asking.get(request)
            if leader is None:
                return await self._lead(request)
            await asyncio.wait({leader})
            if not leader.cancelled():
                return leader.result()

    async def _lead(self, url: str) -> bytes | None:
        loop = asyncio.get_running_loop()
        shared: asyncio.Future[bytes | None] = loop.create_future()
        self._asking[url] = shared
        try:
            answer = await self._fetch(url)
        except asyncio.CancelledError:
            shared.cancel()  # this call has timed out, later ones have not: one of them requests again
            raise
        except BaseException as error:
            same = isinstance(error, Refused | Unavailable)
            shared.set_exception(error if same else Unavailable(f"{type(error).__name__}: {error}"))
            shared.exception()  # marks it as retrieved, since there may be no waiter
            raise
        else:
            if answer is None or self._is_readable(answer):
                self._cache.put(url, answer, loop.time())
            shared.set_result(answer)
            return answer
        finally:
            del self._asking[url]

    async def _fetch(self, url: str) -> bytes | None:
        """Follows redirects to the same host only, because the headers may contain a secret."""
        assert self._session is not None
        here = URL(url, encoded=True)
        for _ in range(REDIRECTS_MAX + 1):
            try:
                async with self._session.get(here, allow_redirects=False) as response:
                    if response.status not in _REDIRECTS:
                        return await self._read(response)
                    there = here.join(URL(response.headers.get("Location", "")))
            except aiohttp.ClientError as error:
                raise Unavailable(f"{_shown(here)}: {name_error(error)}") from error
            if there.origin() != here.origin():
                raise Refused(f"{_shown(here)} redirects to another host, {there.origin()}: write that one into `url`")
            here = there
        raise Refused(f"{_shown(URL(url, encoded=True))} redirects more than {REDIRECTS_MAX} times")

    async def _read(self, response: aiohttp.ClientResponse) -> bytes | None:
        status = response.status
        if status == 204 or (status in _MISSING and not self._missing_fails):
            return None
        what = f"{_shown(response.url)}: {status} {response.reason or ''}".rstrip()
        if status in _AGAIN or status >= 500:
            raise Unavailable(what, derive_retry_after_s(response.headers.get("Retry-After"), dt.datetime.now(dt.UTC)))
        if not 200 <= status < 300:
            raise Refused(what)
        body = bytearray()
        async for part in response.content.iter_any():
            body += part
            if len(body) > BODY_BYTES_MAX:
                message = f"{_shown(response.url)}: the answer has more than {BODY_BYTES_MAX >> 20} MiB"
                raise Refused(message, FailureKind.RESULT_TOO_LARGE)
        return bytes(body)


def derive_retry_after_s(text: str | None, now: dt.datetime) -> float:
    """Returns the wait from the header `Retry-After`, in seconds or as a date; 0 if it is missing or invalid."""
    if text is None:
        return 0.0
    try:
        wait_s = float(text) if text.strip().isdigit() else (_date(text) - now).total_seconds()
    except (ValueError, OverflowError):
        return 0.0
    return min(RETRY_AFTER_MAX_S, max(0.0, wait_s))


def _date(text: str) -> dt.datetime:
    found = email.utils.parsedate_to_datetime(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


def _shown(url: URL) -> str:
    text = str(url)
    return text if len(text) <= URL_SHOWN_MAX else f"{text[:URL_SHOWN_MAX]}..."


class JsonAnswerDecoder:
    """Decodes the bodies of HTTP answers. A missing field is NULL; None is a row of NULLs."""

    def __init__(self, declared: Columns, output: Columns) -> None:
        self._decoder = JsonDecoder(declared, output)

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones."""
        bodies = [b"{}" if answer is None else answer for answer in answers]
        decoded = self._decoder.decode_values(bodies)  # type: ignore[arg-type]  # the target returns bytes
        failures = [
            msgspec.structs.replace(one, message=f"the server answered {_body(bodies[one.row])}: {one.message}")
            for one in decoded.failures
        ]
        return Decoded(decoded.frame, failures)


def _body(answer: object) -> str:
    """Returns the beginning of an answer, so that messages distinguish the server's text from the record."""
    assert isinstance(answer, bytes)
    return show_value(answer[: SHOWN_MAX + 1].decode("utf-8", "backslashreplace"))
