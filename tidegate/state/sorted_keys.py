"""The keys of a state in memory in sorted order, group by group, for scans.

The keys of a group are in chunks. The chunks are ordered among each other, but a chunk is sorted only when it is read.
So no call sorts more than it reads, however many keys there are, and no operation moves more than a chunk. New keys
wait until there are enough of them, or their group is read. Keys compare as they are, which is the order of `order.py`.
Once a column of a key has been NULL, keys compare with a marker before every column.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tidegate.state.order import Row

CHUNK_MAX: Final = 512
"""A chunk with more keys is split into chunks of half this size."""
WAITING_MAX: Final = 128
"""The number of new keys of a group from which they are put into chunks even without a scan."""

_Place = Callable[[Any], Any]


class SortedKeys:
    """Sorted keys by group. Keys are tuples of their columns; single-column keys are plain values."""

    def __init__(self, *, single: bool) -> None:
        """`single`: keys have one column."""
        self._single = single
        self._chunks: dict[int, _Chunks] = {}
        self._new: defaultdict[int, list[Any]] = defaultdict(list)
        self._place: _Place | None = None
        """The function by which keys are sorted; None if keys compare directly because no column has been NULL."""

    def add(self, groups: Iterable[int], keys: Iterable[Any]) -> None:
        """Adds keys that do not exist yet."""
        new = self._new
        for group, key in zip(groups, keys, strict=True):
            new[group].append(key)
            if key is None if self._single else None in key:
                self._expect_nulls()
        for group in [group for group, waiting in new.items() if len(waiting) >= WAITING_MAX]:
            self._of(group)

    def remove(self, groups: Iterable[int], keys: Iterable[Any]) -> None:
        """Removes keys that exist."""
        gone: defaultdict[int, list[Any]] = defaultdict(list)
        for group, key in zip(groups, keys, strict=True):
            gone[group].append(key)
        for group, part in gone.items():
            self.remove_of(group, part)

    def remove_of(self, group: int, keys: Sequence[Any]) -> None:
        """Removes existing keys of one group. This is faster if the keys are sorted and contiguous."""
        chunks = self._of(group)
        if chunks is None:
            return
        places = keys if self._place is None else list(map(self._place, keys))
        done = 0
        while done < len(keys):
            done += chunks.remove(keys, places, done, self._place)
        if not chunks:
            del self._chunks[group]

    def between(
        self, group: int, prefix: Row = (), *, start: Row = (), limit: int | None = None, backwards: bool = False
    ) -> list[Any]:
        """Returns the keys of a group that begin with `prefix`, or are not before `start`.

        Returns at most `limit` keys. `backwards` begins at the end.
        """
        chunks = self._of(group)
        if chunks is None:
            return []
        first = self._place_of(prefix or start) if prefix or start else None
        place = self._place
        end = None if not prefix else _Prefix(first, len(prefix), place)
        found = chunks.backwards(first, end, place) if backwards else chunks.forwards(first, end, place)
        taken: list[Any] = []
        for part in found:
            taken += part
            if limit is not None and len(taken) >= limit:
                return taken[:limit]
        return taken

    def _of(self, group: int) -> _Chunks | None:
        """Returns the keys of a group, including the new ones."""
        new = self._new.pop(group, None)
        chunks = self._chunks.get(group)
        if new is None:
            return chunks
        if chunks is None:
            chunks = self._chunks[group] = _Chunks()
        chunks.add(new, self._place)
        return chunks

    def _place_of(self, columns: Row) -> Any:
        """Returns the value by which keys that begin with these columns are sorted."""
        if self._place is None and None in columns:
            self._expect_nulls()
        key = columns[0] if self._single else columns
        return key if self._place is None else self._place(key)

    def _expect_nulls(self) -> None:
        if self._place is None:
            self._place = _marked if self._single else _all_marked
            for chunks in self._chunks.values():
                chunks.place_again(self._place)


class _Prefix:
    """The end of the keys that begin with some columns."""

    def __init__(self, wanted: Any, columns: int, place: _Place | None) -> None:
        self._wanted = wanted
        self._columns = columns
        self._place = place or _itself

    def end(self, keys: Sequence[Any], low: int = 0) -> int:
        """Returns the index of the end in sorted keys."""
        return bisect_right(keys, self._wanted, low, key=lambda key: self._place(key[: self._columns]))

    def end_of_places(self, places: Sequence[Any]) -> int:
        """Does what `end` does, for the values by which keys are sorted."""
        return bisect_right(places, self._wanted, key=lambda place: place[: self._columns])


class _Chunks:
    """The keys of one group. Every call gets the sort function, because it may change once."""

    def __init__(self) -> None:
        self._keys: list[list[Any]] = []
        """No chunk is empty, and every key of a chunk is before those of the next."""
        self._lows: list[Any] = []
        """The lower bound of each chunk: its keys are not before it, and those of the preceding chunk are."""
        self._sorted: list[bool] = []

    def __bool__(self) -> bool:
        return bool(self._keys)

    def add(self, new: list[Any], place: _Place | None) -> None:
        """Adds keys that do not exist yet."""
        if not self._keys:
            self._keys, self._lows, self._sorted = [[]], [None], [False]
        if len(self._keys) == 1:
            self._keys[0] += new
            self._sorted[0] = False
            self._cut(0, place)
            return
        lows, chunks = self._lows, self._keys
        touched: set[int] = set()
        for key in new:
            index = bisect_right(lows, key if place is None else place(key), 1) - 1
            chunks[index].append(key)
            touched.add(index)
        for index in sorted(touched, reverse=True):
            self._sorted[index] = False
            self._cut(index, place)

    def _cut(self, index: int, place: _Place | None) -> None:
        """Splits a chunk that is too large."""
        keys = self._keys[index]
        if len(keys) <= CHUNK_MAX:
            return
        keys.sort(key=place)
        parts = [keys[at : at + CHUNK_MAX // 2] for at in range(0, len(keys), CHUNK_MAX // 2)]
        lows = [part[0] if place is None else place(part[0]) for part in parts[1:]]
        self._keys[index : index + 1] = parts
        self._lows[index : index + 1] = [self._lows[index], *lows]
        self._sorted[index : index + 1] = [True] * len(parts)

    def remove(self, keys: Sequence[Any], places: Sequence[Any], done: int, place: _Place | None) -> int:
        """Removes some of these keys, from the one at `done` on, and returns how many."""
        index = self._index_of(places[done])
        chunk = self._in_order(index, place)
        low = bisect_left(chunk, places[done], key=place)
        count = min(len(chunk) - low, len(keys) - done)
        if chunk[low : low + count] != keys[done : done + count]:
            count = 1
        del chunk[low : low + count]
        if not chunk:
            self._drop(index)
        return count

    def forwards(self, first: Any, end: _Prefix | None, place: _Place | None) -> Iterator[list[Any]]:
        """Yields the keys from a position on, chunk by chunk, up to the end of a prefix."""
        index = 0 if first is None else self._index_of(first)
        low = 0 if first is None else bisect_left(self._in_order(index, place), first, key=place)
        while index < len(self._keys):
            chunk = self._in_order(index, place)
            high = len(chunk) if end is None else end.end(chunk, low)
            yield chunk[low:high]
            if high < len(chunk):
                return
            index, low = index + 1, 0

    def backwards(self, first: Any, end: _Prefix | None, place: _Place | None) -> Iterator[list[Any]]:
        """Yields the same keys as `forwards` in reverse order."""
        index = len(self._keys) if end is None else max(1, 1 + end.end_of_places(self._lows[1:]))
        while index > 0:
            index -= 1
            chunk = self._in_order(index, place)
            high = len(chunk) if end is None else end.end(chunk)
            low = 0 if first is None else bisect_left(chunk, first, key=place)
            yield chunk[low:high][::-1]
            if low > 0:
                return

    def place_again(self, place: _Place) -> None:
        """Switches to another sort function that keeps the order."""
        self._lows[1:] = list(map(place, self._lows[1:]))

    def _index_of(self, wanted: Any) -> int:
        """Returns the index of the chunk for this sort value."""
        return bisect_right(self._lows, wanted, 1) - 1

    def _in_order(self, index: int, place: _Place | None) -> list[Any]:
        chunk = self._keys[index]
        if not self._sorted[index]:
            chunk.sort(key=place)
            self._sorted[index] = True
        return chunk

    def _drop(self, index: int) -> None:
        for one in (self._keys, self._lows, self._sorted):
            del one[index]


def _itself(key: Any) -> Any:
    return key


def _marked(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _all_marked(row: Row) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]
