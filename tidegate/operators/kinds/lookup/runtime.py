"""The runtimes of `lookup`: without waiting rows, and with them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby, islice
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import BIGINT, INT, STRING
from tidegate.expressions.bounds import BATCH_BYTES_MAX, GROWING
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import columns_of
from tidegate.expressions.parse import qualified_name
from tidegate.formats.columns import make_column, plain_values, polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.lookup import DROP, FAIL, STREAM, TABLE, LookupOperator
from tidegate.operators.latest_rows import PARTITION, TOPIC
from tidegate.operators.latest_rows.runtime import FIRST, LatestRows, RowChange, check_size, read_keys
from tidegate.operators.rowwise import apply_to_rows
from tidegate.operators.runtime import (
    END_OF_TIME,
    LOWEST,
    BatchTooLarge,
    OperatorRuntime,
    Out,
    system_columns,
)
from tidegate.operators.spec import Slot
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.state.base import Key, KeyedState
from tidegate.state.grouping import in_parts
from tidegate.state.keygroups import key_groups_of_keys
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
    """The rows of one subtask that wait for a row of the table. Rows of a key leave in the order in which they arrived.

    The state has the rows. An index of them is in memory: where each is, until when it waits, and its event time. It is
    made anew after a restore.
    """

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


class LookupRuntime(OperatorRuntime):
    """The rows of the table for the keys of one subtask."""

    def __init__(self, operator: LookupOperator, slot: Slot) -> None:
        self._operator = operator
        self._projection = compile_projection(operator.pruned_expressions)
        self._grows = any(kind.kind in GROWING for _, kind in operator.held)
        kinds = [kind for _, kind in operator.keys]
        groups_of = partial(key_groups_of_keys, kinds=kinds, max_parallelism=slot.max_parallelism)
        self._opened = [slot.open_state(operator.name, one, groups_of) for one in operator.states(slot.max_parallelism)]
        self._state = self._opened[0]
        self.states = {one.declaration.name: one for one in self._opened}
        read = {column for _, one in operator.add for column in columns_of(one)}
        keys = zip(operator.key_columns[STREAM], operator.table_keys, strict=True)
        self._own_keys = [
            (column, own, kind)
            for column, (name, kind) in keys
            if (own := qualified_name(operator.table, name)) in read
        ]
        """For columns of the table's key that are read: the stream's column, the qualified name, and its type."""
        self._rows = LatestRows(self._state, operator.key_columns[TABLE], operator.held, operator.place, operator.ttl)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"table_rows": len(self._rows)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Raises BatchTooLarge: many rows of the stream may get one large row of the table."""
        if port == STREAM:
            self._join(batch, out)
            return
        self._apply(batch, out)

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._rows.advance(watermark_ms)
        out.watermark(watermark_ms)

    def _apply(self, batch: pl.DataFrame, out: Out) -> list[RowChange]:
        """Applies rows of the table."""
        changes, failures = self._rows.apply(batch)
        if failures:
            out.fail(batch, failures, TABLE)
        return changes

    def _join(self, batch: pl.DataFrame, out: Out) -> None:
        joined, found = self._with_table(batch)
        missing = self._operator.missing.action
        if missing in (DROP, FAIL) and not found.all():
            if missing == FAIL:
                out.fail(batch, [self._failure(row) for row in (~found).arg_true().to_list()])
            joined = joined.filter(found)
        self._emit(joined, out)

    def _emit(self, joined: pl.DataFrame, out: Out) -> None:
        """Emits rows with the columns that `add` computes."""
        made, failures = apply_to_rows(joined, self._project)
        if failures:
            out.fail(joined, failures)
        out.emit(made)

    def _with_table(self, batch: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Returns the batch with the columns of the table, NULL without a row, and whether there is one."""
        operator = self._operator
        index: dict[Any, int] = {}
        numbers = [index.setdefault(key, len(index)) for key in read_keys(batch, operator.key_columns[STREAM])]
        stored: list[Value | None] = self._rows.get_many(index)
        columns = self._columns_of(stored)
        if self._grows and batch.height > 1:
            most = sum(column.estimated_size() for column in columns) * (batch.height - len(index) + 1)
            if most > BATCH_BYTES_MAX:
                check_size((stored[number] for number in numbers), BATCH_BYTES_MAX)
        places = pl.Series(numbers, dtype=pl.UInt32)
        found = pl.Series([value is not None for value in stored], dtype=pl.Boolean).gather(places)
        added = [column.gather(places) for column in columns]
        return batch.with_columns(*self._key_columns(batch, found), *added), found

    def _columns_of(self, stored: Sequence[Value | None]) -> list[pl.Series]:
        """Returns the columns of the table's rows, under their qualified names."""
        held = self._operator.held
        width = FIRST + len(held)
        none = (None,) * width
        columns = zip(*(none if value is None else value[:width] for value in stored), strict=True)
        values = [*columns][FIRST:] or [()] * len(held)
        names = (qualified_name(self._operator.table, name) for name, _ in held)
        return [make_column(name, kind, some) for name, (_, kind), some in zip(names, held, values, strict=True)]

    def _key_columns(self, batch: pl.DataFrame, found: pl.Series) -> list[pl.Series]:
        """Returns the key of the table's row as it is there: that of the stream may be of another type."""
        return [
            batch[column].cast(polars_type(kind)).set(~found, None).alias(name) for column, name, kind in self._own_keys
        ]

    def _project(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        return self._projection.apply(frame, system_columns(frame))

    def _failure(self, row: int) -> RecordFailure:
        operator = self._operator
        names = ", ".join(f"`{name}`" for name in operator.key_columns[STREAM])
        return RecordFailure(row, FailureKind.NO_TABLE_ROW, f"`{operator.table}` has no row for its {names}")


ROWS_AT_ONCE: Final = 1000
"""How many waiting rows leave in one call."""
KEYS_AT_ONCE: Final = 1000
"""How many keys whose row has arrived are looked up in one call."""


class WaitingLookupRuntime(LookupRuntime):
    """A lookup with waiting rows.

    With `missing: wait 30s`, a row without a row in the table waits for it, at most for this time by the clock.

    Rows of a key leave in their order, so a row also waits behind those of its key that have not left yet. Neither a
    watermark nor a status overtakes waiting rows. At the end of a bounded stream waiting ends.
    """

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
