"""The parts of a URL as found by `java.net.URI`, which Spark's `parse_url` uses: by RFC 2396, unlike browsers."""

from __future__ import annotations

import ipaddress
import re
import unicodedata

_WHOLE = re.compile(r"(?:([^:/?#]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_OTHER = r"%[0-9A-Fa-f]{2}|[^\x00-\x7f]"
_PATH = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;/-]|{_OTHER})*")
_QUERY = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;/?\[\]-]|{_OTHER})*")
_USER = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:&=+$,;-]|{_OTHER})*")
_REGISTRY = re.compile(rf"(?:[A-Za-z0-9_!.~'()*:@&=+$,;-]|{_OTHER})+")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_TOP_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(
    rf"(?:{_LABEL}\.)*{_TOP_LABEL}\.?|(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){{3}}(?:25[0-5]|2[0-4]\d|1?\d?\d)"
)
_SERVER = re.compile(r"(?:([^@]*)@)?(\[[0-9A-Fa-f:.]*\]|[^@:]*)(?::([0-9]*))?")


def part_of_url(text: str, part: str, name: str = "") -> str | None:
    """Returns HOST, PATH, QUERY ... as written in the text, or the value of `name` in the query; None if it does not
    exist.

    Raises ValueError if the text is not a URL.
    """
    scheme, authority, path, query, reference = _split(text)
    opaque = scheme is not None and authority is None and not path.startswith("/")
    if part == "PROTOCOL":
        return scheme
    if part == "REF":
        return reference
    if opaque:
        return None
    user, host = _server(authority)
    if part == "QUERY" and name and query is not None:
        found = re.search(rf"(?:&|^){name}=([^&]*)", query)
        return found[1] if found else None
    file = path if query is None else f"{path}?{query}"
    return {"PATH": path, "QUERY": query, "FILE": file, "AUTHORITY": authority, "HOST": host, "USERINFO": user}[part]


def _split(text: str) -> tuple[str | None, str | None, str, str | None, str | None]:
    found = _WHOLE.fullmatch(text)
    if found is None or any(unicodedata.category(one) in ("Zs", "Zl", "Zp", "Cc") for one in text):
        raise ValueError(text)
    scheme, authority, path, query, reference = found.groups()
    rest = text if scheme is None else text[len(scheme) + 1 :]
    legal = (scheme is None or _SCHEME.fullmatch(scheme)) and _QUERY.fullmatch(reference or "")
    if not legal or (scheme is not None and not rest.partition("#")[0]):
        raise ValueError(text)
    if scheme is not None and not rest.startswith("/"):
        if not _QUERY.fullmatch(rest.partition("#")[0]):
            raise ValueError(text)
        return scheme, None, path, query, reference
    if not _PATH.fullmatch(path) or not _QUERY.fullmatch(query or ""):
        raise ValueError(text)
    if authority == "" and not rest.removeprefix("//"):
        raise ValueError(text)
    return scheme, authority or None, path, query, reference


def _server(authority: str | None) -> tuple[str | None, str | None]:
    """Returns user and host; both are None for an authority that does not name a server, such as `my_host`."""
    if authority is None:
        return None, None
    found = _SERVER.fullmatch(authority)
    if found is not None and _USER.fullmatch(found[1] or ""):
        if found[2].startswith("["):
            ipaddress.IPv6Address(found[2][1:-1])  # raises ValueError if it is not an IPv6 address
            return found[1], found[2]
        if _HOST.fullmatch(found[2]):
            return found[1], found[2]
    if not _REGISTRY.fullmatch(authority):
        raise ValueError(authority)
    return None, None
