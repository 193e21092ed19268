"""A schema registry in the test process: the part of the REST API that Tidegate uses, and ways to misbehave."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

Trouble = Callable[[BaseHTTPRequestHandler], None]


def answer_with(status: int, body: bytes | str, **headers: str) -> Trouble:
    """Returns a trouble that always sends this response."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body.encode() if isinstance(body, str) else body
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return answer


class FakeRegistry(LoopbackServer):
    """A registry as described in the module. `asked` contains the requests so far; `trouble` replaces the response."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(_Handler)
        self._tls = tls
        self.asked: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.trouble: Trouble | None = None
        self.incompatible: list[str] = []
        """Reasons why no subject accepts another schema; empty if subjects do."""
        self.compares_with_one = False
        """Behaves like Redpanda and Karapace: compares a schema only with a named
        version, not with the whole subject.
        """
        self.schemas: dict[int, dict[str, Any]] = {}
        self.guids: dict[str, int] = {}
        self.subjects: dict[str, list[int]] = {}
        self.serialized: dict[str, str] = {}
        """Replacements for schema texts when `format=serialized` is requested."""
        if tls is not None:
            setattr(self._http, "handle_error", lambda *_: None)  # noqa: B010 - errors of rejected clients
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https{self.endpoint.removeprefix('http')}" if self._tls else self.endpoint

    def hang(self, _handler: BaseHTTPRequestHandler) -> None:
        """A trouble: sends no response until the end."""
        self.closed.wait(60)

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[Any] | None = None) -> int:
        """Registers a schema as another client would; returns its id."""
        body = {"schema": text, "schemaType": kind, "references": references or []}
        schema_id = next((one for one, known in self.schemas.items() if known == body), len(self.schemas) + 1)
        self.schemas[schema_id] = body
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Serves one request."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        self.asked.append((handler.command, handler.path))
        self.headers.append(dict(handler.headers))
        if self.trouble is not None:
            self.trouble(handler)
            return
        parts = urlsplit(handler.path)
        status, answer = self._answer(handler.command, parts.path.strip("/").split("/"), body)
        if "format=serialized" in parts.query and status == 200:
            answer = {**answer, "schema": self.serialized.get(answer["schema"], answer["schema"])}
        answer_with(status, json.dumps(answer), **{"Content-Type": "application/vnd.schemaregistry.v1+json"})(handler)

    def _answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        match (method, *map(unquote, path)):
            case ("GET", "schemas", "types"):
                return 200, ["AVRO", "JSON", "PROTOBUF"]
            case ("GET", "schemas", "ids" | "guids" as word, name):
                found = self.schemas.get(int(name) if word == "ids" else self.guids.get(name, 0))
                return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
            case ("GET", "subjects", subject, "versions", version):
                return self._version(subject, version)
            case ("POST", "subjects", subject):
                return self._look_up(subject, body)
            case ("POST", "subjects", subject, "versions"):
                if self.incompatible and subject in self.subjects:
                    return 409, {"error_code": 409, "message": self.incompatible[0]}
                return 200, {"id": self.add(subject, body["schema"], body.get("schemaType", "AVRO"))}
            case ("POST", "compatibility", "subjects", subject, "versions", *version):
                if self.compares_with_one and not version:
                    return 404, {"error_code": 404, "message": "Not found"}
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                return 200, {"is_compatible": not self.incompatible, "messages": self.incompatible}
        return 404, "no such page"

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        ids = self.subjects.get(subject)
        if ids is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = len(ids) if version == "latest" else int(version)
        if number > len(ids):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        schema_id = ids[number - 1]
        return 200, {**self.schemas[schema_id], "subject": subject, "version": number, "id": schema_id}

    def _look_up(self, subject: str, body: Any) -> tuple[int, Any]:
        for number, schema_id in enumerate(self.subjects.get(subject, ()), 1):
            if self.schemas[schema_id]["schema"] == body["schema"]:
                return 200, {**self.schemas[schema_id], "subject": subject, "version": number, "id": schema_id}
        code = 40403 if subject in self.subjects else 40401
        return 404, {"error_code": code, "message": "Schema not found" if code == 40403 else "Subject not found"}


class _Handler(LoopbackHandler):
    owner: FakeRegistry

    def do_GET(self) -> None:
        self.owner.serve(self)

    def do_POST(self) -> None:
        self.owner.serve(self)
