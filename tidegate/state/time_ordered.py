"""A keyed state whose first key column is a time: windows and timers, taken as they become due.

The time does not count for the key group (`StateShape.prefix`), so each group is sorted by time and needs no second
index. The only addition to the state is the first time of each group. The first use after a restore finds it with one
read per group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import Any, Final

import msgspec

from tidegate.datatypes import BIGINT
from tidegate.state.base import KeyedState
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

TIME: Final = StateField("time", BIGINT, nullable=False)
"""The first key column: ms since 1970 unless the operator defines it differently."""

Timed = tuple[Row, Value]
"""A key, whose first column is its time, and its value."""

_PASSED_OVER_MAX: Final = 4
"""The maximum size of the heap per key group. Entries that come and go before a distant time add another note of that
time on each occasion."""
_READ_LEAST: Final = 16
_READ_MOST: Final = 4096
"""The number of entries that are read from a group at a time."""
_END: Final = 2**63
"""Later than every time."""
_FIRST: Final = itemgetter(0)
"""Returns the time of a key. Complete keys are not comparable, because a column may be NULL."""


def declare_time_ordered(keyed: StateDeclaration) -> StateDeclaration:
    """Declares the same state with a time before each key: one entry per time and key. The name stays the same."""
    shape = msgspec.structs.replace(keyed.shape, keys=(TIME, *keyed.shape.keys), prefix=1)
    declared: StateDeclaration = msgspec.structs.replace(keyed, shape=shape)
    return declared


class TimeOrdered:
    """Entries by time and key. Keys are tuples of their columns, the time first."""

    def __init__(self, state: KeyedState[Any], key_groups: range | None = None) -> None:
        """`state`: opened for a declaration of `declare_time_ordered`, and changed only by this object.

        `key_groups`: those of the subtask; None if they are not known, which costs a little. Raises ValueError for a
        state of another shape.
        """
        shape = state.declaration.shape
        if shape.prefix != 1 or shape.keys[0].type != BIGINT:
            raise ValueError(f"state {state.declaration.name} is not in the order of a time")
        self._state = state
        self._groups = range(shape.max_parallelism) if key_groups is None else key_groups
        self._first: dict[int, int] | None = None
        """A lower bound of the times in each key group. None until the first use after a restore."""
        self._heap: list[tuple[int, int]] = []
        """Time and group for each entry of `_first`, and outdated pairs that are skipped."""

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self._state)

    @property
    def first_ms(self) -> int | None:
        """The earliest time; None if there are no entries."""
        first = self._known()
        while (earliest := self._earliest(first)) is not None:
            time, group = earliest
            entry = next(self._state.scan(group, start=(time,), limit=1), None)
            if entry is not None and entry[0][0] == time:
                return time
            del first[group]
            if entry is not None:
                self._note(first, group, entry[0][0])
        return None

    @property
    def last_ms(self) -> int | None:
        """The latest time; None if there are no entries. Reads from every key group."""
        last = [next(self._state.scan(group, limit=1, backwards=True), None) for group in self._groups]
        return max((entry[0][0] for entry in last if entry is not None), default=None)

    def get_many(self, keys: Collection[Row]) -> list[Value | None]:
        """Returns the value of each key, or None if the key does not exist."""
        return self._state.get_many(keys)

    def put_many(self, keys: Collection[Row], values: Iterable[Value]) -> None:
        """Sets values. The last value of a repeated key wins."""
        self._state.put_many(keys, values)
        first = self._first
        if first is None or not keys:
            return
        if len(first) == len(self._groups) and min(map(_FIRST, keys)) >= max(first.values()):
            return  # whatever their groups are, none of these keys becomes the first one
        for group, key in zip(self._state.groups_of(keys), keys, strict=True):
            if group not in first or key[0] < first[group]:
                self._note(first, group, key[0])

    def delete_many(self, keys: Collection[Row]) -> None:
        """Removes these keys and ignores those that do not exist."""
        self._state.delete_many(keys)

    def take_due(self, until_ms: int, limit: int) -> list[Timed]:
        """Removes and returns at most `limit` entries due at `until_ms`, in the order of time, key group, key.

        The next call also returns entries that were added in the meantime, even if they are earlier than those
        returned.
        """
        cursors: dict[int, _Cursor] = {}
        taken: list[Timed] = []
        size = min(_READ_MOST, max(_READ_LEAST, 2 * limit // max(1, len(self._known()))))
        while len(taken) < limit and (part := self._take_next(cursors, size, until_ms, limit - len(taken))):
            taken += part
        self._state.delete_scanned({group: cursor.passed for group, cursor in cursors.items() if cursor.passed})
        return taken

    def remove_due(self, until_ms: int, limit: int) -> int:
        """Removes at most `limit` entries due at `until_ms`, in no particular order and without reading their values.

        Returns how many. Each group is read once, because its entries exist until the end of the call.
        """
        first, left = self._known(), limit
        due: dict[int, list[Row]] = {}
        while left > 0 and (earliest := self._earliest(first)) is not None and earliest[0] <= until_ms:
            time, group = earliest
            keys = self._state.scan_keys(group, (time,), left + 1)
            count = min(left, bisect_right(keys, until_ms, key=_FIRST))
            left -= count
            due[group] = keys[:count]
            del first[group]
            if count < len(keys):
                self._note(first, group, keys[count][0])
        self._state.delete_scanned({group: keys for group, keys in due.items() if keys})
        return limit - left

    def _take_next(self, cursors: dict[int, _Cursor], size: int, until: int, limit: int) -> list[Timed]:
        """Returns the next entries, as far as every group that may contain them has been read; none at the end.

        Entries of one time are read group by group, those of many times from all groups at once. `size` is the number
        of entries that the first read of a group returns.
        """
        first, horizon = self._known(), (until, self._groups.stop)
        opened: list[_Cursor] = []
        while (earliest := self._earliest(first)) is not None and earliest <= horizon:
            time, group = earliest
            cursor = cursors.get(group)
            if cursor is None:
                cursor = cursors[group] = _Cursor(self._state, group, time, until, min(size, limit))
            else:
                cursor.read_on(limit)
            opened.append(cursor)
            horizon = min(horizon, cursor.horizon)
            del first[group]
        opened.sort(key=_group_of)
        taken = _merge(opened, horizon, limit)
        for cursor in opened:
            time_now = cursor.time
            if time_now is not None:
                self._note(first, cursor.group, time_now)
        return taken

    def _known(self) -> dict[int, int]:
        """Returns the first time of each group that has entries, or an earlier time."""
        if self._first is None:
            self._first = {}
            for group in self._groups if len(self._state) else ():
                for key, _ in self._state.scan(group, limit=1):
                    self._note(self._first, group, key[0])
        return self._first

    def _note(self, first: dict[int, int], group: int, time: int) -> None:
        first[group] = time
        heappush(self._heap, (time, group))
        if len(self._heap) > _PASSED_OVER_MAX * len(self._groups):
            self._heap = [(one, other) for other, one in first.items()]
            heapify(self._heap)

    def _earliest(self, first: dict[int, int]) -> tuple[int, int] | None:
        """Returns the time and the group with the earliest time."""
        heap = self._heap
        while heap and first.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None


class _Cursor:
    """The entries of one group from a time on, read on demand. The state does not change in the meantime."""

    def __init__(self, state: KeyedState[Any], group: int, time: int, until: int, size: int) -> None:
        """`size`: the number of entries of the first read; each further read doubles it. Of the entries later than
        `until`, only one is read: there may be many of them.
        """
        self.group = group
        self.passed: list[Row] = []
        """The keys that have been taken."""
        self._state = state
        self._until = until
        self._size = size
        self._at = 0
        self._read = self._read_due(state.scan(group, start=(time,), limit=size))
        self._more = len(self._read) == size or self._is_past_due

    @property
    def time(self) -> int | None:
        """The time of the next entry, or an earlier time if that entry has not been read; None at the end."""
        if self._at < len(self._read):
            return _time_of(self._read[self._at])
        return _time_of(self._read[-1]) if self._more else None

    @property
    def horizon(self) -> tuple[int, int]:
        """The time and group up to which all entries of this group have been read."""
        return (_time_of(self._read[-1]), self.group) if self._more else (_END, self.group)

    def peek(self, until: int) -> list[Timed]:
        """Returns the next entries up to a time, as far as they have been read."""
        return self._read[self._at : self.count(until) + self._at]

    def count(self, until: int) -> int:
        """Returns the number of entries that `peek` returns."""
        if self._at < len(self._read) and _time_of(self._read[-1]) <= until:
            return len(self._read) - self._at
        return bisect_right(self._read, until, self._at, key=_time_of) - self._at

    def pass_over(self, count: int) -> None:
        """Marks this many entries as taken."""
        self.passed += [key for key, _ in self._read[self._at : self._at + count]]
        self._at += count

    def read_on(self, limit: int) -> None:
        """Reads more entries if all that were read have been taken; not many more than `limit`."""
        if self._more and self._at == len(self._read):
            self._size = min(2 * self._size, _READ_MOST, max(limit, _READ_LEAST))
            last = self._read[-1][0]
            self._read = self._read_due(self._state.scan(self.group, start=last, limit=self._size + 1))[1:]
            self._more = len(self._read) == self._size or self._is_past_due
            self._at = 0

    def _read_due(self, entries: Iterable[Timed]) -> list[Timed]:
        found: list[Timed] = []
        for entry in entries:
            found.append(entry)
            if _time_of(entry) > self._until:
                break
        return found

    @property
    def _is_past_due(self) -> bool:
        """Whether an entry that is later than `until` has been read, after which nothing more is."""
        return bool(self._read) and _time_of(self._read[-1]) > self._until


def _merge(cursors: list[_Cursor], horizon: tuple[int, int], limit: int) -> list[Timed]:
    """Takes the entries up to the horizon, in the order of time, group, key. The cursors are ordered by group."""
    time, group = horizon
    if len(cursors) == 1:
        (only,) = cursors
        part = only.peek(time)[:limit]
        only.pass_over(len(part))
        return part
    ends = [time if cursor.group <= group else time - 1 for cursor in cursors]
    merged = [entry for cursor, end in zip(cursors, ends, strict=True) for entry in cursor.peek(end)]
    merged.sort(key=_time_of)  # stable, so groups and keys stay in order
    if len(merged) <= limit:
        for cursor, end in zip(cursors, ends, strict=True):
            cursor.pass_over(cursor.count(end))
        return merged
    last = _time_of(merged[limit - 1])
    before = [cursor.count(last - 1) for cursor in cursors]
    room = limit - sum(before)
    for cursor, end, count in zip(cursors, ends, before, strict=True):
        at_last = min(room, cursor.count(min(last, end)) - count)
        cursor.pass_over(count + at_last)
        room -= at_last
    return merged[:limit]


def _time_of(entry: Timed) -> int:
    time: int = entry[0][0]
    return time


def _group_of(cursor: _Cursor) -> int:
    return cursor.group
