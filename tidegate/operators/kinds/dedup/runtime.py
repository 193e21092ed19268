"""Finds duplicates row by row, with one state lookup per batch.

A row passes if no earlier row with its key, in the order of arrival, has passed with an event time at most `within`
from its own. So two rows of one key that have passed are further apart than `within`: at most one of them falls in each
time bucket of that length, and only three buckets must be checked.

A row is late if the watermark is higher than its event time, since the entries to compare it with may already be
removed. The watermark of its own partition, which the row carries, decides this, so it does not depend on batches and
restarts. The operator's own watermark also decides; it is ahead of a partition's only if the partition was idle or its
input had ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import plain_values
from tidegate.operators.event_time import TIME
from tidegate.operators.kinds.dedup import DedupOperator
from tidegate.operators.lateness import LateKeyedRuntime
from tidegate.operators.runtime import END_OF_TIME, Out
from tidegate.operators.spec import Slot
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered

FORGOTTEN_AT_ONCE: Final = 2000
"""The number of expired entries to remove in one turn; more if more were added since the last one."""


class DedupRuntime(LateKeyedRuntime[DedupOperator]):
    """Passes rows that are neither late nor duplicates."""

    REASON = "late: the keys that it would be compared with may have been removed"

    def __init__(self, operator: DedupOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._within = operator.within_ms
        self._seen = TimeOrdered(self.state, slot.own_groups)
        self._new = 0
        """Entries that the last batch has added; 0 after the next removal."""
        self._over: int | None = None
        """The last expired bucket, while it may have entries."""

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        batch = self.take_on_time(batch, out, kept_ms=1)
        if batch.height:
            self.pass_on(batch, self._passing(batch), out)

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """Removes nothing after an end of time, because another start may bring more rows."""
        self._clock.advance(watermark_ms)
        if watermark_ms != END_OF_TIME:
            self._over = watermark_ms // self._within - 2
        out.watermark(watermark_ms)

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        """Removes expired entries, in parts."""
        if self._over is None:
            return False
        limit, self._new = max(FORGOTTEN_AT_ONCE, self._new), 0
        if self._seen.remove_due(self._over, limit):
            return True
        self._over = None
        return False

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"remembered": len(self._seen)}

    def _passing(self, batch: pl.DataFrame) -> list[int]:
        """Returns the places of rows that are not duplicates, and records these rows."""
        times = batch[TIME]
        keys = [plain_values(batch[name]) for name in self.operator.keys]
        buckets = times // self._within
        new: dict[Row, tuple[int]] = {}
        if buckets.min() == buckets.max():
            passing = self._passing_of_one(int(buckets[0]), times.to_list(), keys, new)
        else:
            passing = self._passing_of_many(buckets, times.to_list(), keys, new)
        if new:
            self._seen.put_many(new, new.values())
            self._new = len(new)
        return passing

    def _passing_of_one(
        self, bucket: int, times: Sequence[int], keys: Sequence[Sequence[Any]], new: dict[Row, tuple[int]]
    ) -> list[int]:
        """Handles the case that all rows are in one bucket: relevant entries of other buckets are older than the
        batch.
        """
        within, seen = self._within, self._seen
        own = list(zip(repeat(bucket, len(times)), *keys, strict=True))
        left = [place for place, value in enumerate(seen.get_many(own)) if value is None]
        for other in (bucket - 1, bucket + 1):
            rows = [(other, *own[place][1:]) for place in left]
            near = zip(left, seen.get_many(rows), strict=True)
            left = [place for place, value in near if value is None or abs(times[place] - value[0]) > within]
        passing: list[int] = []
        for place in left:
            row = own[place]
            if row not in new:
                new[row] = (times[place],)
                passing.append(place)
        return passing

    def _passing_of_many(
        self, buckets: pl.Series, times: Sequence[int], keys: Sequence[Sequence[Any]], new: dict[Row, tuple[int]]
    ) -> list[int]:
        """Handles the case that a row may duplicate a row of another bucket in the same batch."""
        within = self._within
        own, before, after = (list(zip((buckets + step).to_list(), *keys, strict=True)) for step in (0, -1, 1))
        rows = list({*own, *before, *after})
        found = zip(rows, self._seen.get_many(rows), strict=True)
        near = {row: value[0] for row, value in found if value is not None}
        near_at = near.get
        passing: list[int] = []
        for place, time in enumerate(times):
            row = own[place]
            if row in near:
                continue
            earlier, later = near_at(before[place]), near_at(after[place])
            if (earlier is None or time - earlier > within) and (later is None or later - time > within):
                near[row] = time
                new[row] = (time,)
                passing.append(place)
        return passing
