"""`missing: wait 30s`: a row without a row in the table waits for it, at most for this time by the clock.

Rows of a key leave in their order, so a row also waits behind those of its key that have not left yet. Neither a
watermark nor a status overtakes waiting rows. At the end of a bounded stream waiting ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.operators.kinds.lookup import STREAM, LookupOperator
from tidegate.operators.kinds.lookup.running.joining import LookupRuntime
from tidegate.operators.kinds.lookup.running.waiting_rows import WaitingStreamRows
from tidegate.operators.latest_rows.runtime import read_keys
from tidegate.operators.runtime import END_OF_TIME, LOWEST, BatchTooLarge, Out
from tidegate.operators.spec import Slot
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.state.base import Key

ROWS_AT_ONCE: Final = 1000
"""How many waiting rows leave in one call."""
KEYS_AT_ONCE: Final = 1000
"""How many keys whose row has arrived are looked up in one call."""


class WaitingLookupRuntime(LookupRuntime):
    """A lookup with waiting rows."""

    def __init__(self, operator: LookupOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._wait_ms = operator.missing.wait_ms
        self._now_ms = slot.now_ms
        self._waiting = WaitingStreamRows(self._opened[1], operator)
        self._ready: dict[Key, None] = {}
        """Keys whose row in the table has arrived since their rows wait."""
        self._incoming_ms = LOWEST
        self._passed_ms = LOWEST
        self._idle = False
        """The input is idle; said when no row waits any more."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        waiting = self._waiting
        until = {WAITING_UNTIL: waiting.until_ms} if waiting.count else {}
        return {**super().gauges, WAITING_ROWS: waiting.count, **until}

    @property
    @override
    def settled(self) -> bool:
        self._load()
        return not self._ready and not (self._ended and self._waiting.count)

    @property
    def _ended(self) -> bool:
        return self._incoming_ms == END_OF_TIME

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        self._load()
        return self._waiting.first_until_ms

    def _load(self) -> None:
        """Reads the waiting rows of a checkpoint. Their rows in the table may have arrived already."""
        self._ready.update(dict.fromkeys(self._waiting.load(self._now_ms() + self._wait_ms)))

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._load()
        if port == STREAM:
            self._join(batch, out)
            return
        changes = self._apply(batch, out)
        self._ready.update((one.key, None) for one in changes if one.key in self._waiting)
        if self._ready:
            self._release_ready(ROWS_AT_ONCE, out)

    @override
    def _join(self, batch: pl.DataFrame, out: Out) -> None:
        """Emits rows that have a row in the table, and keeps the others unless their key is NULL."""
        joined, found = self._with_table(batch)
        if not self._waiting.count and found.all():
            self._emit(joined, out)
            return
        keys = read_keys(batch, self._operator.key_columns[STREAM])
        known = found.to_list()
        waits = [
            not _is_null(key) and (not there or key in self._waiting) for key, there in zip(keys, known, strict=True)
        ]
        if any(waits):
            mask = pl.Series(waits)
            until_ms = self._now_ms() + self._wait_ms
            self._waiting.add(batch.filter(mask), [key for key, one in zip(keys, waits, strict=True) if one], until_ms)
            joined = joined.filter(~mask)
        self._emit(joined, out)

    # -- rows that leave -----------------------------------------------------------------------------------------------

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        self._load()
        limit = min(rows_max, ROWS_AT_ONCE)
        if self._ended and self._waiting.count:
            return self._release_due(END_OF_TIME, limit, out)
        return bool(self._ready) and self._release_ready(limit, out)

    @override
    def on_time(self, now_ms: int, out: Out) -> bool:
        self._release_due(now_ms, ROWS_AT_ONCE, out)
        first_ms = self._waiting.first_until_ms
        return first_ms is not None and first_ms <= now_ms

    def _release_due(self, now_ms: int, limit: int, out: Out) -> bool:
        """Emits rows that give up, with the row of the table if there is one."""
        before = self._waiting.count
        for frame in self._waiting.take_due(now_ms, limit):
            self._release(frame, out)
        self._pass_on(out)
        return self._waiting.count < before

    def _release_ready(self, limit: int, out: Out) -> bool:
        """Emits rows whose row in the table has arrived. A key whose row is gone again goes on waiting."""
        keys = [*islice(self._ready, KEYS_AT_ONCE)]
        taken: list[Key] = []
        for key, value in zip(keys, self._rows.get_many(keys), strict=True):
            if value is not None:
                rows = self._waiting.rows_of(key)
                taken += [key] * min(rows, limit - len(taken))
                if len(taken) == limit:
                    break
            del self._ready[key]
        for frame in self._waiting.take(taken):
            self._release(frame, out)
        self._pass_on(out)
        return True

    def _release(self, frame: pl.DataFrame, out: Out) -> None:
        """Emits waiting rows, in parts if the rows of the table are large."""
        try:
            joined, _ = self._with_table(frame)
        except BatchTooLarge:
            half = frame.height // 2
            self._release(frame[:half], out)
            self._release(frame[half:], out)
        else:
            self._emit(joined, out)

    # -- event time ----------------------------------------------------------------------------------------------------

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._load()
        self._rows.advance(watermark_ms)
        self._incoming_ms = max(self._incoming_ms, watermark_ms)
        if self._ended:
            self._release_due(END_OF_TIME, ROWS_AT_ONCE, out)
        self._pass_on(out)

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        self._load()
        self._idle = idle
        if idle:
            self._pass_on(out)
        else:
            out.status(False)

    def _pass_on(self, out: Out) -> None:
        """Passes on what waiting rows allow: watermarks up to before them, a status after them."""
        reached_ms, first_ms = self._incoming_ms, self._waiting.first_time_ms
        if first_ms is not None:
            reached_ms = min(reached_ms, first_ms - 1)
        elif self._ended and self._waiting.count:
            reached_ms = self._passed_ms
        if reached_ms > self._passed_ms:
            self._passed_ms = reached_ms
            out.watermark(reached_ms)
        if self._idle and not self._waiting.count:
            self._idle = False
            out.status(True)


def _is_null(key: Key) -> bool:
    return key is None or (isinstance(key, tuple) and None in key)
