"""Changes the state of the latest rows by a batch. Imported only where operators run, because it imports Polars."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import polars as pl

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import holds_kind
from tidegate.expressions.bounds import ELEMENT_BYTES
from tidegate.formats.columns import plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.event_time import TIME
from tidegate.operators.latest_rows import PARTITION, PLACE, TOPIC
from tidegate.operators.runtime import END_OF_TIME, LOWEST, BatchTooLarge
from tidegate.operators.spec import Columns
from tidegate.operators.sweep import SWEPT_AT_ONCE, Sweep
from tidegate.state.base import Key, KeyedState
from tidegate.state.snapshot import Value

FIRST: Final = len(PLACE)
"""The index of the first column in a value."""


NO_ROW: Final = -1
SWEEPS: Final = 20
"""Sweeps per ttl."""


class RowChange(NamedTuple):
    """The net effect of a batch on a key. None: the table has no row of the key."""

    key: Key
    before: Value | None
    after: Value | None
    row: int
    """The last row of the batch with this key, or `NO_ROW`."""


class LatestRows:
    """The latest row of each key, by arrival.

    With a ttl, a row ends when the watermark is more than the ttl after its last event time. From then on it is not
    found, and it is removed when a sweep comes to it.
    """

    def __init__(
        self,
        state: KeyedState[Any],
        keys: Sequence[str],
        held: Columns,
        place: Collection[str] = (PARTITION, TOPIC),
        ttl: Ttl | None = None,
    ) -> None:
        """`keys`, `held` and `place` are columns of a batch."""
        self.state = state
        self._keys = list(keys)
        self._held = [name for name, _ in held]
        self._place = place
        self._ttl = ttl
        self._watermark_ms = LOWEST
        self._sweep = None if ttl is None else Sweep(state, ttl, lambda: LOWEST)
        self._next_sweep_ms = LOWEST
        self._floating = any(holds_kind(kind, ("float", "double")) for _, kind in held)

    def __len__(self) -> int:
        return len(self.state)

    def apply(self, batch: pl.DataFrame, bytes_max: int | None = None) -> tuple[list[RowChange], list[RecordFailure]]:
        """Applies the rows of a batch in order. Returns the keys whose row has changed, and the rows that fail.

        Raises BatchTooLarge, before anything is changed, if the rows before are larger than `bytes_max`.
        """
        keys = read_keys(batch, self._keys)
        known = dict.fromkeys(keys)
        before = dict(zip(known, self.state.get_many(known), strict=True))
        if bytes_max is not None and batch.height > 1:
            check_size(before.values(), bytes_max)
        after, last = dict(before), dict[Key, int]()
        failures: list[RecordFailure] = []
        rows = zip(keys, self._values(batch), batch[DELETED].to_list(), strict=True)
        for row, (key, value, deleted) in enumerate(rows):
            held = after[key]
            if held is not None and _elsewhere(held, value) and not self._is_over(held):
                failures.append(_failure(row, held, value))
                continue
            after[key] = None if deleted else self._prolonged(held, value)
            last[key] = row
        changes = [
            RowChange(key, before[key], after[key], row)
            for key, row in last.items()
            if not self.are_equal(before[key], after[key])
        ]
        self._write(changes)
        return changes, failures

    def get_many(self, keys: Collection[Key]) -> list[Value | None]:
        """Returns the row of each key; None if there is none, or if it has ended."""
        found = self.state.get_many(keys)
        if self._ttl is None:
            return found
        return [None if value is None or self._is_over(value) else value for value in found]

    def advance(self, watermark_ms: int) -> list[RowChange]:
        """Ends rows by a watermark, and removes a part of those that have ended. Returns the removed ones.

        A sweep of the whole state begins again each time when a part of the ttl has passed. A row that was kept without
        a ttl ends a ttl after the sweep has come to it.
        """
        if watermark_ms == END_OF_TIME:
            return []
        self._watermark_ms = watermark_ms
        if self._ttl is None or self._sweep is None or watermark_ms < self._next_sweep_ms:
            return []
        removed = self._sweep.go_on(SWEPT_AT_ONCE, watermark_ms)
        if not self._sweep.under_way:
            self._next_sweep_ms = watermark_ms + self._ttl.time_ms // SWEEPS
        return [RowChange(key, value, None, NO_ROW) for key, value in removed]

    def _is_over(self, value: Value) -> bool:
        return self._ttl is not None and value[-1] is not None and value[-1] < self._watermark_ms

    def _prolonged(self, held: Value | None, value: Value) -> Value:
        """Returns a row that does not end before the one that it replaces."""
        if self._ttl is None or held is None or held[-1] is None or held[-1] <= value[-1]:
            return value
        return (*value[:-1], held[-1])

    def are_equal(self, one: Value | None, other: Value | None) -> bool:
        """Compares rows to the last bit: 0.0 and -0.0 differ, and NaN equals itself."""
        return repr(one) == repr(other) if self._floating else one == other

    def _values(self, batch: pl.DataFrame) -> list[Value]:
        partitions = batch[PARTITION].to_list() if PARTITION in self._place else repeat(0, batch.height)
        topics = batch[TOPIC].to_list() if TOPIC in self._place else repeat("", batch.height)
        columns = (plain_values(batch[name]) for name in self._held)
        ends = () if self._ttl is None else ((batch[TIME] + self._ttl.time_ms).to_list(),)
        return list(zip(partitions, topics, *columns, *ends, strict=True))

    def _write(self, changes: Sequence[RowChange]) -> None:
        kept = {one.key: one.after for one in changes if one.after is not None}
        if kept:
            self.state.put_many(kept, kept.values())
        gone = [one.key for one in changes if one.after is None]
        if gone:
            self.state.delete_many(gone)


def read_keys(batch: pl.DataFrame, names: Sequence[str]) -> list[Key]:
    """Returns the key of each row: the value of its column, or a tuple if there are several."""
    columns = [plain_values(batch[name]) for name in names]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def check_size(values: Iterable[Value | None], bytes_max: int) -> None:
    """Raises BatchTooLarge if the texts, bytes and elements of these values are larger."""
    if sum(map(_size, values)) > bytes_max:
        raise BatchTooLarge(f"rows of the table for one batch have more than {bytes_max} bytes")


def _size(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, tuple):
        return sum(ELEMENT_BYTES + _size(one) for one in value)
    return 0


def _elsewhere(held: Value, value: Value) -> bool:
    """Returns whether two rows come from different partitions. A row that was kept without its topic may be of any."""
    same_topic = held[1] == value[1] or not held[1] or not value[1]
    return held[0] != value[0] or not same_topic


def _failure(row: int, held: Value, value: Value) -> RecordFailure:
    places = [f"partition {one[0]}" + (f" of {one[1]}" if one[1] else "") for one in (held, value)]
    return RecordFailure(
        row,
        FailureKind.KEY_IN_TWO_PARTITIONS,
        (
            f"the table has a row of this key from {places[0]}, and this one is from {places[1]}: rows of one key in "
            f"two partitions have no order; write each key to one partition. After a change of the number of "
            f"partitions, write the topic anew and let the step start with empty state (`state: reset`)"
        ),
    )
