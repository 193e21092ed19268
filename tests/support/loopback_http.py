"""A test's HTTP server, in threads of the test process."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackHandler(BaseHTTPRequestHandler):
    """Handles one persistent connection. A response is one packet, and nothing is logged."""

    owner: Any
    """The server."""
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


class LoopbackServer:
    """A server on a free port of the loopback interface. It serves within `with`; the address is known before."""

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        self.closed = threading.Event()
        """Set at the end; ends responses that are being delayed."""
        self._http = _Server(type(handler.__name__, (handler,), {"owner": self}))
        self.port: int = self._http.server_address[1]

    @property
    def endpoint(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._http.shutdown()
        self._http.server_close()
        self._http.hang_up()


class _Server(ThreadingHTTPServer):
    """Closes the connections that clients keep open, so that their threads end with the server."""

    daemon_threads = True

    def __init__(self, handler: type[LoopbackHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Ends all connections."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)
