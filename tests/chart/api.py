"""The API server of the tests, asked as an administrator over its REST interface."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any, Final

TOKEN: Final = "tests"
CONTENT: Final = {"json": "application/json", "merge": "application/merge-patch+json"}


def free_port() -> int:
    """Nobody listens there at the moment."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Api:
    """The API server, asked as an administrator."""

    def __init__(self, port: int, directory: Path) -> None:
        self.port = port
        self.ca = directory / "certs" / "apiserver.crt"

    def call(self, method: str, path: str, body: object = None, kind: str = "json", timeout_s: float = 30.0) -> Any:
        """An open answer. Raises urllib.error.HTTPError."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": CONTENT[kind]},
        )
        context = ssl.create_default_context(cafile=str(self.ca))
        return urllib.request.urlopen(request, context=context, timeout=timeout_s)

    def ask(self, method: str, path: str, body: object = None, kind: str = "json") -> Any:
        """A whole answer, decoded. Raises urllib.error.HTTPError."""
        with self.call(method, path, body, kind) as answer:
            return json.load(answer)

    @property
    def ready(self) -> bool:
        """Whether it serves."""
        try:
            with self.call("GET", "/readyz", timeout_s=2.0) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
