"""OAuth tokens for the client that ends transactions: OIDC with client credentials, as librdkafka implements it.

All clients of a process with the same login share one request. A token is replaced after four fifths of its lifetime,
as in librdkafka, and before brokers require reauthentication. Tokens and secrets never appear in messages.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import math
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from tidegate.errors import UNDECODABLE, TidegateError
from tidegate.kafka.properties import CLIENT, ENDPOINT, EXTENSIONS, SCOPE, SECRET

ANSWER_S: Final = 5.0
"""Timeout for the token endpoint; the client's own event loop blocks on it."""
ANSWER_BYTES_MAX: Final = 1 << 20
ERROR_CHARACTERS_MAX: Final = 300
PART: Final = 0.8
"""Fraction of a token's lifetime after which the next one is requested."""


class TokenUnavailable(TidegateError):
    """The endpoint issues no token. `property` is the one to correct; `final` means that waiting does not help."""

    code = "token-unavailable"
    exit_code = 2
    retriable = True


class Grant(NamedTuple):
    """A token and its lifetime in seconds."""

    token: str
    lifetime_s: float


class _Answer(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None
    """Seconds. RFC 6749 requires a number; some endpoints write a string."""


class _Claims(msgspec.Struct):
    exp: float
    iat: float | None = None


class TokenSource:
    """Caches one token. Thread-safe. `fetch` raises TokenUnavailable; `elapsed` returns monotonic seconds."""

    def __init__(self, fetch: Callable[[], Grant], elapsed: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._held: Grant | None = None
        self._got_at = 0.0

    def token(self) -> str:
        """Returns a valid token. While the endpoint is unavailable, the last token is used until it expires.

        Raises TokenUnavailable.
        """
        with self._lock:
            held, age_s = self._held, self._elapsed() - self._got_at
            if held is not None and age_s < PART * held.lifetime_s:
                return held.token
            asked_at = self._elapsed()
            try:
                got = self._fetch()
            except TokenUnavailable:
                if held is not None and age_s < held.lifetime_s:
                    return held.token
                raise
            self._held, self._got_at = got, asked_at
            return got.token


def find_tokens(kafka: Mapping[str, str]) -> TokenSource:
    """Returns the token source that clients with the same login share."""
    names = (ENDPOINT, CLIENT, SECRET, SCOPE, "https.ca.location", "https.ca.pem")
    return _find(tuple((name, kafka[name]) for name in names if name in kafka))


@cache
def _find(properties: tuple[tuple[str, str], ...]) -> TokenSource:
    given = dict(properties)
    return TokenSource(lambda: fetch_token(given))


def make_provider(kafka: Mapping[str, str]) -> Any:
    """Returns a token provider for kafka-python, whose event loop calls it at each login and before the broker's
    session ends.
    """
    from kafka import errors
    from kafka.net.sasl.oauth import AbstractTokenProvider

    tokens, extensions = find_tokens(kafka), read_extensions(kafka.get(EXTENSIONS, ""))

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
        def token(self) -> str:
            try:
                return tokens.token()
            except TokenUnavailable as error:
                raise errors.KafkaConnectionError(error.message) from error

        def extensions(self) -> dict[str, str]:
            return extensions

    return Provider()


def read_extensions(text: str) -> dict[str, str]:
    """Parses librdkafka's form, `name=value,name=value`."""
    parts = (part.partition("=") for part in text.split(",") if part.strip())
    return {name.strip(): value.strip() for name, _, value in parts}


def fetch_token(kafka: Mapping[str, str]) -> Grant:
    """Requests a token with the grant `client_credentials` and Basic authentication of the client. Raises
    TokenUnavailable.
    """
    url = kafka[ENDPOINT]
    form = {"grant_type": "client_credentials"} | ({"scope": kafka[SCOPE]} if SCOPE in kafka else {})
    if not _is_http(url):
        raise _unavailable(f"{url[:100]} is not an HTTP URL", "write https://host/path", ENDPOINT, final=True)
    login = base64.b64encode(f"{kafka[CLIENT]}:{kafka[SECRET]}".encode()).decode("ascii")
    try:
        request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
            url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": f"Basic {login}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_trust(kafka)), _NoRedirect())
        with opener.open(request, timeout=ANSWER_S) as answer:
            return read_grant(answer.read(ANSWER_BYTES_MAX), url)
    except urllib.error.HTTPError as error:
        detail = _read_error(error)
        refused = error.code in (400, 401, 403)
        remedy = f"correct `{CLIENT}`, `{SECRET}` or `{SCOPE}`" if refused else "is it the token endpoint?"
        raise _unavailable(
            f"{url} answers {error.code}: {detail}", remedy, CLIENT if refused else ENDPOINT, final=refused
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        remedy = "is it reachable, and is its certificate of `https.ca.location`?"
        raise _unavailable(f"no token from {url}: {reason}", remedy, ENDPOINT, final=False) from error


def _read_error(refusal: urllib.error.HTTPError) -> str:
    """Returns the error body, or the reason phrase if reading it fails."""
    try:
        with refusal:
            return refusal.read(ANSWER_BYTES_MAX).decode(errors="replace").strip()[:ERROR_CHARACTERS_MAX]
    except (OSError, http.client.HTTPException):
        return refusal.reason


def read_grant(body: bytes, url: str) -> Grant:
    """Parses a response.

    Raises TokenUnavailable unless it contains a JSON web token; librdkafka accepts nothing else.
    """
    try:
        answer = msgspec.json.decode(body, type=_Answer)
        _, payload, _ = answer.access_token.split(".")
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (*UNDECODABLE, ValueError, binascii.Error) as error:
        text = f"{url} returned no JSON web token with its expiry (`exp`)"
        raise _unavailable(text, "is it the token endpoint of OpenID Connect?", ENDPOINT, final=False) from error
    lifetime_s = _read_seconds(answer.expires_in)
    if lifetime_s is None:
        lifetime_s = claims.exp - (claims.iat if claims.iat is not None else time.time())
    return Grant(answer.access_token, lifetime_s)


def _read_seconds(expires_in: float | str | None) -> float | None:
    """Returns the seconds, or None if only the token's own claims provide them, which librdkafka also reads."""
    try:
        seconds = None if expires_in is None else float(expires_in)
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) else None


def _is_http(url: str) -> bool:
    try:
        return urllib.parse.urlsplit(url).scheme in ("http", "https")
    except ValueError:  # an unclosed IPv6 bracket
        return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Rejects redirects, so that the secret is sent only to the configured address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _trust(kafka: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if "https.ca.location" in kafka:
        context.load_verify_locations(kafka["https.ca.location"])
    if "https.ca.pem" in kafka:
        context.load_verify_locations(cadata=kafka["https.ca.pem"])
    return context


def _unavailable(text: str, remedy: str, name: str, *, final: bool) -> TokenUnavailable:
    return TokenUnavailable(f"{text}; {remedy}", text=text, remedy=remedy, property=name, final=final)
