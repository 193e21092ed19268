"""Who may ask what over HTTP: decisions about a request's ends and headers. Pure; why is in ADR 24.

A browser is the stranger that matters: it runs on the daemon's own machine, sends requests for any page that it shows,
and a page can give its own name our address (DNS rebinding). It cannot forge `Host` and `Origin`.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

LOCALHOST: Final = "localhost"
SCHEME: Final = "Bearer "


class HttpRefusal(NamedTuple):
    """Status, stable code and words of an answer to what is not done."""

    status: int
    code: str
    message: str


ELSEWHERE: Final = HttpRefusal(
    403, "forbidden", "commands are accepted from the daemon's own machine only, or over TLS (http.tls)"
)


class HttpClientIdentity(NamedTuple):
    """Who asks, as far as the connection says it."""

    own_machine: bool
    encrypted: bool = False
    reads: bool = False
    operates: bool = False
    """By certificate; whoever may give commands may read."""


def is_loopback(address: str) -> bool:
    """Whether an IP address is this machine's own; False for a name."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


def is_own_machine(peer: Any, own: Any) -> bool:
    """Whether the other end of a connection is on this machine: loopback, or the very address that it has called.

    Both are socket addresses, or None when the connection has ended.
    """
    return bool(peer and own) and (is_loopback(str(peer[0])) or peer[0] == own[0])


def decide_host(host: str | None, names: Collection[str]) -> HttpRefusal | None:
    """None when a `Host` header means this server: localhost, a loopback address, one of `names`; or there is none."""
    if host is None:
        return None
    name = _name_of(host)
    if name == LOCALHOST or is_loopback(name) or name in {each.lower() for each in names}:
        return None
    message = (
        f"this server is not {host[:100]!r}: call it by its address, for instance http://127.0.0.1, or by http.host"
    )
    return HttpRefusal(421, "misdirected", message)


def decide_order(
    headers: Mapping[str, str], names: Collection[str], token: str, caller: HttpClientIdentity
) -> HttpRefusal | None:
    """None when a request may change something. `Host` counts without TLS only, which has its own proof of names."""
    if not (caller.own_machine or caller.encrypted):
        return ELSEWHERE
    if "Origin" in headers:
        return HttpRefusal(403, "forbidden", "commands are not accepted from web pages (the request has an Origin)")
    refusal = None if caller.encrypted else decide_host(headers.get("Host"), names)
    if refusal is not None:
        return refusal
    given = headers.get("Authorization", "")
    if caller.operates or _is_token(given, token):
        return None
    what = "another token than this daemon's" if given else "no token"
    certificate = ", and no certificate with a name of http.tls.operate" if caller.encrypted else ""
    return HttpRefusal(
        401,
        "unauthorized",
        f"the request has {what}{certificate}: run the command as the daemon's user, with its TMPDIR, and it finds the "
        "token; or name the file, with http.token_file in the pipeline file or with --token-file",
    )


def decide_reader(
    headers: Mapping[str, str], tokens: Collection[str], caller: HttpClientIdentity
) -> HttpRefusal | None:
    """None when a request may read what is no probe; it needs one of `tokens`, or a certificate that may read."""
    given = headers.get("Authorization", "")
    if any(_is_token(given, token) for token in tokens) or caller.reads or caller.operates:
        return None
    what = "a token that is not this daemon's" if given else "no token"
    if caller.encrypted:
        message = f"the request has {what}, and no certificate of http.tls.client_ca that may read"
    else:
        message = f"the request has {what}: send that of http.read_token_file as a bearer token"
    return HttpRefusal(401, "unauthorized", message)


def _is_token(authorization: str, token: str) -> bool:
    given = authorization.removeprefix(SCHEME)
    # What is not UTF-8 in a header arrives as half characters.
    sent = given.encode(errors="surrogateescape")
    return authorization.startswith(SCHEME) and hmac.compare_digest(sent, token.encode())


def _name_of(host: str) -> str:
    """Without port, brackets and the dot of the root."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower().rstrip(".") if host.count(":") == 1 else host.lower().rstrip(".")
