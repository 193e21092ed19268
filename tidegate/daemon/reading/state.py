"""The resource `state`: sizes per step and state in the newest checkpoint, and the rows of one key.

Sizes are those in the journal. Rows are read by a process of its own, need the role `operate`, and are masked.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterable
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.config.models import PipelineSettings
from tidegate.daemon.http.redaction import MaskedRow, mask_json
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused
from tidegate.daemon.reading.child import DEADLINE_S, UNAVAILABLE, ChildReader
from tidegate.daemon.reading.read_state import FoundRows, LookupRequest
from tidegate.errors import TidegateError
from tidegate.state.declaration import StateShape
from tidegate.tables.files import StateHandles, list_states, read_shape
from tidegate.tables.source import StateSnapshot, open_snapshot

MODULE: Final = "tidegate.daemon.reading.read_state"
KEPT_S: Final = 5.0
"""How long sizes are kept, so that several viewers cost one read of the journal."""
STATUSES: Final = MappingProxyType({"state-unknown": 404, "state-query-refused": 400})
_EMPTY: Final = "state-source-refused"
"""The code of the error for a directory without checkpoints."""


class StateQuery(ResourceQuery, frozen=True, kw_only=True):
    """Without `key`, sizes are read; with it, the rows of that key."""

    step: str | None = None
    """The step; all if it is not given."""
    state: str | None = None
    """The state of the step, if it has several."""
    key: tuple[str, ...] = ()
    """`COLUMN=VALUE`; once for each column of the key."""


class KeyColumn(msgspec.Struct, frozen=True):
    """A column of the key of a state."""

    name: str
    type: str


class StateSize(msgspec.Struct, frozen=True):
    """One state of one step in the checkpoint."""

    step: str
    state: str
    form: str
    """`keyed`, or the kind of list that the step keeps for itself."""
    keys: list[KeyColumn]
    """The columns of a key; none for lists."""
    files: int
    size_bytes: int


class StateContents(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest checkpoint holds: sizes, or the rows of a key."""

    checkpoint: int | None
    """None if there is no checkpoint yet."""
    completed_at_ms: int | None
    states: list[StateSize] = []
    """In the order of the checkpoint; empty if rows are read."""
    in_flight_bytes: int = 0
    """The rows that barriers have overtaken."""
    rows: list[MaskedRow] | None = None
    """The rows of the key, with values as in the JSON format; None if sizes are read."""
    cut: bool = False
    """True if there are more rows than these."""
    command: str | None = None
    """The command that reads all rows of the key."""


def make_state_resource(
    loaded: LoadedPipeline, masked: Collection[str], elapsed: Callable[[], float] = time.monotonic
) -> Resource[StateQuery]:
    """Makes the resource. `masked` are the columns that are never shown; `elapsed` returns monotonic seconds."""
    sizes = _Sizes(loaded.settings, elapsed)
    lookup = _Lookup(loaded, masked)

    async def read(query: StateQuery) -> StateContents:
        return await (lookup.read(query) if query.key else sizes.read(query))

    return Resource(
        name="state",
        summary="The size of each state in the newest checkpoint, or with `step` and `key` the rows of that key.",
        answer=StateContents,
        read=read,
        query=StateQuery,
        operates=lambda query: bool(query.key),
    )


class _Lookup:
    """Reads the rows of a key."""

    def __init__(self, loaded: LoadedPipeline, masked: Collection[str]) -> None:
        checkpoints = loaded.settings.checkpoints
        self._directory = str(checkpoints.directory)
        self._options = checkpoints.storage.options
        self._command = f"tidegate state read {shlex.quote(loaded.file)}"
        self._masked = masked
        self._child = ChildReader(MODULE, FoundRows, STATUSES)

    async def read(self, query: StateQuery) -> StateContents:
        """Returns the rows. Raises ResourceRefused."""
        if query.step is None:
            raise ResourceRefused(400, "bad-request", "a `key` needs a `step`")
        keys = _split(query.key)
        request = LookupRequest(self._directory, self._options, query.step, query.state, keys)
        found = await self._child.read(request)
        rows = await asyncio.to_thread(self._mask, found.rows)
        return StateContents(
            checkpoint=found.checkpoint,
            completed_at_ms=found.completed_at_ms,
            rows=rows,
            cut=found.is_cut,
            command=self._render_command(query),
        )

    def _mask(self, rows: Iterable[str]) -> list[MaskedRow]:
        return [mask_json(row, self._masked) for row in rows]

    def _render_command(self, query: StateQuery) -> str:
        options = [] if query.state is None else ["--state", query.state]
        arguments = [query.step or "", *options, *(argument for text in query.key for argument in ("--key", text))]
        return f"{self._command} {shlex.join(arguments)}"


class _Sizes:
    """The sizes as of at most KEPT_S ago."""

    def __init__(self, settings: PipelineSettings, elapsed: Callable[[], float]) -> None:
        self._directory = str(settings.checkpoints.directory)
        self._opener = derive_opener(settings)
        self._elapsed = elapsed
        self._shapes: dict[tuple[str, str], StateShape] = {}
        """A state has the same shape while this daemon runs."""
        self._kept: tuple[float, StateContents] | None = None
        self._running: concurrent.futures.Future[StateContents] | None = None

    async def read(self, query: StateQuery) -> StateContents:
        """Returns the sizes, of one step if the query names one. Raises ResourceRefused."""
        if self._kept is None or self._elapsed() - self._kept[0] > KEPT_S:
            found = await self._run()
            self._kept = self._elapsed(), found
        found = self._kept[1]
        states = [one for one in found.states if query.step in (None, one.step) and query.state in (None, one.state)]
        return msgspec.structs.replace(found, states=states)

    async def _run(self) -> StateContents:
        """Reads in a thread that the end of the process does not wait for. There is never more than one."""
        if self._running is None or self._running.done():
            self._running = concurrent.futures.Future()
            self._running.set_running_or_notify_cancel()
            threading.Thread(target=self._fill, args=(self._running,), name="state sizes", daemon=True).start()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._running), DEADLINE_S)
        except TimeoutError as error:
            message = f"the checkpoint directory has not answered within {DEADLINE_S:g} s"
            raise ResourceRefused(UNAVAILABLE, "too-slow", message) from error

    def _fill(self, done: concurrent.futures.Future[StateContents]) -> None:
        try:
            done.set_result(self._read())
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            done.set_exception(error)

    def _read(self) -> StateContents:
        try:
            snapshot = open_snapshot(self._directory, None, {}, self._opener)
            states = [self._describe(snapshot, one) for one in list_states(snapshot)]
        except TidegateError as error:
            if error.code == _EMPTY:
                return StateContents(checkpoint=None, completed_at_ms=None)
            raise ResourceRefused(UNAVAILABLE, error.code, error.message) from error
        checkpoint = snapshot.checkpoint
        in_flight = sum(handle.size_bytes for handle in checkpoint.states if handle.in_flight)
        return StateContents(
            checkpoint=checkpoint.id,
            completed_at_ms=checkpoint.completed_at_ms,
            states=states,
            in_flight_bytes=in_flight,
        )

    def _describe(self, snapshot: StateSnapshot, state: StateHandles) -> StateSize:
        name = (state.operator, state.state)
        if name not in self._shapes:
            self._shapes[name] = read_shape(snapshot, state)
        shape = self._shapes[name]
        keys = [KeyColumn(field.name, str(field.type)) for field in shape.keys]
        size_bytes = sum(handle.size_bytes for handle in state.handles)
        return StateSize(state.operator, state.state, shape.form.value, keys, len(state.handles), size_bytes)


def _split(keys: Collection[str]) -> dict[str, str]:
    """Splits each `COLUMN=VALUE`. Raises ResourceRefused."""
    found: dict[str, str] = {}
    for text in keys:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise ResourceRefused(
                400,
                "bad-request",
                f"key {text[:100]!r}: write COLUMN=VALUE; without `key`, the columns of each key are listed",
            )
        if name in found:
            raise ResourceRefused(400, "bad-request", f"key {name[:100]!r} is given twice: a row has one value of it")
        found[name] = value
    return found
