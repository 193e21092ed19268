"""Resources: what can be read over HTTP as JSON, at `/api/v1/NAME`.

A resource is a value with a name, the type of its query, the type of its answer and a function that reads it. The
server mounts it, and openapi.py describes it. See docs/operations/rest.md.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast, get_origin

import msgspec
from aiohttp import ETag, web

from tidegate.daemon.http.admission import HttpRefusal
from tidegate.daemon.http.commands import API, JSON, CommandHandlers, answer_refusal
from tidegate.process.logs import redact

ETAG_BYTES: Final = 16
QUERY_CHARACTERS_MAX: Final = 200
"""Limit of a query in the log."""
_AT: Final = " - at `$."


class ResourceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of a request; the base has none. A field's type is what msgspec makes of a string."""


Q = TypeVar("Q", bound=ResourceQuery)


@dataclass(frozen=True, kw_only=True)
class Resource(Generic[Q]):
    """What can be read at `/api/v1/NAME`."""

    name: str
    summary: str
    """One sentence for the API's description."""
    answer: Any
    """The type of what `read` returns: msgspec renders it as JSON and describes it."""
    read: Callable[[Q], Awaitable[object]]
    """Runs on the loop of the HTTP server, once for all requests with the same query that arrive meanwhile.

    It has 30 s. Raises ResourceRefused.
    """
    query: type[Q] = cast("type[Q]", ResourceQuery)  # noqa: RUF009 - a cast makes nothing
    operates: bool | Callable[[Q], bool] = False
    """Whether reading needs the role `operate`, or with which queries; each such request is a line in the log."""

    kept_s: float = 0.0
    """How long an answer is kept for other viewers, where clients ask often for what is large. Not for aliases."""

    @property
    def path(self) -> str:
        """The path at which it is mounted."""
        return f"{API}/{self.name}"

    def needs_operator(self, query: Q) -> bool:
        """Returns whether reading with this query needs the role `operate`."""
        return self.operates if isinstance(self.operates, bool) else self.operates(query)


class ResourceRefused(Exception):
    """A resource cannot be read. The message names the remedy."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.refusal = HttpRefusal(status, code, message)


class Rendered(NamedTuple):
    """A body and its entity tag."""

    body: bytes
    etag: str


class ResourceHandlers:
    """The handlers of the resources. Bodies are encoded on `renderer`, not on the server's loop."""

    def __init__(
        self,
        resources: Sequence[Resource[Any]],
        commands: CommandHandlers,
        renderer: concurrent.futures.Executor,
    ) -> None:
        self._resources = tuple(resources)
        names = [one.name for one in self._resources]
        if len(set(names)) < len(names):
            raise ValueError(f"resources of the same name: {sorted(names)}")
        self._commands = commands
        self._renderer = renderer
        self._running: dict[tuple[str, ResourceQuery, bool], asyncio.Task[Rendered | HttpRefusal]] = {}

    @property
    def paths(self) -> dict[str, str]:
        """The path of each resource, with its summary."""
        return {one.path: one.summary for one in self._resources}

    def add_to(self, application: web.Application, aliases: Sequence[str]) -> None:
        """Registers the paths; a resource that `aliases` names also gets a path of its name, with indented JSON."""
        for one in self._resources:
            for path in (one.path, f"{one.path}/"):
                application.router.add_get(path, partial(self._answer, one, indented=False))
            if one.name in aliases:
                for path in (f"/{one.name}", f"/{one.name}/"):
                    application.router.add_get(path, partial(self._answer, one, indented=True))

    async def _answer(self, resource: Resource[Any], request: web.Request, *, indented: bool) -> web.Response:
        try:
            query = parse_query(resource, list(request.query.items()))
        except ResourceRefused as refused:
            return answer_refusal(refused.refusal)
        if not resource.needs_operator(query):
            return await self._read(resource, query, request, indented=indented)
        refusal = self._commands.refuse(request)
        answer = answer_refusal(refusal) if refusal else await self._read(resource, query, request, indented=indented)
        asked = redact(request.rel_url.raw_query_string)[:QUERY_CHARACTERS_MAX]
        self._commands.log(request, f"reading {resource.path}?{asked}", answer.status)
        return answer

    async def _read(self, resource: Resource[Q], query: Q, request: web.Request, *, indented: bool) -> web.Response:
        key = (resource.name, query, indented)
        running = self._running.get(key)
        if running is None:
            loop, kept_s = asyncio.get_running_loop(), 0.0 if indented else resource.kept_s
            running = self._running[key] = loop.create_task(self._render(resource, query, indented=indented))
            running.add_done_callback(lambda _: loop.call_later(kept_s, self._running.pop, key))
        found = await asyncio.shield(running)
        return answer_refusal(found) if isinstance(found, HttpRefusal) else answer_rendered(request, found)

    async def _render(self, resource: Resource[Any], query: Any, *, indented: bool) -> Rendered | HttpRefusal:
        try:
            value = await resource.read(query)
        except ResourceRefused as refused:
            return refused.refusal._replace(message=redact(refused.refusal.message))
        return await asyncio.get_running_loop().run_in_executor(
            self._renderer, partial(render, value, indented=indented)
        )


def in_thread(take: Callable[[], object]) -> Callable[[ResourceQuery], Awaitable[object]]:
    """Returns the `read` of a resource without parameters: `take`, on another thread."""

    async def read(_query: ResourceQuery) -> object:
        return await asyncio.to_thread(take)

    return read


def parse_query(resource: Resource[Q], parameters: Sequence[tuple[str, str]]) -> Q:
    """Converts the parameters of a request. Raises ResourceRefused with the parameter at fault. Pure.

    A parameter may be repeated if its field is a tuple.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(resource.query)}
    given: dict[str, list[str]] = {}
    for name, value in parameters:
        if name not in fields:
            allowed = f"it takes {', '.join(fields)}" if fields else "it takes none"
            raise _refuse(f"{resource.path} has no parameter {name[:100]!r}: {allowed}")
        given.setdefault(name, []).append(value)
    values: dict[str, str | list[str]] = {}
    for name, several in given.items():
        repeats = get_origin(fields[name]) is tuple
        if len(several) > 1 and not repeats:
            raise _refuse(f"{resource.path}: parameter {name!r} is given {len(several)} times: give it once")
        values[name] = several if repeats else several[0]
    try:
        return msgspec.convert(values, resource.query, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(_AT)
        name = place.rstrip("`").partition("[")[0]
        if "`int" in what and "got" in what:
            what = f"{values.get(name, '')!r} is not a whole number"
        if place:
            raise _refuse(f"{resource.path}: parameter {name!r}: {what}") from error
        missing = [name for name in fields if f"`{name}`" in what]
        raise _refuse(f"{resource.path}: give the parameter {' and '.join(missing) or what}") from error


def render(value: object, *, indented: bool = False) -> Rendered:
    """Renders JSON, with an entity tag of its bytes."""
    body = msgspec.json.encode(value)
    if indented:
        body = msgspec.json.format(body, indent=2)
    return Rendered(body + b"\n", hashlib.blake2b(body, digest_size=ETAG_BYTES).hexdigest())


def answer_rendered(request: web.Request, rendered: Rendered) -> web.Response:
    """Answers with a body, or with 304 if the client has it already."""
    known = request.if_none_match or ()
    unchanged = any(one.value in (rendered.etag, "*") for one in known)
    answer = web.Response(status=304) if unchanged else web.Response(body=rendered.body, content_type=JSON)
    answer.etag = ETag(rendered.etag)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _refuse(message: str) -> ResourceRefused:
    return ResourceRefused(400, "bad-request", message)
