"""What the HTTP port takes besides questions: orders for the running daemon, from its own machine only.

`POST /savepoints` and `POST /stop` with a JSON body that names the pipeline. A browser cannot be made to send them (the
content type is not one that forms may have), and other hosts are refused: the port has no authentication.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final, Protocol

import msgspec
from aiohttp import web

from tidegate.daemon.logs import redact
from tidegate.daemon.savepoints import SavepointDone
from tidegate.errors import TidegateError

JSON: Final = "application/json"
COMMAND_PATHS: Final = {
    "/savepoints": "take a savepoint",
    "/stop": "final checkpoint, then the end",
}


class Order(msgspec.Struct, forbid_unknown_fields=True):
    """Body of both."""

    pipeline: str
    directory: str | None = None
    """Of the savepoint; None: `savepoints` in the checkpoint directory."""


class OrderRefused(msgspec.Struct):
    """Answer when nothing was done."""

    code: str
    message: str


class Commands(Protocol):
    """The daemon; both are called on its own loop."""

    pipeline: str

    async def take_savepoint(self, directory: str | None) -> SavepointDone:
        """Raises TidegateError when there will be none."""

    async def stop(self) -> None:
        """Ask for the final checkpoint and the end."""


class CommandHandlers:
    """The handlers of the two paths. `serve` connects them with the daemon; before that they answer 503."""

    def __init__(self) -> None:
        self._commands: Commands | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def serve(self, commands: Commands, loop: asyncio.AbstractEventLoop) -> None:
        """Take orders from now on; they are carried out on `loop`."""
        self._commands, self._loop = commands, loop

    def add_to(self, application: web.Application) -> None:
        """Register the paths."""
        application.router.add_post("/savepoints", self._savepoint)
        application.router.add_post("/stop", self._stop)

    async def _savepoint(self, request: web.Request) -> web.Response:
        async def take(commands: Commands, order: Order) -> SavepointDone:
            return await commands.take_savepoint(order.directory)

        return await self._carry_out(request, take)

    async def _stop(self, request: web.Request) -> web.Response:
        async def stop(commands: Commands, _order: Order) -> dict[str, str]:
            await commands.stop()
            return {"state": "stopping"}

        return await self._carry_out(request, stop)

    async def _carry_out(self, request: web.Request, action: _Action) -> web.Response:
        if not is_local(request):
            return _refuse(403, "forbidden", "orders are taken from the daemon's own machine only")
        if request.content_type != JSON:
            return _refuse(415, "bad-request", f"send {JSON}")
        try:
            order = msgspec.json.decode(await request.read(), type=Order)
        except msgspec.DecodeError as error:
            return _refuse(400, "bad-request", str(error))
        if self._commands is None or self._loop is None:
            return _refuse(503, "not-ready", "the daemon is only starting; ask again")
        if order.pipeline != self._commands.pipeline:
            message = f"this daemon runs pipeline {self._commands.pipeline!r}, not {order.pipeline!r}"
            return _refuse(409, "other-pipeline", message)
        running = asyncio.run_coroutine_threadsafe(action(self._commands, order), self._loop)
        try:
            done = await asyncio.wrap_future(running)
        except TidegateError as error:
            return _refuse(503 if error.retriable else 500, error.code, redact(error.message))
        return web.Response(body=msgspec.json.encode(done) + b"\n", content_type=JSON)


class _Action(Protocol):
    """What is done with an order."""

    async def __call__(self, commands: Commands, order: Order, /) -> object: ...


def is_local(request: web.Request) -> bool:
    """Whether the other end is on this machine: loopback, or the very address that it has called."""
    transport = request.transport
    if transport is None:
        return False
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not peer or not own:
        return False
    address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or peer[0] == own[0]


def _refuse(status: int, code: str, message: str) -> web.Response:
    body = msgspec.json.encode(OrderRefused(code, message)) + b"\n"
    return web.Response(status=status, body=body, content_type=JSON)
