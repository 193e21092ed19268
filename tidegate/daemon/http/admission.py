"""Decides who may request what over HTTP, based on a connection's addresses and a request's headers. Pure; see ADR 24.

The main threat is a browser. It runs on the daemon's own machine, sends requests on behalf of any page, and a page can
give its own host name the daemon's address (DNS rebinding). It cannot forge `Host` and `Origin`.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

LOCALHOST: Final = "localhost"
SCHEME: Final = "Bearer "


class HttpRefusal(NamedTuple):
    """Status, stable code and message of the response to a refused request."""

    status: int
    code: str
    message: str


ELSEWHERE: Final = HttpRefusal(
    403, "forbidden", "commands are accepted from the daemon's own machine only, or over TLS (http.tls)"
)

FROM_A_PAGE: Final = HttpRefusal(
    403,
    "forbidden",
    "commands are not accepted from web pages, and records are not shown to pages of other sites (Origin)",
)
FETCH_SITE: Final = "Sec-Fetch-Site"
SAME_SITE: Final = ("same-origin", "none")
"""What a browser sends with a request of the daemon's own page, or of its address bar."""


class HttpClientIdentity(NamedTuple):
    """The identity and permissions that a connection proves."""

    own_machine: bool
    encrypted: bool = False
    reads: bool = False
    operates: bool = False
    """By certificate; a client that may send commands may also read."""


def is_loopback(address: str) -> bool:
    """Returns whether an IP address is a loopback address; False for a name."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def is_own_machine(peer: Any, own: Any) -> bool:
    """Returns whether the peer is on this machine: a loopback address, or the same address that it connected to.

    Both are socket addresses, or None if the connection has ended.
    """
    return bool(peer and own) and (is_loopback(str(peer[0])) or peer[0] == own[0])


def decide_host(host: str | None, names: Collection[str]) -> HttpRefusal | None:
    """Returns None if the `Host` header names this server or is absent.

    The server is localhost, a loopback address or one of `names`.
    """
    if host is None:
        return None
    name = _name_of(host)
    if name == LOCALHOST or is_loopback(name) or name in {each.lower() for each in names}:
        return None
    message = f"{host[:100]!r} is not a name of this server: use its address, such as http://127.0.0.1, or `http.host`"
    return HttpRefusal(421, "misdirected", message)


def decide_order(
    headers: Mapping[str, str], names: Collection[str], token: str, caller: HttpClientIdentity
) -> HttpRefusal | None:
    """Returns None if a request may change something.

    `Host` is checked only without TLS, which verifies names itself.
    """
    if not (caller.own_machine or caller.encrypted):
        return ELSEWHERE
    if "Origin" in headers or headers.get(FETCH_SITE, SAME_SITE[0]) not in SAME_SITE:
        return FROM_A_PAGE
    refusal = None if caller.encrypted else decide_host(headers.get("Host"), names)
    if refusal is not None:
        return refusal
    given = headers.get("Authorization", "")
    if caller.operates or _is_token(given, token):
        return None
    what = "a wrong token" if given else "no token"
    certificate = ", and no certificate with a name of http.tls.operate" if caller.encrypted else ""
    return HttpRefusal(
        401,
        "unauthorized",
        f"the request has {what}{certificate}: run the command as the daemon's user with its TMPDIR, or name the "
        "token file with http.token_file in the pipeline file or with --token-file. Other clients send the token "
        "that `tidegate token FILE` prints (Authorization: Bearer)",
    )


def decide_reader(
    headers: Mapping[str, str], tokens: Collection[str], caller: HttpClientIdentity
) -> HttpRefusal | None:
    """Returns None if a request may read more than the probes.

    It needs one of `tokens`, or a certificate that may read.
    """
    given = headers.get("Authorization", "")
    if any(_is_token(given, token) for token in tokens) or caller.reads or caller.operates:
        return None
    what = "a wrong token" if given else "no token"
    if caller.encrypted:
        message = f"the request has {what}, and no certificate of http.tls.client_ca that may read"
    else:
        message = f"the request has {what}: send the token of http.read_token_file as a bearer token"
    return HttpRefusal(401, "unauthorized", message)


def _is_token(authorization: str, token: str) -> bool:
    given = authorization.removeprefix(SCHEME)
    # Bytes that are not UTF-8 arrive as surrogates.
    sent = given.encode(errors="surrogateescape")
    return authorization.startswith(SCHEME) and hmac.compare_digest(sent, token.encode())


def _name_of(host: str) -> str:
    """Strips the port, brackets and the trailing dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower().rstrip(".") if host.count(":") == 1 else host.lower().rstrip(".")
