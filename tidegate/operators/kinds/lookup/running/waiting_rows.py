"""Rows of the stream that wait for a row of the table, in the order of each key.

The state has the rows. An index of them is in memory: where each is, until when it waits, and its event time. It is
made anew after a restore.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, groupby
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import BIGINT, INT, STRING
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.lookup import STREAM, LookupOperator
from tidegate.operators.latest_rows import PARTITION, TOPIC
from tidegate.operators.runtime import system_columns
from tidegate.state.base import Key, KeyedState
from tidegate.state.grouping import in_parts
from tidegate.state.snapshot import Value

READ_AT_ONCE: Final = 10_000
"""Entries that are read from the state at a time after a restore."""
_KINDS: Final = {PARTITION: INT, TOPIC: STRING, CARRIED_HEADERS: HEADERS_TYPE}
"""Types of system columns that are no bigint."""


class _Timed(NamedTuple):
    """An entry of a heap. The number of the row is unique in most cases, and the place of the entry in all."""

    time_ms: int
    number: int
    place: int
    key: Key


class _Entry(NamedTuple):
    number: int
    until_ms: int
    time_ms: int | None
    """The event time, unless the row is late already."""


class WaitingStreamRows:
    """The waiting rows of one subtask. Rows of a key leave in the order in which they arrived."""

    def __init__(self, state: KeyedState[Any], operator: LookupOperator) -> None:
        self.state = state
        self.count = 0
        """How many rows wait; like `until_ms`, read by other threads."""
        self.until_ms = 0
        """When the last of them gives up; 0 without rows."""
        self._operator = operator
        self._single = len(operator.keys) == 1
        self._queues: dict[Key, deque[_Entry]] = {}
        self._until: list[_Timed] = []
        self._times: list[_Timed] = []
        self._places = count()
        self._ends: Counter[int] = Counter()
        """How many rows give up at each time: those of a batch give up together."""
        self._numbers = count()
        self._loaded = False

    def load(self, latest_ms: int) -> Sequence[Key]:
        """Makes the index of restored rows, once. Returns their keys.

        None of them waits beyond `latest_ms`: the clock of the machine that wrote them may have been ahead.
        """
        if self._loaded:
            return ()
        self._loaded = True
        found: list[tuple[Key, _Entry]] = []
        for part in in_parts(self.state.keys(), READ_AT_ONCE):
            for stored, value in zip(part, self.state.get_many(part), strict=True):
                if value is not None:
                    key = stored[0] if self._single else stored[:-1]
                    found.append(
                        (key, _Entry(stored[-1], min(value[0], latest_ms), _time_of(msgspec.msgpack.decode(value[1]))))
                    )
        for key, entry in sorted(found, key=lambda one: one[1].number):
            self._note(key, entry)
            self._numbers = count(entry.number + 1)
        return list(self._queues)

    def __contains__(self, key: Key) -> bool:
        return key in self._queues

    @property
    def first_until_ms(self) -> int | None:
        """When the first of them gives up."""
        return self._first(self._until)

    @property
    def first_time_ms(self) -> int | None:
        """The lowest event time of those that are not late."""
        return self._first(self._times)

    def add(self, batch: pl.DataFrame, keys: Sequence[Key], until_ms: int) -> None:
        """Appends rows of the stream to the queues of their keys. None gives up before an earlier row of its key."""
        engine = system_columns(batch)
        systems = zip(*(plain_values(batch[name]) for name in engine), strict=True)
        rows = zip(*(plain_values(batch[name]) for name, _ in self._operator.stream), strict=True)
        stored: dict[Key, Value] = {}
        for key, system, row in zip(keys, systems, rows, strict=True):
            carried = dict(zip(engine, system, strict=True))
            queue = self._queues.get(key)
            last_ms = queue[-1].until_ms if queue else until_ms
            entry = _Entry(next(self._numbers), max(until_ms, last_ms), _time_of(carried))
            stored[self._place(key, entry.number)] = (entry.until_ms, msgspec.msgpack.encode(carried), *row)
            self._note(key, entry)
        self.state.put_many(stored, stored.values())

    def rows_of(self, key: Key) -> int:
        """Returns how many rows of a key wait."""
        return len(self._queues.get(key, ()))

    def take_due(self, now_ms: int, limit: int) -> Iterator[pl.DataFrame]:
        """Removes and returns rows that give up until now, those of each key in order."""
        keys: list[Key] = []
        while len(keys) < limit and (first_ms := self.first_until_ms) is not None and first_ms <= now_ms:
            keys.append(heappop(self._until).key)
        return self.take(keys)

    def take(self, keys: Sequence[Key]) -> Iterator[pl.DataFrame]:
        """Removes and returns the first row of each of these keys, several if a key is repeated."""
        entries = [(key, self._queues[key].popleft()) for key in keys]
        for key in dict.fromkeys(keys):
            if not self._queues[key]:
                del self._queues[key]
        self.count -= len(entries)
        self._ends.subtract(entry.until_ms for _, entry in entries)
        if not self._ends[self.until_ms]:
            self._ends = +self._ends
            self.until_ms = max(self._ends, default=0)
        places = [self._place(key, entry.number) for key, entry in entries]
        values = self.state.get_many(places)
        self.state.delete_many(places)
        rows = [(key, value) for (key, _), value in zip(entries, values, strict=True) if value is not None]
        return self._frames(rows)

    def _frames(self, rows: Sequence[tuple[Key, Value]]) -> Iterator[pl.DataFrame]:
        """Yields rows as they arrived. Rows that were restored may have other system columns than new ones."""
        carried = [msgspec.msgpack.decode(value[1]) for _, value in rows]
        for names, part in groupby(zip(rows, carried, strict=True), key=lambda one: tuple(one[1])):
            group = list(part)
            values = list(zip(*(value[2:] for (_, value), _ in group), strict=True))
            stream = [
                make_column(name, kind, column)
                for (name, kind), column in zip(self._operator.stream, values, strict=True)
            ]
            engine = [
                make_column(name, _KINDS.get(name, BIGINT), [system[name] for _, system in group]) for name in names
            ]
            yield pl.DataFrame([*stream, *self._own_keys([key for (key, _), _ in group]), *engine])

    def _own_keys(self, keys: Sequence[Key]) -> list[pl.Series]:
        """Returns the columns of the key that have another type than those of the stream."""
        operator, known = self._operator, dict(self._operator.stream)
        columns = [keys] if self._single else list(zip(*keys, strict=True))
        return [
            make_column(name, kind, column)
            for name, (_, kind), column in zip(operator.key_columns[STREAM], operator.keys, columns, strict=True)
            if name not in known
        ]

    def _place(self, key: Key, number: int) -> Key:
        return (key, number) if self._single else (*key, number)

    def _note(self, key: Key, entry: _Entry) -> None:
        self._queues.setdefault(key, deque()).append(entry)
        heappush(self._until, _Timed(entry.until_ms, entry.number, next(self._places), key))
        if entry.time_ms is not None:
            heappush(self._times, _Timed(entry.time_ms, entry.number, next(self._places), key))
        self.count += 1
        self._ends[entry.until_ms] += 1
        self.until_ms = max(self.until_ms, entry.until_ms)

    def _first(self, heap: list[_Timed]) -> int | None:
        """Returns the first time in a heap, after removing rows that have left."""
        while heap:
            first = heap[0]
            queue = self._queues.get(first.key)
            if queue and queue[0].number <= first.number:
                return first.time_ms
            heappop(heap)
        return None


def _time_of(carried: dict[str, Any]) -> int | None:
    return None if carried.get(BEHIND) or TIME not in carried else carried[TIME]
