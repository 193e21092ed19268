"""An HTTP server of a test, in threads of its process."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackHandler(BaseHTTPRequestHandler):
    """Of one connection, which is kept; an answer is one packet, and nothing is logged."""

    owner: Any
    """The server."""
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Nothing."""


class LoopbackServer:
    """On a free port of the loopback interface. `with` serves; the address is known before."""

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        self.closed = threading.Event()
        """Set at the end, for what holds answers back."""
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type(handler.__name__, (handler,), {"owner": self}))
        self._http.daemon_threads = True
        self.port: int = self._http.server_address[1]

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._http.shutdown()
        self._http.server_close()
