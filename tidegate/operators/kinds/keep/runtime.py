"""The runtimes of `keep`: the last record of each key, rankings that are updated, and rankings on close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import polars as pl
from typing_extensions import override

from tidegate.expressions.bounds import ELEMENT_BYTES, GROWING
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.event_time import BEHIND, TIME, DueResultsRuntime
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.keep import RANK, LastOperator, Ranking, RankingOperator
from tidegate.operators.lateness import LateKeyedRuntime
from tidegate.operators.runtime import Out, system_columns
from tidegate.operators.spec import Columns, Slot
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered


def rows_of(batch: pl.DataFrame, columns: Columns) -> list[Row]:
    """Returns the rows of a batch as tuples of plain values."""
    return list(zip(*(plain_values(batch[name]) for name, _ in columns), strict=True))


def frame_of(rows: Sequence[Row], ranks: Sequence[int], columns: Columns) -> pl.DataFrame:
    """Returns a frame of rows with their ranks."""
    values = zip(*rows, strict=True)
    made = [make_column(name, kind, column) for (name, kind), column in zip(columns, values, strict=True)]
    return pl.DataFrame([*made, pl.Series(RANK, ranks, dtype=pl.Int64)])


def cut_rows(rows: Sequence[Row], columns: Columns, rows_max: int, bytes_max: int) -> Iterator[slice]:
    """Yields parts of at most `rows_max` rows and about `bytes_max` bytes, with at least one row each.

    Rows of a state may be of any length, independent of the batch that causes them to be emitted.
    """
    growing = [place for place, (_, kind) in enumerate(columns) if kind.kind in GROWING]
    start, size = 0, 0
    for place, row in enumerate(rows):
        weight = sum(_weigh(row[column]) for column in growing)
        if place - start >= rows_max or (place > start and size + weight > bytes_max):
            yield slice(start, place)
            start, size = place, 0
        size += weight
    if start < len(rows):
        yield slice(start, len(rows))


def _weigh(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(ELEMENT_BYTES + _weigh(part) for part in value) if isinstance(value, tuple) else 0


class LastRuntime(KeyedRuntime[LastOperator]):
    """Passes a row if its event time is not before the last one of its key. Of equal times, the last arrival wins.

    Rows of a key are emitted with event times that never decrease, so the last record of a key in a compacted topic is
    the last one by event time.
    """

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        keys = self.keys_of(batch)
        lasts = {key: value[0] for key, value in self.look_up(keys).items() if value is not None}
        new: dict[Any, tuple[int]] = {}
        passing: list[int] = []
        for place, (key, time) in enumerate(zip(keys, batch[TIME].to_list(), strict=True)):
            if key not in lasts or time >= lasts[key]:
                lasts[key] = time
                new[key] = (time,)
                passing.append(place)
        if new:
            self.state.put_many(new, new.values())
            self.pass_on(batch, passing, out)


EMITTED_AT_ONCE: Final = 5000


class UpdatingRuntime(KeyedRuntime[RankingOperator]):
    """Updates rankings. A row that gets a rank is emitted, with all rows that it moves down.

    The newest row of a key and rank is the valid one. What is emitted for a row does not depend on batches.
    """

    def __init__(self, operator: RankingOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._columns = operator.columns
        self._order = operator.order()
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        keys = self.keys_of(batch)
        rankings = {
            key: Ranking(self._order, () if value is None else value[0], self.operator.places)
            for key, value in self.look_up(keys).items()
        }
        changed: dict[Any, None] = {}
        places: list[int] = []
        rows: list[Row] = []
        ranks: list[int] = []
        for place, (key, row) in enumerate(zip(keys, rows_of(batch, self._columns), strict=True)):
            ranking = rankings[key]
            first = self._order.first(row)
            if not ranking.admits(first):
                continue
            entered = ranking.enter(row, first)
            if entered is None:
                continue
            changed[key] = None
            moved = ranking.rows[entered:]
            rows += moved
            ranks += range(entered + 1, entered + 1 + len(moved))
            places += [place] * len(moved)
        self.state.put_many(changed, [(rankings[key].rows,) for key in changed])
        for part in cut_rows(rows, self._columns, min(EMITTED_AT_ONCE, self._rows_max), self._bytes_max):
            system = batch[system_columns(batch)][places[part]]
            out.emit(pl.concat([frame_of(rows[part], ranks[part], self._columns), system], how="horizontal"))


ROWS_AT_ONCE: Final = 5000
"""The approximate maximum of rows emitted in one call."""
_FIRST_RANKINGS: Final = 16
"""How many rankings are taken from the state before the size of their rows is known."""


class ClosingRuntime(DueResultsRuntime, LateKeyedRuntime[RankingOperator]):
    """Ranks the rows of each key and event time once: when the watermark passes the time, no further rows follow.

    It is made for the results of windows, whose event time is the end of their window less 1 ms. Rows behind the
    watermark are late, because their ranking is closed.
    """

    REASON = "late: its ranking was closed"

    def __init__(self, operator: RankingOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._columns = operator.columns
        self._places = operator.places
        self._order = operator.order()
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max
        self._rankings = TimeOrdered(self.state, slot.own_groups)
        self._at_once_max = max(1, ROWS_AT_ONCE // self._places)
        self._at_once = min(_FIRST_RANKINGS, self._at_once_max)
        """How many rankings are taken in one call: fewer if their rows do not fit into one part, more otherwise."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"open_rankings": len(self._rankings)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        batch = self.take_on_time(batch, out)
        if not batch.height:
            return
        keys = list(zip(batch[TIME].to_list(), *(plain_values(batch[key]) for key in self.operator.keys), strict=True))
        known = dict.fromkeys(keys)
        rankings = {
            key: Ranking(self._order, () if value is None else value[0], self._places)
            for key, value in zip(known, self._rankings.get_many(known), strict=True)
        }
        changed: dict[Row, None] = {}
        for key, row in zip(keys, rows_of(batch, self._columns), strict=True):
            ranking = rankings[key]
            first = self._order.first(row)
            if ranking.admits(first) and ranking.enter(row, first) is not None:
                changed[key] = None
        self._rankings.put_many(changed, [(rankings[key].rows,) for key in changed])

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:  # its own limit applies, not `rows_max`
        limit = self._at_once
        taken = self._rankings.take_due(watermark_ms, limit)
        if taken:
            if self._clock.ending:
                closed = [key for key, _ in taken]
                self._clock.fired([key[0] for key in closed], self.groups_of([key[1:] for key in closed]))
            rows = [row for _, value in taken for row in value[0]]
            ranks = [rank + 1 for _, value in taken for rank in range(len(value[0]))]
            times = [key[0] for key, value in taken for _ in value[0]]
            parts = list(cut_rows(rows, self._columns, self._rows_max, self._bytes_max))
            self._at_once = min(self._at_once_max, 2 * limit) if len(parts) <= 1 else max(1, limit // len(parts))
            for part in parts:
                frame = frame_of(rows[part], ranks[part], self._columns)
                out.emit(frame.with_columns(pl.Series(TIME, times[part], pl.Int64), pl.lit(0, pl.Int64).alias(BEHIND)))
        return len(taken) == limit
