"""Taps: rows of one output, copied by the slots of the running attempt and sampled over them; and the resource `tap`.

The slots copy independently of each other, so a tap ends when there are enough rows and every slot had a moment to
contribute, when its time is over, or when the attempt ends. The resource masks the rows, for those who may operate the
pipeline.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain, zip_longest
from typing import Annotated, Any, Final

import msgspec

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.daemon.http.redaction import MaskedRow, mask_json
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused
from tidegate.errors import TidegateError
from tidegate.ids import SlotIndex
from tidegate.plan.graph import Plan
from tidegate.plan.taps import TapPoint, derive_masked_columns, find_tap_points
from tidegate.task.messages import DriverMessage, EndTap, RowsTapped, TapRows

BYTES_MAX: Final = 100_000
"""All rows of a tap together, and what one slot sends for it."""
TAP_S: Final = 10.0
GATHER_S: Final = 1.0
"""How long the other slots have to contribute once there are enough rows."""


class TapEnd(StrEnum):
    """Why a tap has ended."""

    ROWS = "rows"
    """It has as many rows as were requested."""
    BYTES = "bytes"
    """A further row would exceed BYTES_MAX."""
    TIME = "time"
    """No more rows came within TAP_S."""
    RESTART = "restart"
    """The attempt ended, for instance because a slot died."""


class TappedRows(msgspec.Struct, frozen=True):
    """The rows of a tap, each a JSON object in UTF-8 as the slot has written it: not masked."""

    rows: tuple[bytes, ...]
    ended: TapEnd


class SlotTaps:
    """The taps of one attempt with this many slots, on the daemon's loop. `send_all` sends an order to each of them."""

    def __init__(self, send_all: Callable[[DriverMessage], object], slots: int) -> None:
        self._send_all = send_all
        self._slots = slots
        self._taps: dict[int, _Tap] = {}
        self._last = 0
        self._over = False

    async def copy(self, points: Sequence[TapPoint], rows_max: int) -> TappedRows:
        """Copies the next rows of these outputs."""
        if self._over:
            return TappedRows((), TapEnd.RESTART)
        self._last += 1
        number, tap = self._last, _Tap(self._slots, rows_max)
        self._taps[number] = tap
        self._send_all(TapRows(number, tuple(points), rows_max, BYTES_MAX))
        try:
            async with asyncio.timeout(TAP_S):
                await tap.enough.wait()
        except TimeoutError:
            return tap.result(TapEnd.TIME)
        else:
            await tap.wait_all(GATHER_S)
            return tap.result(TapEnd.RESTART)
        finally:
            del self._taps[number]
            self._send_all(EndTap(number))

    def on_rows(self, slot: SlotIndex, message: RowsTapped) -> None:
        """Handles rows of a slot. Those of a tap that has ended arrive late, and are ignored."""
        tap = self._taps.get(message.tap)
        if tap is not None:
            tap.add(slot, message)

    def close(self) -> None:
        """Ends all taps with the rows that they have, because the attempt is over."""
        self._over = True
        for tap in self._taps.values():
            tap.end()


class _Tap:
    """What the slots have sent for one tap."""

    def __init__(self, slots: int, rows_max: int) -> None:
        self.enough = asyncio.Event()
        self._all = asyncio.Event()
        self._slots = slots
        self._rows_max = rows_max
        self._rows: dict[SlotIndex, list[bytes]] = {}
        self._full = False

    def add(self, slot: SlotIndex, message: RowsTapped) -> None:
        self._rows.setdefault(slot, []).extend(message.rows)
        self._full |= message.full
        if self._full or sum(map(len, self._rows.values())) >= self._rows_max:
            self.enough.set()
        if len(self._rows) == self._slots:
            self._all.set()

    def end(self) -> None:
        self.enough.set()
        self._all.set()

    async def wait_all(self, seconds: float) -> None:
        """Waits until every slot has contributed, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._all.wait()
        except TimeoutError:
            return

    def result(self, otherwise: TapEnd) -> TappedRows:
        """Returns the sample, and why it is one: `otherwise`, unless it is complete or full."""
        rows, cut = choose_rows(self._rows, self._rows_max, BYTES_MAX)
        if len(rows) == self._rows_max:
            return TappedRows(rows, TapEnd.ROWS)
        return TappedRows(rows, TapEnd.BYTES if cut or self._full else otherwise)


def choose_rows(
    rows_of: Mapping[SlotIndex, Iterable[bytes]], rows_max: int, bytes_max: int
) -> tuple[tuple[bytes, ...], bool]:
    """Chooses rows in turn from each slot, and tells whether the limit of bytes has ended the choice. Pure."""
    turns = chain.from_iterable(zip_longest(*(rows for _, rows in sorted(rows_of.items()))))
    chosen: list[bytes] = []
    size = 0
    for row in turns:
        if row is None:
            continue
        size += len(row)
        if size > bytes_max:
            return tuple(chosen), True
        chosen.append(row)
        if len(chosen) == rows_max:
            break
    return tuple(chosen), False


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
