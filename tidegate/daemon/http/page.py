"""The web page of the daemon: static files, read once and served from memory.

The files hold no secrets, so every client may load them. The figures that the page shows are requested from the
resources, which decide who may read them. All addresses in the files are relative, so that the page works behind an
ingress that adds a path. docs/page.md describes the page.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/static/"
INDEX: Final = "index.html"
CONTENT_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response of the HTTP port: nothing is loaded from, shown in or told to another site."""


class StaticFile(NamedTuple):
    """A file as it is served."""

    body: bytes
    content_type: str
    etag: str


def read_files(folder: Path = FOLDER) -> dict[str, StaticFile]:
    """Reads the files below a folder that have a content type, by their paths relative to it."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in CONTENT_TYPES:
            body = path.read_bytes()
            etag = hashlib.sha256(body).hexdigest()[:32]
            files[path.relative_to(folder).as_posix()] = StaticFile(body, CONTENT_TYPES[path.suffix], etag)
    return files


FILES: Final = read_files()


def is_page(request: web.Request) -> bool:
    """Returns whether a request is for the page or one of its files. `/` is the page if the client accepts HTML."""
    if request.path == "/":
        return "text/html" in request.headers.get("Accept", "")
    return request.path.startswith(PREFIX)


def answer_file(request: web.Request, name: str) -> web.Response:
    """Returns a file, or 304 if the client has it; raises HTTPNotFound if it does not exist.

    Browsers ask each time whether a file has changed, so that a new version of the daemon never meets old scripts.
    """
    file = FILES.get(name)
    if file is None:
        raise web.HTTPNotFound
    known = request.if_none_match or ()
    changed = not any(tag.value in (file.etag, "*") for tag in known)
    response = web.Response(body=file.body, content_type=file.content_type, charset="utf-8") if changed else None
    response = response or web.Response(status=304)
    response.etag = file.etag
    response.headers.update({"Cache-Control": "no-cache", "Vary": "Accept"})
    return response


async def answer_static(request: web.Request) -> web.Response:
    """Returns the file below `/static/` that the request names."""
    return answer_file(request, request.match_info["name"])


async def add_security_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """Adds SECURITY_HEADERS to a response that is about to be sent."""
    response.headers.update(SECURITY_HEADERS)
