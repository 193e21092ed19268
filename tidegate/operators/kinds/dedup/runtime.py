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
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME, EventClock
from tidegate.operators.kinds.dedup import DedupOperator
from tidegate.operators.lateness import LateRows
from tidegate.operators.runtime import END_OF_TIME, OperatorRuntime, OperatorState, Out, system_columns
from tidegate.operators.spec import LATE, Slot
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered

REASON: Final = "late: the keys that it would be compared with may have been removed"
FORGOTTEN_AT_ONCE: Final = 2000
"""The number of expired entries to remove in one turn; more if more were added since the last one."""


class DedupRuntime(OperatorRuntime):
    """Passes rows that are neither late nor duplicates."""

    def __init__(self, operator: DedupOperator, slot: Slot) -> None:
        self._keys = list(operator.keys)
        self._output = [name for name, _ in operator.pruned_columns()]
        self._within = operator.within_ms
        types = dict(operator.columns)
        kinds = [types[key] for key in operator.keys]
        declaration, _ = operator.states(slot.max_parallelism)
        self._state = slot.open_state(
            operator.name, declaration, lambda rows: key_groups_of_keys(rows, kinds, slot.max_parallelism)
        )
        self._seen = TimeOrdered(self._state, slot.own_groups)
        self._clock = EventClock(operator.name, slot.own_groups)
        self._late = LateRows(self._clock, self._keys, slot.max_parallelism, operator.pruned_columns(LATE), REASON)
        self._new = 0
        """Entries that the last batch has added; 0 after the next removal."""
        self._over: int | None = None
        """The last expired bucket, while it may have entries."""

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return self._late.count

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return {state.declaration.name: state for state in (self._state, self._clock.state)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        late = (batch[BEHIND] > 0) | self._clock.closed(batch[TIME] + 1, lambda: self._late.groups_of(batch))
        batch = self._late.put_aside_where(late, batch, out)
        if batch.height:
            passing = self._passing(batch)
            passed = batch if len(passing) == batch.height else batch[passing]
            out.emit(passed[self._output + system_columns(batch)])

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

    @override
    def before_snapshot(self) -> None:
        self._clock.before_snapshot()

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"remembered": len(self._seen)}

    def _passing(self, batch: pl.DataFrame) -> list[int]:
        """Returns the places of rows that are not duplicates, and records these rows."""
        times = batch[TIME]
        keys = [plain_values(batch[name]) for name in self._keys]
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
