"""The daemon's HTTP port: probes, metrics, the status of the pipeline and the web page. Commands are in `commands.py`.

The server has a thread and an event loop of its own. It starts before any other work, with everything imported, because
importing a web stack next to a busy thread was seen to take seconds. Metrics are rendered on a helper thread, one
request at a time, so probes never wait for a scrape. Connections are limited (`connection_limiter.py`), and requests
sent by web pages are refused (`admission.py`). The paths are described in docs/operations/monitoring.md.

The page (docs/page.md) consists of static files, read once and served from memory. They hold no secrets, so every
client may load them. Its figures are requested from the resources, which decide who may read them. All addresses in the
files are relative, so that the page works behind an ingress that adds a path.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tidegate.config.deployment import HttpTlsSettings
from tidegate.daemon.http.admission import LOCALHOST, HttpRefusal, decide_host, decide_reader, is_loopback
from tidegate.daemon.http.commands import COMMANDS, JSON, REQUEST_BYTES_MAX, CommandHandlers, answer_refusal
from tidegate.daemon.http.connection_limiter import ConnectionLease, Places, make_client_logger
from tidegate.daemon.http.openapi import make_openapi_resource
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.resources import Resource, ResourceHandlers
from tidegate.daemon.http.tls import ServerTls, TlsHandshake, find_caller
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.status import PipelineState
from tidegate.errors import TidegateError
from tidegate.process.logs import redact

logger = logging.getLogger(__name__)

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


START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0
BEAT_LIMIT_S: Final = 30.0
SWITCH_INTERVAL_S: Final = 0.001
"""How long a busy thread keeps the interpreter while the server waits for it.

With Python's 5 ms, a probe that needs several turns took 52 ms (p99) next to one busy thread; with 1 ms it took 7 ms.
The daemon has no hot loop that this would slow down.
"""
LINGERING_S: Final = 1.0
"""Time limit for reading the rest of a body that is not needed."""
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared
ACCEPT_TURNS: Final = 3
"""Turns of the loop until aiohttp knows the connection that was accepted last; it closes only connections it knows."""
BACKLOG: Final = 128
PATHS: Final = {
    "/metrics": "metrics for Prometheus",
    "/livez": "200 while the daemon's event loop runs; otherwise restart the process",
    "/readyz": "200 while records flow, else 503 with the state and the reason",
    "/startupz": "200 once the process, Spark and the control server are up",
    "/status": "figures of the pipeline as JSON",
    "/checkpoints": "the newest checkpoints and savepoints of this daemon with the phases of every subtask, as JSON",
    "/failures": "the newest failed attempts of this daemon, as JSON",
}
RESOURCE_ALIASES: Final = ("status", "checkpoints", "failures")
"""Resources that also have a path of their name, with JSON that is indented for people."""
PROBES: Final = frozenset({"/livez", "/readyz", "/startupz"})
"""The paths that every client may request."""


class HttpUnavailable(TidegateError):
    """The HTTP port cannot be opened; the pipeline is not started without its probes."""

    code = "http-unavailable"
    exit_code = 2
    retriable = False


class HttpServer:
    """The HTTP server of a daemon. `port` 0 selects a free port; `elapsed` returns monotonic seconds.

    `resources` are by default those that `metrics` knows. The constructor raises TlsRefused.
    """

    def __init__(
        self,
        host: str,
        port: int,
        metrics: PipelineMetrics,
        beat_limit_s: float = BEAT_LIMIT_S,
        elapsed: Callable[[], float] = time.monotonic,
        tls: HttpTlsSettings | None = None,
        resources: Sequence[Resource[Any]] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._metrics = metrics
        self._beat_limit_s = beat_limit_s
        self._elapsed = elapsed
        self._beat_at = elapsed()
        self._bound: concurrent.futures.Future[int] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._names = frozenset({host}) - ANY_ADDRESS
        self.read_token: str | None = None
        """The token required for all paths except the probes; None if none is required."""
        self.places = Places()
        self._tls = None if tls is None else ServerTls(tls, self.places.complaints, elapsed)
        self.commands = CommandHandlers(self.places, self._names, self._tls, metrics.command_given)
        self._shaking: set[asyncio.Task[None]] = set()
        self._rendering: asyncio.Future[bytes] | None = None
        self._switch_interval_s = sys.getswitchinterval()
        self._renderer = concurrent.futures.ThreadPoolExecutor(1, "rendering")
        mounted = make_pipeline_resources(metrics) if resources is None else resources
        description = make_openapi_resource(mounted, metrics.version)
        self._resources = ResourceHandlers([*mounted, description], self.commands, self._renderer)

    def start(self) -> int:
        """Binds and starts to serve; returns the port. Raises HttpUnavailable if the address is not available."""
        if self._thread is not None:
            raise RuntimeError("an HTTP server is started once")
        self._thread = threading.Thread(target=self._serve_thread, name="http", daemon=True)
        self._thread.start()
        try:
            self._port = self._bound.result(START_TIMEOUT_S)
        except OSError as error:
            self._renderer.shutdown(wait=False)
            raise explain_unavailable(self._host, self._port, error) from error
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.beat()
        return self._port

    @property
    def port(self) -> int:
        """The port on which it listens, once started."""
        return self._port

    @property
    def address(self) -> str:
        """`http://host:port`, for display."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http{'' if self._tls is None else 's'}://{host}:{self._port}"

    def beat(self) -> None:
        """Called by the daemon's main loop; liveness fails if it was not called for `beat_limit_s`."""
        self._beat_at = self._elapsed()

    def stop(self) -> None:
        """Closes the port and joins the thread, within STOP_TIMEOUT_S. A second call does nothing."""
        thread, loop, ended = self._thread, self._loop, self._ended
        if thread is None or loop is None or ended is None or not thread.is_alive():
            return
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:  # the loop has closed since the check
            return
        thread.join(STOP_TIMEOUT_S)
        sys.setswitchinterval(self._switch_interval_s)
        self._renderer.shutdown(wait=False)

    # -- on the server's thread ------------------------------------------------------------------------------------

    def _serve_thread(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._bound.done():
                raise
            self._bound.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            logger=make_client_logger(self.places.complaints),
            lingering_time=LINGERING_S,
            shutdown_timeout=1.0,
        )
        await runner.setup()
        answering = runner.server
        assert answering is not None, "it is set up"

        def make_place() -> asyncio.Protocol:
            place = ConnectionLease(answering(), self.places)
            return place if self._tls is None else TlsHandshake(place, self.places, self._tls.context(), self._shaking)

        try:
            server = await self._loop.create_server(make_place, self._host, self._port, backlog=BACKLOG)
            self._bound.set_result(int(server.sockets[0].getsockname()[1]))
            await self._ended.wait()
            # A connection accepted while the server closes would stay open: Python 3.11 forgets it.
            for listening in server.sockets:
                self._loop.remove_reader(listening.fileno())
            for _ in range(ACCEPT_TURNS):
                await asyncio.sleep(0)
            server.close()
            shaking = tuple(self._shaking)
            for task in shaking:
                task.cancel()
            await asyncio.gather(*shaking, return_exceptions=True)
        finally:
            await runner.cleanup()
            self.places.close()
            await asyncio.sleep(0)  # lets the loop close the ended connections

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=REQUEST_BYTES_MAX, middlewares=[self._make_guard()])
        handlers: dict[str, Handler] = {
            "/": self._answer_index,
            "/metrics": self._answer_metrics,
            "/livez": self._answer_live,
            "/readyz": self._answer_ready,
            "/startupz": self._answer_startup,
        }
        for path, handler in handlers.items():
            for written in {path, f"{path.rstrip('/')}/"}:
                application.router.add_get(written, handler)
        self._resources.add_to(application, RESOURCE_ALIASES)
        application.router.add_get(f"{PREFIX}{{name:.*}}", answer_static)
        application.on_response_prepare.append(add_security_headers)
        self.commands.add_to(application)
        return application

    def _make_guard(self) -> Middleware:
        # A client that reaches an address other than loopback can read these responses anyway, under any name. With TLS
        # it has verified the certificate's name.
        local = self._tls is None and (is_loopback(self._host) or self._host == LOCALHOST)
        names = self._names if local else None

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            place = self.places.find(request.protocol)
            if place is None:  # it was closed a moment ago
                return web.Response(status=503)
            place.request_begins()
            try:
                refusal = None if names is None else decide_host(request.headers.get("Host"), names)
                public = request.path.removesuffix("/") in PROBES or is_page(request)
                if refusal is None and request.method != "POST" and not public:
                    refusal = self._decide_reader(request)
                if refusal is not None:
                    return answer_refusal(refusal)
                return await handler(request)
            except web.HTTPNotFound:
                return answer_refusal(HttpRefusal(404, "not-found", "there is no such path: GET / lists them"))
            except web.HTTPMethodNotAllowed as error:
                allowed = ", ".join(sorted(error.allowed_methods))
                answer = answer_refusal(HttpRefusal(405, "method-not-allowed", f"this path takes {allowed}"))
                answer.headers["Allow"] = allowed
                return answer
            except (web.HTTPException, ConnectionError):
                raise
            except Exception:
                logger.exception("internal error while answering %s %s", request.method, request.path)
                return answer_refusal(HttpRefusal(500, "internal-error", "internal error; see the log"))
            finally:
                place.request_ends()

        return guard

    def _decide_reader(self, request: web.Request) -> HttpRefusal | None:
        """Refuses a client that may not read.

        Everyone may read unless the file restricts it; those who may send commands may.
        """
        if self.read_token is None and (self._tls is None or not self._tls.asks_clients):
            return None
        tokens = [token for token in (self.read_token, self.commands.token) if token is not None]
        return decide_reader(request.headers, tokens, find_caller(request, self._tls)[0])

    async def _answer_live(self, _request: web.Request) -> web.Response:
        silent_s = self._elapsed() - self._beat_at
        if silent_s > self._beat_limit_s:
            return _probe(
                ok=False,
                text=f"the daemon's event loop has not run for {silent_s:.0f} s (limit {self._beat_limit_s:.0f} s)",
            )
        return _probe(ok=True, text="live")

    async def _answer_ready(self, _request: web.Request) -> web.Response:
        state, reason = self._metrics.current_state
        text = f"{state.value}: {redact(reason)}" if reason else state.value
        return _probe(ok=state is PipelineState.RUNNING, text=text)

    async def _answer_startup(self, _request: web.Request) -> web.Response:
        state, _ = self._metrics.current_state
        return _probe(ok=state is not PipelineState.STARTING, text=state.value)

    async def _answer_index(self, request: web.Request) -> web.Response:
        if is_page(request):
            return answer_file(request, INDEX)
        status = self._metrics.snapshot()
        names = {"name": "tidegate", "version": status.version, "pipeline": status.pipeline}
        return _json(
            {**names, "paths": PATHS | self._resources.paths, "commands": {one.path: one.summary for one in COMMANDS}}
        )

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        """Renders the metrics once for all requests that arrive meanwhile, so that slow clients cannot pile up work."""
        running = self._rendering
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._renderer, self._render_metrics)
            self._rendering = running
            running.add_done_callback(self._on_rendered)
        body = await asyncio.shield(running)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST, "Cache-Control": "no-store"})

    def _render_metrics(self) -> bytes:
        return generate_latest(self._metrics.registry)

    def _on_rendered(self, _done: asyncio.Future[bytes]) -> None:
        self._rendering = None


def explain_unavailable(host: str, port: int, error: OSError) -> HttpUnavailable:
    """Explains why the address cannot be bound, with a remedy."""
    # Python 3.13 gives no number if none of the addresses is one of this machine.
    number = errno.EADDRNOTAVAIL if error.errno is None else error.errno
    remedy = {
        errno.EADDRINUSE: "another process listens there: stop it, or set http.port to a free port (0 picks one)",
        errno.EACCES: "the port needs privileges: set http.port to 1024 or more",
        errno.EADDRNOTAVAIL: "this machine has no such address: set http.host to one of its own, or to 0.0.0.0",
    }.get(number, "set http.host to an address of this machine")
    # asyncio wraps the system's message in a sentence with the address, which is included here already.
    cause = os.strerror(number) if number in errno.errorcode else error.strerror or type(error).__name__
    text = f"cannot listen on {host}:{port} (http.host, http.port): {cause}; {remedy}"
    return HttpUnavailable(text, host=host, port=port)


def _probe(*, ok: bool, text: str) -> web.Response:
    return web.Response(status=200 if ok else 503, text=f"{text}\n", headers={"Cache-Control": "no-store"})


def _json(value: object) -> web.Response:
    return web.Response(body=_encode(value), content_type=JSON, headers={"Cache-Control": "no-store"})


def _encode(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
