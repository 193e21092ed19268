"""Measures how far rows are behind the watermark of their partition (ADR 34), and detects, counts and emits late ones.

`keyed/__init__.py` has the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeVar

import polars as pl
from typing_extensions import override

from tidegate.datatypes import RESERVED
from tidegate.formats.columns import TIMESTAMP
from tidegate.native.key_groups import measure_in_c
from tidegate.native.library import loaded
from tidegate.operators.event_time import BEHIND, TIME, WATERMARK, EventClock
from tidegate.operators.keyed import LateKeyedOperator
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.runtime import Out
from tidegate.operators.spec import LATE, Columns, Slot
from tidegate.state.keygroups import key_group_of

FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999
"""0001-01-01 and the end of 9999: no event time is outside."""
_LAST_END_MS: Final = LAST_MS + 1000 * 86_400_000
"""Windows of 366 days end before this, even if records may be 366 days late."""


class LateRows:
    """The late rows of one subtask."""

    def __init__(
        self, clock: EventClock, keys: Sequence[str], max_parallelism: int, columns: Columns, reason: str
    ) -> None:
        """`columns`: the columns of late rows if anything reads them."""
        self._clock = clock
        self._keys = list(keys)
        self._max_parallelism = max_parallelism
        self._columns = [name for name, _ in columns]
        self._reason = reason
        self.count = 0
        """Late rows so far."""

    @property
    def wanted(self) -> bool:
        """True if anything reads late rows."""
        return bool(self._columns)

    def closed_by(self, batch: pl.DataFrame) -> pl.Series | None:
        """Returns for each row the instant before which everything is closed: the position of its partition when it was
        read, or the clock if that is later. None if no row is behind.
        """
        times, behind = batch[TIME], batch[BEHIND]
        over_ms = self._over(batch)
        if over_ms is None:
            return times + behind if behind.max() else None
        closed = times + behind
        return closed.zip_with(closed > over_ms, over_ms)

    def leaves_open(self, batch: pl.DataFrame, from_ms: int) -> bool:
        """Returns whether everything from an instant on is open for all rows; cheaper than `closed_by`."""
        if not self._clock.uniform or after_ms(self._clock.watermark_ms) > from_ms:
            return False
        times, behind = batch[TIME], batch[BEHIND]
        return not behind.max() or int((times + behind).max()) <= from_ms  # type: ignore[arg-type]  # Int64

    def _over(self, batch: pl.DataFrame) -> pl.Series | None:
        """Returns the same instants by the clock alone, or one for all rows; None if no row of the batch is before
        them.
        """
        if self._clock.uniform:
            over_ms = after_ms(self._clock.watermark_ms)
            if not batch.height or over_ms <= int(batch[TIME].min()):  # type: ignore[arg-type]  # Int64
                return None
            return pl.Series([over_ms], dtype=pl.Int64)
        watermarks = self._clock.watermark_of(self.groups_of(batch))
        return pl.Series([after_ms(watermark) for watermark in watermarks], dtype=pl.Int64)

    def groups_of(self, batch: pl.DataFrame) -> list[int]:
        """Returns the key group of each row."""
        groups: list[int] = key_group_of(batch, self._keys, self._max_parallelism).to_list()
        return groups

    def put_aside(self, late: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        """Counts and emits rows that are too late for any use; `closed` is as in `closed_by`."""
        self.count += late.height
        self.show(late, closed, out)

    def show(self, late: pl.DataFrame, closed: pl.Series, out: Out) -> None:
        """Emits late rows that are already counted."""
        if self._columns and late.height:
            reached = (closed - 1).clip(upper_bound=LAST_MS)
            moment = reached.cast(pl.Datetime("ms", "UTC")).cast(TIMESTAMP).alias("_watermark")
            columns = late.with_columns(pl.lit(self._reason).alias("_reason"), moment)
            out.side(LATE, columns.select(*self._columns, pl.col(f"^{RESERVED}.*$")))

    def put_aside_where(self, late: pl.Series, batch: pl.DataFrame, out: Out) -> pl.DataFrame:
        """Removes the late rows from a batch and counts and emits them. Returns the others."""
        if not late.any():
            return batch
        closed = self.closed_by(batch) if self._columns else None
        aside = batch.filter(late)
        self.put_aside(aside, aside[TIME] if closed is None else closed.filter(late), out)
        return batch.filter(~late)


Late = TypeVar("Late", bound=LateKeyedOperator)


class LateKeyedRuntime(KeyedRuntime[Late]):
    """The base of runtimes of steps with keys that find rows late: a subclass sets `REASON` and uses `take_on_time`."""

    REASON: ClassVar[str]
    """Why a row is late, for the output of late rows."""

    def __init__(self, operator: Late, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._clock = EventClock(operator.name, slot.own_groups)
        self.states[WATERMARK.name] = self._clock.state
        columns = operator.pruned_columns(LATE)
        self._late = LateRows(self._clock, operator.keys, slot.max_parallelism, columns, self.REASON)

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return self._late.count

    @override
    def before_snapshot(self) -> None:
        self._clock.before_snapshot()

    def take_on_time(self, batch: pl.DataFrame, out: Out, kept_ms: int = 0) -> pl.DataFrame:
        """Puts late rows aside and returns the others. A row is late if its partition's watermark has passed it, or the
        operator's watermark has reached its time plus `kept_ms`.
        """
        times = batch[TIME] + kept_ms if kept_ms else batch[TIME]
        closed = self._clock.closed(times, lambda: self._late.groups_of(batch))
        return self._late.put_aside_where((batch[BEHIND] > 0) | closed, batch, out)


def after_ms(watermark_ms: int) -> int:
    """Returns the first instant after a watermark, within the supported years; no event is outside of them.

    For an end of time it is after the ends of all windows, which may be later than all event times.
    """
    return max(FIRST_MS, min(_LAST_END_MS, watermark_ms) + 1)


def measure_behind(times: pl.Series, origins: Sequence[int], marks: list[int], delay_ms: int) -> pl.Series:
    """Returns `__tidegate_behind` of rows in offset order within each partition.

    `times` has no NULL. `origins` has the place of each row's partition in `marks`, the watermarks, which are updated.
    """
    lag_ms, library = delay_ms + 1, loaded()
    if library is not None:
        return measure_in_c(library, BEHIND, times, origins, marks, lag_ms)
    behind: list[int] = []
    for origin, time_ms in zip(origins, times.to_list(), strict=True):
        mark = marks[origin]
        behind.append(max(0, mark + 1 - time_ms))
        marks[origin] = max(mark, time_ms - lag_ms)
    return pl.Series(BEHIND, behind, dtype=pl.Int64)
