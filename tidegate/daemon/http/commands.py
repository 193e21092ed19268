"""Commands over HTTP for the running daemon, authorized by its token or a certificate.

`POST /checkpoints`, `POST /savepoints` and `POST /stop` take a JSON body that names the pipeline. `admission.py`
decides who may send them, before the body is read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from aiohttp import web

from tidegate.daemon.checkpoint_requests import CheckpointDone, SavepointDone
from tidegate.daemon.http.admission import ELSEWHERE, HttpRefusal, decide_order
from tidegate.daemon.http.connection_limiter import Places
from tidegate.daemon.http.tls import ServerTls, find_caller
from tidegate.errors import UNDECODABLE, TidegateError
from tidegate.process.logs import redact
from tidegate.storage.base import StorageError, is_lasting

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
API: Final = "/api/v1"
"""The prefix of everything that openapi.py describes."""
REQUEST_BYTES_MAX: Final = 4096
"""The size of the body of a command."""
ORDERS_MAX: Final = 8
"""The number of commands that may be in progress."""
NOT_READY: Final = HttpRefusal(503, "not-ready", "the daemon is still starting; try again")
UNAUTHENTICATED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.MISDIRECTED_REQUEST})


class ControlRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of all commands."""

    pipeline: str
    directory: str | None = None
    """The directory of the savepoint; None means `savepoints` in the checkpoint directory."""


class Refusal(msgspec.Struct):
    """The answer to a request that was refused or failed."""

    code: str
    """Stable, for programs."""
    message: str
    """What is wrong, where, and what to do."""


class StopAccepted(msgspec.Struct):
    """The final checkpoint is being taken; the daemon ends after it."""

    state: str = "stopping"


class ControlRoutes(Protocol):
    """The daemon's side of the commands; all methods are called on its own loop."""

    pipeline: str

    async def take_checkpoint(self) -> CheckpointDone:
        """Takes a checkpoint. Raises TidegateError if it fails."""

    async def take_savepoint(self, directory: str | None) -> SavepointDone:
        """Takes a savepoint. Raises TidegateError if it fails."""

    async def stop(self) -> None:
        """Requests the final checkpoint and then the end."""


class Command(NamedTuple):
    """A command: where it is sent, and what it does."""

    path: str
    operation: str
    """Its name in the description of the API."""
    summary: str
    answer: type[msgspec.Struct]
    carry_out: Callable[[ControlRoutes, ControlRequest], Coroutine[Any, Any, object]]


async def _stop(commands: ControlRoutes, _order: ControlRequest) -> StopAccepted:
    await commands.stop()
    return StopAccepted()


COMMANDS: Final = (
    Command(
        "/checkpoints",
        "takeCheckpoint",
        "Takes a checkpoint now.",
        CheckpointDone,
        lambda commands, _order: commands.take_checkpoint(),
    ),
    Command(
        "/savepoints",
        "takeSavepoint",
        "Takes a savepoint.",
        SavepointDone,
        lambda commands, order: commands.take_savepoint(order.directory),
    ),
    Command("/stop", "stop", "Takes the final checkpoint, then ends the daemon.", StopAccepted, _stop),
)


class CommandHandlers:
    """The handlers of the paths. `serve` connects them to the daemon; before that they respond with 503.

    `names` are the configured host names of the server, in addition to its addresses. `tell` takes each command.
    """

    def __init__(
        self, places: Places, names: Collection[str], tls: ServerTls | None, tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self._places = places
        self._names = names
        self._tls = tls
        self._served: tuple[ControlRoutes, asyncio.AbstractEventLoop, str] | None = None
        self._under_way = 0

    def serve(self, commands: ControlRoutes, loop: asyncio.AbstractEventLoop, token: str) -> None:
        """Accepts commands with this `token` from now on; they are carried out on `loop`."""
        self._served = commands, loop, token

    @property
    def token(self) -> str | None:
        """The token that authorizes commands; None until commands are accepted."""
        return None if self._served is None else self._served[2]

    def add_to(self, application: web.Application) -> None:
        """Registers the paths."""
        for command in COMMANDS:
            for path in (command.path, API + command.path):
                application.router.add_post(path, partial(self._answer, command))

    def refuse(self, request: web.Request) -> HttpRefusal | None:
        """Returns None if the sender of a request has the role `operate`."""
        caller, _ = find_caller(request, self._tls)
        if not (caller.own_machine or caller.encrypted):
            return ELSEWHERE
        if self._served is None:
            return NOT_READY
        return decide_order(request.headers, {*self._names, *_own_address(request)}, self._served[2], caller)

    def log(self, request: web.Request, what: str, status: int) -> None:
        """Logs a request that needs the role `operate`, with its result.

        Refusals of unauthenticated clients are counted instead.
        """
        said = "done" if status < HTTPStatus.BAD_REQUEST else f"refused with {status}"
        if status in UNAUTHENTICATED:
            self._places.complaints.report(f"{what} of an unauthenticated client: {said}")
            return
        name = find_caller(request, self._tls)[1]
        line = f"{what} from {request.remote}{f' ({name})' if name else ''}: {said}"
        logger.info("%s", line)
        if request.method == "POST":
            self._tell(line)

    async def _answer(self, command: Command, request: web.Request) -> web.Response:
        """Handles a command and logs one line for it; repeated refusals are counted instead."""
        answer = await self._decide(command, request)
        self.log(request, f"command {request.path}", answer.status)
        return answer

    async def _decide(self, command: Command, request: web.Request) -> web.Response:
        refusal = self.refuse(request)
        if refusal is None and request.content_type != JSON:
            refusal = HttpRefusal(415, "bad-request", f"send {JSON}")
        if refusal is None and self._under_way >= ORDERS_MAX:
            refusal = HttpRefusal(503, "busy", f"{ORDERS_MAX} commands are in progress; try again")
        if refusal is not None:
            return answer_refusal(refusal)
        assert self._served is not None, "it is refused otherwise"
        commands, loop, _ = self._served
        self._under_way += 1
        try:
            return await self._carry_out(command, request, commands, loop)
        finally:
            self._under_way -= 1

    async def _carry_out(
        self, command: Command, request: web.Request, commands: ControlRoutes, loop: asyncio.AbstractEventLoop
    ) -> web.Response:
        try:
            order = msgspec.json.decode(await request.read(), type=ControlRequest)
        except UNDECODABLE as error:
            return answer_refusal(HttpRefusal(400, "bad-request", str(error)))
        except web.HTTPRequestEntityTooLarge:
            message = f"the body has more than {REQUEST_BYTES_MAX} bytes: send the pipeline and the directory alone"
            return answer_refusal(HttpRefusal(413, "bad-request", message))
        if order.pipeline != commands.pipeline:
            message = (
                f"this daemon runs pipeline {commands.pipeline!r}, not {order.pipeline!r}: two files may have the same "
                "`http.port`; name the address of the right daemon"
            )
            return answer_refusal(HttpRefusal(409, "other-pipeline", message))
        place = self._places.find(request.protocol)
        if place is not None:
            place.order_begins()
        work = command.carry_out(commands, order)
        try:
            running = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the daemon's loop is closed: hang up, as on clients that are already waiting
            work.close()
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            done = await asyncio.wrap_future(running)
        except TidegateError as error:
            return answer_refusal(HttpRefusal(_status_of(error), error.code, redact(error.message)))
        return web.Response(body=msgspec.json.encode(done) + b"\n", content_type=JSON)


def _own_address(request: web.Request) -> list[str]:
    """Returns the address that the client connected to."""
    own = None if request.transport is None else request.transport.get_extra_info("sockname")
    return [str(own[0])] if own else []


def _status_of(error: TidegateError) -> int:
    """Returns the status of a failed command: 400 if the command is wrong, 503 if a retry may help."""
    if error.exit_code == 2:
        return 400
    passing = error.retriable and not (isinstance(error, StorageError) and is_lasting(error))
    return 503 if passing else 500


def answer_refusal(refusal: HttpRefusal) -> web.Response:
    """Renders the response when nothing was done."""
    body = msgspec.json.encode(Refusal(refusal.code, refusal.message)) + b"\n"
    return web.Response(status=refusal.status, body=body, content_type=JSON)
