"""Requests to a registry: connections are reused, time and bytes are bounded, and requests are retried where useful.

The peer is not trusted. Bodies have a size limit, redirects are rejected (they would carry credentials along),
compressed bodies are not requested, and only JSON is accepted as an answer. A request is sent to each address in turn,
with growing pauses between the rounds. All requests of the interface are idempotent.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from yarl import URL

from tidegate import __version__
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.errors import UNDECODABLE, TidegateError, describe_cause
from tidegate.storage.stamps import Renewed


class RegistryUnavailable(TidegateError):
    """The registry does not answer or is not ready; a retry may succeed."""

    code = "registry-unavailable"
    exit_code = 1
    retriable = True


class RegistryRefused(TidegateError):
    """The registry has rejected a request, and would reject a retry. `error_code` is the registry's, 0 for none."""

    code = "registry-refused"
    exit_code = 2
    retriable = False

    def __init__(self, message: str, *, error_code: int = 0, remedy: str = "", setting: str = "") -> None:
        super().__init__(message, error_code=error_code, setting=setting)
        self.error_code, self.remedy, self.setting = error_code, remedy, setting


class RegistryPathMissing(RegistryRefused):
    """A 404 without the registry's own code: the registry lacks this part of the interface, or is not a registry."""


class SchemaMissing(RegistryRefused):
    """The registry does not have a schema with this id, this subject, or this version."""

    code = "schema-missing"


class SchemaIncompatible(RegistryRefused):
    """The registry rejects a schema as incompatible with a subject."""

    code = "schema-incompatible"


logger = logging.getLogger(__name__)

BODY_BYTES_MAX: Final = 4 << 20
CONNECTIONS_MAX: Final = 8
PAUSES_S: Final = (0.0, 0.2, 1.0)
"""Pause before each round of a request."""
MESSAGE_CHARACTERS_MAX: Final = 2000
MEDIA: Final = "application/vnd.schemaregistry.v1+json"
MISSING: Final = frozenset({40401, 40402, 40403})
"""The registry's codes for a missing subject, version or schema. A 404 without one means an unknown path."""
_AGAIN: Final = frozenset({408, 425, 429})
_BROKEN_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""TLS errors that only mean that the connection has ended."""


class _RegistryError(msgspec.Struct):
    """The error message of the registry."""

    error_code: int = 0
    message: str = ""


class _Hung(RegistryUnavailable):
    """A request has timed out."""


class Transport:
    """Sends requests to the registry. Used as an async context manager, in one event loop."""

    def __init__(self, settings: RegistrySettings) -> None:
        """Raises RegistryRefused for certificates that cannot be used."""
        self._urls = settings.url
        self._timeout_s = settings.timeout_ms / 1000
        files = (settings.ca, settings.certificate, settings.key)
        self._tls = Renewed(files, lambda: _tls(settings), lambda text: logger.warning("registry: %s", text))
        self._headers = {
            "Accept": f"{MEDIA}, application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"tidegate/{__version__}",
            **_authorization(settings),
        }
        self._session: aiohttp.ClientSession | None = None
        self._first = 0
        """Index of the address that answered last."""
        self._hung: tuple[float, str] | None = None
        """Until when requests fail immediately after a timeout, and the message of that timeout."""

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """Returns the body of the answer; `path` is URL-encoded. Raises RegistryUnavailable and RegistryRefused.

        A round with a timeout is not repeated, and further requests fail immediately for the duration of one more
        timeout: otherwise a start, which sends requests for each source and sink, would wait for each of them.
        """
        now = asyncio.get_running_loop().time
        if self._hung is not None and now() < self._hung[0]:
            raise RegistryUnavailable(self._hung[1])
        trouble, at = "there is no address", self._first
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            hung = False
            for _ in self._urls:
                try:
                    answer = await self._ask_one(self._urls[at], method, path, body)
                except RegistryUnavailable as error:
                    trouble, hung = error.message, hung or isinstance(error, _Hung)
                    at = (at + 1) % len(self._urls)
                except RegistryRefused:
                    self._first = at
                    raise
                else:
                    self._first = at
                    return answer
            if hung:
                self._hung = (now() + self._timeout_s, trouble)
                break
        raise RegistryUnavailable(trouble)

    async def _ask_one(self, url: str, method: str, path: str, body: Any) -> bytes:
        assert self._session is not None
        where = f"registry {url}"
        headers = {} if body is None else {"Content-Type": MEDIA}
        data = None if body is None else msgspec.json.encode(body)
        target = URL(f"{url}{path}", encoded=True)
        try:
            async with self._session.request(
                method, target, data=data, headers=headers, allow_redirects=False, ssl=self._tls.get()
            ) as response:
                return _judge(
                    where, path, response.status, response.headers.get("Location"), await _read(where, response)
                )
        except TimeoutError as error:
            raise _Hung(f"{where} has not answered within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            refusal = _tls_refusal(error)
            if refusal is not None:
                remedy = "check `ca`, `certificate` and the host's name"
                raise RegistryRefused(f"{where}: {refusal}", remedy=remedy) from error
            raise RegistryUnavailable(f"{where} cannot be reached: {_network_reason(error)}") from error


async def _read(where: str, response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise RegistryRefused(f"{where}: the answer has more than {BODY_BYTES_MAX >> 20} MiB")
    return bytes(body)


def _judge(where: str, path: str, status: int, location: str | None, body: bytes) -> bytes:
    """Returns the body of a successful answer, else raises an error."""
    if 200 <= status < 300:
        return body
    if 300 <= status < 400:
        remedy = "set `url` to the address of the redirect"
        raise RegistryRefused(f"{where} answers with a redirect to {(location or 'nowhere')[:200]}", remedy=remedy)
    error = _read_error(body)
    said = error.message[:MESSAGE_CHARACTERS_MAX]
    text = f"{where}: {said or f'HTTP status {status}'}"
    with_status = f"{text} (HTTP status {status})" if said else text
    if status in _AGAIN or status >= 500:
        raise RegistryUnavailable(with_status)
    if status in (401, 403):
        remedy = "check `username` and `password`, or `token`, and their permissions"
        raise RegistryRefused(with_status, error_code=error.error_code, remedy=remedy)
    if status == 404:
        if error.error_code in MISSING:
            raise SchemaMissing(text, error_code=error.error_code)
        remedy = "is `url` complete? Some registries serve this interface below a path"
        raise RegistryPathMissing(f"{where} does not have {path.partition('?')[0]} (HTTP status 404)", remedy=remedy)
    if status == 409:
        raise SchemaIncompatible(text, error_code=error.error_code)
    raise RegistryRefused(text, error_code=error.error_code)


def _read_error(body: bytes) -> _RegistryError:
    try:
        return msgspec.json.decode(body, type=_RegistryError)
    except UNDECODABLE:
        return _RegistryError()


def _authorization(settings: RegistrySettings) -> dict[str, str]:
    if settings.token is not None:
        return {"Authorization": f"Bearer {settings.token.get_secret_value()}"}
    if settings.username is None or settings.password is None:
        return {}
    pair = f"{settings.username}:{settings.password.get_secret_value()}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _tls(settings: RegistrySettings) -> ssl.SSLContext | bool:
    """Returns the TLS context; True if none is needed."""
    if not any(url.startswith("https:") for url in settings.url):
        return True
    try:
        context = ssl.create_default_context(cafile=settings.ca)
    except (OSError, ValueError) as error:
        raise RegistryRefused(
            f"{settings.ca} cannot be used: {describe_cause(error)}", remedy="it must be PEM", setting="ca"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.certificate is not None and settings.key is not None:
        try:
            context.load_cert_chain(
                settings.certificate, settings.key, lambda: ""
            )  # otherwise OpenSSL prompts on the terminal
        except (OSError, ValueError) as error:
            message = f"{settings.certificate} with the key {settings.key} cannot be used: {describe_cause(error)}"
            remedy = "both must be PEM and match; the key must not have a password"
            raise RegistryRefused(message, remedy=remedy, setting="certificate") from error
    return context


def _tls_refusal(error: BaseException) -> BaseException | None:
    """Returns the reason why one side does not trust the other.

    With TLS 1.3, a client learns of it only when it reads the answer.
    """
    found: BaseException | None = error
    while found is not None and (isinstance(found, aiohttp.ClientError) or not isinstance(found, ssl.SSLError)):
        found = found.__cause__  # aiohttp's own errors print the context object
    return None if isinstance(found, _BROKEN_OFF) else found


def _network_reason(error: aiohttp.ClientError | OSError) -> object:
    inner = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(inner, ConnectionError) and inner.errno:
        return os.strerror(inner.errno)
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
