"""The resource `tap`: sampled rows of a step's output, masked, for those who may operate the pipeline."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.daemon.http.redaction import MaskedRow, mask_json
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused
from tidegate.daemon.taps import TapEnd, TappedRows
from tidegate.errors import TidegateError
from tidegate.plan.graph import Plan
from tidegate.plan.taps import TapPoint, derive_masked_columns, find_tap_points

ROWS_MAX: Final = 100
ROWS: Final = 10
TAPS_MAX: Final = 4
"""Taps of different steps at a time; one step has one."""

CopyRows = Callable[[Sequence[TapPoint], int], Coroutine[Any, Any, TappedRows]]


class TapUnavailable(TidegateError):
    """No rows can be copied, because no attempt is running."""

    code = "tap-unavailable"
    exit_code = 1
    retriable = True


class TapQuery(ResourceQuery, frozen=True, kw_only=True):
    """Which rows to copy, and how many."""

    step: str
    """The name of a source, a step or a sink; a side output is `step.output`."""
    rows: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS


class TapAnswer(msgspec.Struct, frozen=True):
    """A sample of rows. `rows` are objects, with values as in the JSON format."""

    step: str
    rows: list[MaskedRow]
    cut: bool
    """Whether rows were left out because of the limit of 100 kB."""
    ended: TapEnd


class TapService:
    """Copies rows for HTTP. `serve` connects it to the daemon; before that it answers 503.

    `redact` are the columns of `http.redact`. Everything except the copying runs on the loop of the HTTP server.
    """

    def __init__(self, plan: Plan, redact: Iterable[str]) -> None:
        self._points = find_tap_points(plan)
        self._masked = derive_masked_columns(plan, redact)
        self._served: tuple[CopyRows, asyncio.AbstractEventLoop] | None = None
        self._tapped: set[str] = set()
        self.resource = Resource(
            name="tap",
            summary="Rows of a step's output, copied from its next batches and masked; takes up to 10 s.",
            answer=TapAnswer,
            read=self._read,
            query=TapQuery,
            operates=True,
        )

    def serve(self, copy: CopyRows, loop: asyncio.AbstractEventLoop) -> None:
        """Accepts requests from now on; rows are copied on `loop`, that of the daemon."""
        self._served = copy, loop

    async def _read(self, query: TapQuery) -> TapAnswer:
        points = self._points.get(query.step)
        if points is None:
            remedy = derive_suggestion(query.step, self._points, otherwise="`tidegate explain` lists them")
            raise ResourceRefused(404, "unknown-step", f"there is no output {query.step[:100]!r}: {remedy}")
        if self._served is None:
            raise ResourceRefused(503, "not-ready", "the daemon is still starting; try again")
        if query.step in self._tapped or len(self._tapped) >= TAPS_MAX:
            what = f"{query.step!r}" if query.step in self._tapped else f"{TAPS_MAX} steps"
            raise ResourceRefused(503, "busy", f"rows of {what} are being copied for another request; try again")
        self._tapped.add(query.step)
        try:
            return await self._copy(query, points, *self._served)
        finally:
            self._tapped.remove(query.step)

    async def _copy(
        self, query: TapQuery, points: Sequence[TapPoint], copy: CopyRows, loop: asyncio.AbstractEventLoop
    ) -> TapAnswer:
        copying = copy(points, query.rows)
        try:
            future: concurrent.futures.Future[TappedRows] = asyncio.run_coroutine_threadsafe(copying, loop)
        except RuntimeError as error:  # the daemon's loop is closed
            copying.close()
            raise ResourceRefused(503, "not-ready", "the daemon has ended") from error
        try:
            tapped = await asyncio.wrap_future(future)
        except TidegateError as error:
            raise ResourceRefused(503, error.code, error.message) from error
        rows = await asyncio.to_thread(self._mask, tapped.rows)
        return TapAnswer(query.step, rows, tapped.ended is TapEnd.BYTES, tapped.ended)

    def _mask(self, rows: Iterable[bytes]) -> list[MaskedRow]:
        return [mask_json(row, self._masked) for row in rows]
