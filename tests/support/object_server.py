"""A small object server in the test process that implements the required part of S3 and of Google's XML API.

It proves nothing about real stores: `make stores` runs the same suite against those.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import msgspec

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

PAGE: Final = 1000
BUCKET: Final = "bucket"
ATTRIBUTES: Final = ("x-amz-meta-", "x-goog-meta-")


def write_credentials(path: Path, key: str = "A", secret: str = "S") -> Path:
    """Writes a shared credentials file. The server accepts any credentials."""
    path.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n", "utf-8")
    return path


class StoredObject(msgspec.Struct, frozen=True):
    """Content and the attributes that were sent with it."""

    data: bytes
    attributes: dict[str, str]

    @property
    def tag(self) -> str:
        """The ETag of the content."""
        return f'"{hashlib.md5(self.data).hexdigest()}"'


class ObjectServer(LoopbackServer):
    """A server with one bucket, in memory. With `conditions` False it ignores conditional headers."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[str, StoredObject] = {}
        self.conditions = True
        self.keeps_attributes = True
        self.quirk = ""
        """A further defect: the store `replaces` objects although it refuses to, reads are `stale`, objects are `not
        listed`, or are `kept` when they are deleted.
        """
        self.bulk_delete = True
        self.conflicts = 0
        """Number of conditional writes to reject with a conflict although no other write takes place."""
        self.looks_first: threading.Barrier | None = None
        """A barrier at which conditional writes wait between the check and the write. Only the race of a probe fills
        it.
        """
        self.seconds_of: Callable[[int], float] | None = None
        """Delay of a response, by its size in bytes."""
        self.requests: list[str] = []
        """Method and path of each request, without the query."""
        self.lock = threading.Lock()


class _Handler(LoopbackHandler):
    owner: ObjectServer

    def do_PUT(self) -> None:
        body, key = self._body(), self._key()
        if key is None:
            return
        condition = self.headers.get("If-None-Match")
        attributes = {n.lower(): v for n, v in self.headers.items() if n.lower().startswith(ATTRIBUTES)}
        if self._refused(condition == "*" or self.headers.get("x-goog-if-generation-match") == "0", key):
            return
        with self.owner.lock:
            stored = StoredObject(body, attributes if self.owner.keeps_attributes else {})
            if self.owner.quirk != "stale" or key not in self.owner.objects:
                self.owner.objects[key] = stored
        self._answer(200, headers={"ETag": stored.tag})

    def _refused(self, conditional: bool, key: str) -> bool:
        owner = self.owner
        if conditional and owner.conflicts:
            owner.conflicts -= 1
            self._fail(409, "ConditionalRequestConflict", "Another request is under way")
            return True
        if conditional and owner.conditions and key in owner.objects:
            if owner.quirk == "replaces":
                owner.objects[key] = StoredObject(b"", {})
            self._fail(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
            return True
        if conditional and owner.looks_first is not None and key.endswith("-race"):
            owner.looks_first.wait(timeout=60)
        return False

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        key = self._key()
        if key is None:
            return
        if "list-type" in query:
            self._list(query)
            return
        stored = self.owner.objects.get(key)
        if stored is None:
            self._fail(404, "NoSuchKey", "The specified key does not exist.")
            return
        headers = {"ETag": stored.tag, "Last-Modified": "Mon, 23 Nov 2026 08:00:00 GMT", **stored.attributes}
        if self.headers.get("If-Match", stored.tag) != stored.tag:
            self._fail(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, stored.data, headers)
            return
        if int(asked[1]) >= len(stored.data):
            self._fail(416, "InvalidRange", "The requested range is not satisfiable")
            return
        first, last = int(asked[1]), min(int(asked[2]), len(stored.data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(stored.data)}"
        self._answer(206, stored.data[first : last + 1], headers)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        key = self._key()
        if key is None:
            return
        with self.owner.lock:
            gone = key not in self.owner.objects
            if self.owner.quirk != "kept":
                self.owner.objects.pop(key, None)
        if gone and self.headers.get("Authorization", "").startswith("Bearer"):  # Google reports it, S3 does not
            self._fail(404, "NoSuchKey", "The specified key does not exist.")
            return
        self._answer(204)

    def do_POST(self) -> None:
        body = self._body().decode()
        if self._key() is None:
            return
        if not self.owner.bulk_delete:
            self._fail(501, "NotImplemented", "A header you provided implies functionality that is not implemented.")
            return
        keys = [unquote(key) for key in re.findall("<Key>(.*?)</Key>", body)]
        with self.owner.lock:
            for key in keys:
                self.owner.objects.pop(key, None)
        done = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f'<?xml version="1.0"?><DeleteResult>{done}</DeleteResult>'.encode())

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        with self.owner.lock:
            keys = sorted(key for key in self.owner.objects if key.startswith(prefix) and key > after)
            keys = [] if self.owner.quirk == "not listed" else keys
            page, more = keys[:PAGE], len(keys) > PAGE
            entries = "".join(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-23T08:00:00.000Z</LastModified>"
                f"<ETag>{escape(self.owner.objects[key].tag)}</ETag><Size>{len(self.owner.objects[key].data)}</Size>"
                "</Contents>"
                for key in page
            )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        text = f'<?xml version="1.0"?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{entries}'
        self._answer(200, f"{text}</ListBucketResult>".encode())

    def _key(self) -> str | None:
        """Returns the key of the object, empty for the bucket, or None after
        responding that the bucket does not exist.
        """
        path = unquote(urlsplit(self.path).path)
        self.owner.requests.append(f"{self.command} {path}")
        bucket, _, key = path.lstrip("/").partition("/")
        if bucket != BUCKET:
            self._fail(404, "NoSuchBucket", "The specified bucket does not exist")
            return None
        return key

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def _fail(self, status: int, code: str, message: str) -> None:
        text = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
        self._answer(status, text.encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        if self.owner.seconds_of is not None:
            self.owner.closed.wait(self.owner.seconds_of(len(body)))
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
