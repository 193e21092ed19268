"""The rows of one side of a join that may still get a partner.

A row is kept in the entry of its time bucket and key, with the other rows there, sorted by position. An entry is looked
up and written once per batch. If unmatched rows are emitted, the positions of rows that wait are a second state, in the
order in which they become due.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from tidegate.expressions.bounds import GROWING
from tidegate.formats.columns import plain_values
from tidegate.formats.sizes import size_of
from tidegate.ids import StateName
from tidegate.operators.kinds.join import AT, BYTES_MAX, ROWS, ROWS_MAX, WAITING
from tidegate.operators.runtime import LOWEST
from tidegate.state.base import KeyedState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value
from tidegate.state.time_ordered import TimeOrdered

if TYPE_CHECKING:
    from tidegate.operators.kinds.join import JoinOperator
    from tidegate.operators.spec import Slot

_FEW: Final = 8
"""Up to this many rows are compared one by one."""
_POSITION: Final = itemgetter(0)

Kept = tuple[Any, ...]
"""A row in the state: its position; if that is known, whether it has matched; and its columns."""
Pair = tuple[int, Row, int, Kept]
"""The place of an arriving row in its batch; the entry of its partner, the index there, and the partner."""


class Arriving(NamedTuple):
    """Rows of a batch in the form of the state."""

    ats: list[int]
    keys: list[list[Any]]
    """By key column."""
    places: dict[Row, list[int]]
    """The places of the rows of each entry."""
    known: list[Value | None]
    """What the state has of each entry."""
    sizes: list[int]
    """How much of each row depends on its values; empty if nothing does."""


class Side:
    """The state of one side in one subtask."""

    def __init__(
        self, operator: JoinOperator, port: int, slot: Slot, states: Mapping[StateName, KeyedState[Any]]
    ) -> None:
        matching, rows = operator.matching, operator.rows
        self.columns = operator.sides[port]
        self.key_columns = list(operator.key_columns[port])
        self.preserved = rows.preserves(port)
        self.flagged = rows.flags(port)
        self.consumed = port == 0 and not rows.pairs
        """A row that has matched once is of no further use."""
        self.waits_ms = matching.waits_ms(port)
        self.first = 2 if self.flagged else 1
        """The index of the first column in a kept row."""
        self._partner_reach = matching.reach(1 - port)
        self._bucket_ms = matching.bucket_ms
        self._state = states[ROWS[port]]
        self._rows = TimeOrdered(self._state, slot.own_groups)
        self._waiting = TimeOrdered(states[WAITING[port]], slot.own_groups) if self.preserved else None
        self._last_at: int | None = None
        """At least the last position in `_waiting`; None after a restore."""
        self._sized = [name for name, kind in self.columns if kind.kind in GROWING]
        self._added = 0
        """Entries that were written since the last removal."""

    # -- rows arrive ---------------------------------------------------------------------------------------------------

    def read(self, batch: pl.DataFrame) -> Arriving:
        """Returns the rows of a batch of this side, and looks up their entries."""
        keys = [plain_values(batch[name]) for name in self.key_columns]
        places: dict[Row, list[int]] = {}
        for place, entry in enumerate(zip(self._buckets(batch[AT]), *keys, strict=True)):
            if entry in places:
                places[entry].append(place)
            else:
                places[entry] = [place]
        return Arriving(batch[AT].to_list(), keys, places, self._rows.get_many(places), self._sizes_of(batch))

    def find_excess(self, arriving: Arriving) -> list[int]:
        """Returns the places of rows that exceed the limits of their entry."""
        sizes = arriving.sizes
        excess: list[int] = []
        for places, known in zip(arriving.places.values(), arriving.known, strict=True):
            count, total = (0, 0) if known is None else (len(known[0]), known[1])
            if count + len(places) <= ROWS_MAX and not sizes:
                continue
            for place in places:
                count, total = count + 1, total + (sizes[place] if sizes else 0)
                if count > ROWS_MAX or total > BYTES_MAX:
                    excess.append(place)
        return sorted(excess)

    def add(self, batch: pl.DataFrame, arriving: Arriving, matched: set[int]) -> None:
        """Keeps the rows of a batch. `matched` are the places of those that have a partner already."""
        ats, sizes = arriving.ats, arriving.sizes
        flags = [[place in matched for place in range(len(ats))]] if self.flagged else []
        kept = list(zip(ats, *flags, *(plain_values(batch[name]) for name, _ in self.columns), strict=True))
        put: dict[Row, Value] = {}
        for (entry, places), known in zip(arriving.places.items(), arriving.known, strict=True):
            left = [place for place in places if place not in matched] if self.consumed and matched else places
            if not left:
                continue
            new = tuple(kept[place] for place in left)
            size = sum(sizes[place] for place in left) if sizes else 0
            put[entry] = (_merge((), new), size) if known is None else (_merge(known[0], new), known[1] + size)
        if put:
            self._rows.put_many(put, put.values())
            self._added += len(put)
        if self._waiting is not None:
            self._wait(row for place, row in enumerate(zip(ats, *arriving.keys, strict=True)) if place not in matched)

    def _wait(self, rows: Iterable[Row]) -> None:
        """Notes rows that have no partner yet."""
        assert self._waiting is not None
        waiting = dict.fromkeys(rows, ())
        if waiting:
            self._last_at = max(self._last_known(), *map(_POSITION, waiting))
            self._waiting.put_many(waiting, waiting.values())

    def _sizes_of(self, batch: pl.DataFrame) -> list[int]:
        sizes = [size for name in self._sized if (size := size_of(pl.col(name), batch[name].dtype)) is not None]
        if not sizes:
            return []
        return batch.select(reduce(add, [size.fill_null(0) for size in sizes]).alias("bytes"))["bytes"].to_list()

    def _buckets(self, ats: pl.Series) -> list[int]:
        width = self._bucket_ms
        return (ats if width == 1 else ats // width * width).to_list()

    # -- partners ------------------------------------------------------------------------------------------------------

    def find(self, batch: pl.DataFrame, arriving: Arriving) -> tuple[dict[Row, Value], Iterator[Pair]]:
        """Returns the entries of this side that may have partners of rows of the other side, and the pairs."""
        before, after = self._partner_reach
        firsts, lasts = self._buckets(batch[AT] - before), self._buckets(batch[AT] + after)
        entries = [list(zip(firsts, *arriving.keys, strict=True))]
        if firsts != lasts:
            entries.append(list(zip(lasts, *arriving.keys, strict=True)))
        wanted = {entry: None for part in entries for entry in part}
        found = {
            entry: value for entry, value in zip(wanted, self._rows.get_many(wanted), strict=True) if value is not None
        }
        return found, self._pairs(found, arriving.ats, entries) if found else iter(())

    def _pairs(self, found: Mapping[Row, Value], ats: Sequence[int], entries: list[list[Row]]) -> Iterator[Pair]:
        before, after = self._partner_reach
        known = found.get
        for place, (at, one, *more) in enumerate(zip(ats, *entries, strict=True)):
            for entry in (one, *more) if more and more[0] != one else (one,):
                value = known(entry)
                if value is None:
                    continue
                rows, low, high = value[0], at - before, at + after
                if len(rows) <= _FEW:
                    for index, row in enumerate(rows):
                        if low <= row[0] <= high:
                            yield place, entry, index, row
                else:
                    start = bisect_left(rows, low, key=_POSITION)
                    end = bisect_right(rows, high, start, key=_POSITION)
                    for index, row in enumerate(islice(rows, start, end), start):
                        yield place, entry, index, row

    def note_matched(self, found: Mapping[Row, Value], matched: Mapping[Row, set[int]]) -> None:
        """Records that rows have matched for the first time: by entry their indexes among the rows that `found` has."""
        put: dict[Row, Value] = {}
        gone: list[Row] = []
        over: list[Row] = []
        for entry, indexes in matched.items():
            rows, size = found[entry]
            if self.flagged:
                left = tuple((row[0], True, *row[2:]) if index in indexes else row for index, row in enumerate(rows))
                put[entry] = (left, size)
                waiting = {row[0] for row in left if not row[1]}
            else:
                left = tuple(row for index, row in enumerate(rows) if index not in indexes)
                if left:
                    put[entry] = (left, size * len(left) // len(rows))
                else:
                    gone.append(entry)
                waiting = {row[0] for row in left}
            over += [(at, *entry[1:]) for at in {rows[index][0] for index in indexes} - waiting]
        self._rows.put_many(put, put.values())
        self._rows.delete_many(gone)
        if self._waiting is not None:
            self._waiting.delete_many(over)

    # -- time passes ---------------------------------------------------------------------------------------------------

    def take_unmatched(self, watermark_ms: int, limit: int) -> tuple[list[Row], list[Kept]]:
        """Returns the positions and keys, at most `limit`, whose wait is over, and the unmatched rows there."""
        if self._waiting is None:
            return [], []
        self._last_known()
        taken = [row for row, _ in self._waiting.take_due(watermark_ms - self.waits_ms, limit)]
        due: dict[Row, set[int]] = {}
        for at, *key in taken:
            due.setdefault((at // self._bucket_ms * self._bucket_ms, *key), set()).add(at)
        rows: list[Kept] = []
        for ats, value in zip(due.values(), self._rows.get_many(due), strict=True):
            if value is not None:
                rows += [row for row in value[0] if row[0] in ats and not (self.flagged and row[1])]
        return taken, rows

    def groups_of(self, rows: list[Row]) -> Sequence[int]:
        """Returns the key groups of rows of a time and a key."""
        return self._state.groups_of(rows)

    def remove(self, watermark_ms: int, limit: int) -> bool:
        """Removes entries whose rows can get no partner any more, in parts. Returns True if there may be more."""
        limit, self._added = max(limit, self._added), 0
        over_ms = watermark_ms - self.waits_ms - self._bucket_ms + 1
        return len(self._rows.take_due(over_ms, limit)) == limit

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """The number of positions and keys that wait."""
        return 0 if self._waiting is None else len(self._waiting)

    @property
    def waits_until_ms(self) -> int | None:
        """The time by which the wait of the last one is over; None if nothing waits."""
        return self._last_at + self.waits_ms if self.waiting and self._last_at is not None else None

    def _last_known(self) -> int:
        if self._last_at is None:
            assert self._waiting is not None
            self._last_at = self._waiting.last_ms or LOWEST
        return self._last_at


def _merge(known: tuple[Kept, ...], new: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """Returns the rows of an entry with new ones, in the order of their positions."""
    if len(new) > 1:
        new = tuple(sorted(new, key=_POSITION))
    if not known:
        return new
    merged = (*known, *new)
    return merged if known[-1][0] <= new[0][0] else tuple(sorted(merged, key=_POSITION))
