"""An HTTP proxy in front of an object store, so that a test can disturb single requests."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

import msgspec

from tests.support.loopback_http import LoopbackHandler, LoopbackServer

HANG_S: Final = 600.0
_OWN: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "date", "server"})


class Fate(Enum):
    """What happens to a request."""

    FORWARD = auto()
    FAIL = auto()
    """Answers 503 and SlowDown; the store never sees the request."""
    LOSE = auto()
    """The store carries it out, but the connection is closed instead of returning the response."""
    TWICE = auto()
    """The store receives it twice and the second response is returned, as from a retrying gateway."""
    LATE = auto()
    """The connection is closed; the store receives the request when `land` is called."""
    HANG = auto()
    """No response is sent, and the store never sees the request."""
    CUT = auto()
    """Half of the response body is sent before the connection is closed."""
    DENY = auto()
    """Answers 403, with a response that contains a credential."""


class Asked(msgspec.Struct, frozen=True):
    """A request."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


Rule = Callable[[Asked], Fate]


class StoreProxy(LoopbackServer):
    """Forwards to `target` (a port of this machine). `rule` decides about each request; by default it is forwarded."""

    def __init__(self, target: int) -> None:
        super().__init__(_Handler)
        self.rule: Rule = lambda asked: Fate.FORWARD
        self.delay_s = 0.0
        """Delay before each request, as of a slow store."""
        self.hurt: dict[Fate, int] = {}
        """Requests that were not forwarded, by kind; a test with a planned fault asserts on it."""
        self.passed: int = 0
        self.target = target
        self._late: list[Asked] = []
        self._lock = threading.Lock()

    def script(self, *fates: Fate, method: str = "") -> None:
        """Sets the handling of the next requests (of this method), one each; later ones are forwarded."""
        left = list(fates)
        self.rule = lambda asked: left.pop(0) if left and method in ("", asked.method) else Fate.FORWARD

    def decide(self, asked: Asked) -> Fate:
        """Decides how to handle a request, and counts it."""
        with self._lock:
            fate = self.rule(asked)
            if fate is Fate.FORWARD:
                self.passed += 1
            else:
                self.hurt[fate] = self.hurt.get(fate, 0) + 1
            if fate is Fate.LATE:
                self._late.append(asked)
        return fate

    def land(self) -> list[int]:
        """Delivers the late requests now and returns the status codes of the store."""
        with self._lock:
            late, self._late = self._late, []
        return [self.forward(asked)[0] for asked in late]

    def forward(self, asked: Asked) -> tuple[int, list[tuple[str, str]], bytes]:
        """Forwards a request to the store. Raises OSError, HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        try:
            connection.putrequest(asked.method, asked.path, skip_host=True, skip_accept_encoding=True)
            for name, value in asked.headers:
                connection.putheader(name, value)
            connection.endheaders(asked.body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def wait(self, seconds: float) -> None:
        """Waits this long, or until the proxy ends."""
        self.closed.wait(seconds)


class _Handler(LoopbackHandler):
    owner: StoreProxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = Asked(self.command, self.path, tuple(self.headers.items()), body)
        if self.owner.delay_s:
            self.owner.wait(self.owner.delay_s)
        fate = self.owner.decide(asked)
        try:
            self._play(fate, asked)
        except (OSError, http.client.HTTPException):
            self._hang_up()  # the store or the client has gone

    def _play(self, fate: Fate, asked: Asked) -> None:
        if fate is Fate.FAIL:
            self._answer(503, [], b"<Error><Code>SlowDown</Code><Message>Please reduce your rate.</Message></Error>")
        elif fate is Fate.DENY:
            text = "<Code>AccessDenied</Code><Message>no</Message><AWSAccessKeyId>KEY-IN-ANSWER</AWSAccessKeyId>"
            self._answer(403, [], f"<Error>{text}</Error>".encode())
        elif fate is Fate.HANG:
            self.owner.wait(HANG_S)
            self._hang_up()
        elif fate is Fate.LATE:
            self._hang_up()
        else:
            status, headers, content = self.owner.forward(asked)
            if fate is Fate.TWICE:
                status, headers, content = self.owner.forward(asked)
            if fate is Fate.LOSE:
                self._hang_up()
            else:
                self._answer(status, headers, content, cut=fate is Fate.CUT)

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
        head = self.command == "HEAD"
        length = next((value for name, value in headers if name.lower() == "content-length"), "0") if head else ""
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _OWN and name.lower() != "content-length":
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if not head:
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.wfile.flush()
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()
