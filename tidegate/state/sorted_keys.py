"""The keys of a state in memory in their order, group by group: what a scan reads.

Keys that are new wait unsorted until somebody asks for their group, and keys that a scan has given are taken away as a
slice: neither moves memory key by key. Keys compare as they are, which is the order of `order.py`; once a column of
one has been NULL, they compare with a mark before every column.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from tidegate.state.order import Row

_FEW: Final = 50
"""So many new keys are put in their places one by one, in a group that is much larger; more of them are sorted in."""
_MUCH: Final = 20
_WAITING_MAX: Final = 512
"""So many new keys of a group are sorted in although nobody has asked, once they are an eighth of it."""

_Place = Callable[[Any], Any]


class SortedKeys:
    """Keys are tuples of their columns; those of one column are its values."""

    def __init__(self, *, single: bool) -> None:
        """`single`: keys have one column."""
        self._single = single
        self._sorted: dict[int, list[Any]] = {}
        self._new: defaultdict[int, list[Any]] = defaultdict(list)
        self._place: _Place | None = None
        """What keys compare by; None: by themselves, as no column has been NULL."""

    def add(self, groups: Iterable[int], keys: Iterable[Any]) -> None:
        """Keys that are not there."""
        new = self._new
        for group, key in zip(groups, keys, strict=True):
            new[group].append(key)
            if key is None if self._single else None in key:
                self._expect_nulls()
        for group in [group for group, waiting in new.items() if len(waiting) >= _WAITING_MAX]:
            if len(new[group]) * 8 >= len(self._sorted.get(group, ())):
                self._settled(group)

    def remove(self, groups: Iterable[int], keys: Iterable[Any]) -> None:
        """Keys that are there."""
        gone: defaultdict[int, list[Any]] = defaultdict(list)
        for group, key in zip(groups, keys, strict=True):
            gone[group].append(key)
        for group, part in gone.items():
            self._remove(group, part)

    def between(
        self, group: int, prefix: Row = (), *, start: Row = (), limit: int | None = None, backwards: bool = False
    ) -> list[Any]:
        """The keys of a group that begin with `prefix`, or are not before `start`; at most `limit`, from the end when
        `backwards`.
        """
        keys = self._settled(group)
        low, high = 0, len(keys)
        if prefix:
            low, high = self._range_of(keys, prefix)
        elif start:
            low = bisect_left(keys, self._place_of(start), key=self._place)
        count = high - low if limit is None else min(limit, high - low)
        return keys[high - count : high][::-1] if backwards else keys[low : low + count]

    def _range_of(self, keys: list[Any], prefix: Row) -> tuple[int, int]:
        columns = len(prefix)
        wanted, place = self._place_of(prefix), self._place or _itself
        low = bisect_left(keys, wanted, key=self._place)
        return low, bisect_right(keys, wanted, low, key=lambda key: place(key[:columns]))

    def _remove(self, group: int, gone: list[Any]) -> None:
        keys = self._settled(group)
        low = bisect_left(keys, self._place_of(self._row(gone[0])), key=self._place)
        if keys[low : low + len(gone)] == gone:
            del keys[low : low + len(gone)]
        elif len(gone) * _MUCH > len(keys):
            missing = set(gone)
            keys[:] = [key for key in keys if key not in missing]
        else:
            for key in gone:
                del keys[bisect_left(keys, self._place_of(self._row(key)), key=self._place)]
        if not keys:
            del self._sorted[group]

    def _settled(self, group: int) -> list[Any]:
        """The keys of a group, all in order."""
        new = self._new.pop(group, None)
        if new is None:
            return self._sorted.get(group, [])
        keys = self._sorted.setdefault(group, [])
        if len(new) <= _FEW and len(new) * _MUCH < len(keys):
            for key in new:
                insort(keys, key, key=self._place)
        else:
            keys += new
            keys.sort(key=self._place)
        return keys

    def _row(self, key: Any) -> Row:
        return (key,) if self._single else key

    def _place_of(self, columns: Row) -> Any:
        """Where keys that begin with these columns are."""
        if self._place is None and None in columns:
            self._expect_nulls()
        key = columns[0] if self._single else columns
        return key if self._place is None else self._place(key)

    def _expect_nulls(self) -> None:
        self._place = _marked if self._single else _all_marked


def _itself(key: Any) -> Any:
    return key


def _marked(value: Any) -> tuple[bool, Any]:
    return value is not None, value


def _all_marked(row: Row) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]
