"""The rows of one side of a join that may still get a partner.

A row is kept in the entry of its time bucket and key, with the other rows there, sorted by position. An entry is looked
up and written once per batch. If it matters whether a row has matched, those that have not are a second state, in the
order in which their wait ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
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

PAIRS_AT_ONCE: Final = 4_096
"""The number of pairs that are made at a time; fewer if they are large."""
_FEW: Final = 8
"""Up to this many rows are compared one by one."""
_POSITION: Final = itemgetter(0)
_encode: Final[Callable[[Any], bytes]] = msgspec.msgpack.Encoder().encode

Kept = tuple[Any, ...]
"""A row in the state: its position, and its columns."""
Pair = tuple[int, Row, Kept]
"""The place of an arriving row in its batch, the bucket and key of its partner, and the partner."""


class Arriving(NamedTuple):
    """Rows of a batch of one side, and what the state has there."""

    ats: list[int]
    keys: list[list[Any]]
    """By key column."""
    entries: list[Row]
    """The bucket and key of each row."""
    known: dict[Row, Value | None]
    """What the state has of each entry: the rows, and how much of their size depends on their values."""
    sizes: list[int]
    """How much of the size of each row depends on its values; empty if nothing does."""


class Side:
    """The state of one side in one subtask."""

    def __init__(
        self, operator: JoinOperator, port: int, slot: Slot, states: Mapping[StateName, KeyedState[Any]]
    ) -> None:
        matching = operator.matching
        self.columns = operator.sides[port]
        self.key_columns = list(operator.key_columns[port])
        self.preserved = operator.rows.preserves(port)
        self.tracked = operator.rows.tracks(port)
        self.waits_ms = matching.waits_ms(port)
        self._alike = operator.where is None
        """Rows of one position and key have the same partners."""
        self._partner_reach = matching.reach(1 - port)
        self._bucket_ms = matching.bucket_ms
        self._state = states[ROWS[port]]
        self._rows = TimeOrdered(self._state, slot.own_groups)
        self._waiting = TimeOrdered(states[WAITING[port]], slot.own_groups) if self.tracked else None
        self._last_at: int | None = None
        """At least the last position that waits; None after a restore."""
        self._bytes_max = slot.bytes_max
        self._sized = [name for name, kind in self.columns if kind.kind in GROWING]
        self._added = 0
        """Entries that were written since the last removal."""

    # -- rows arrive ---------------------------------------------------------------------------------------------------

    def read(self, batch: pl.DataFrame) -> Arriving:
        """Returns the rows of a batch of this side, and looks up their entries."""
        keys = [plain_values(batch[name]) for name in self.key_columns]
        entries = list(zip(self._buckets(batch[AT]), *keys, strict=True))
        wanted = dict.fromkeys(entries)
        known = dict(zip(wanted, self._rows.get_many(wanted), strict=True))
        return Arriving(batch[AT].to_list(), keys, entries, known, self._sizes_of(batch))

    def find_excess(self, arriving: Arriving) -> list[int]:
        """Returns the places of rows that exceed the limits of their entry."""
        sizes = arriving.sizes
        full = [value for value in arriving.known.values() if value is not None]
        rows_max = max((len(value[0]) for value in full), default=0)
        if (
            rows_max + len(arriving.ats) <= ROWS_MAX
            and sum(sizes) + max((value[1] for value in full), default=0) <= BYTES_MAX
        ):
            return []
        counts = {
            entry: (0, 0) if value is None else (len(value[0]), value[1]) for entry, value in arriving.known.items()
        }
        excess = []
        for place, entry in enumerate(arriving.entries):
            count, size = counts[entry]
            counts[entry] = count, size = count + 1, size + (sizes[place] if sizes else 0)
            if count > ROWS_MAX or size > BYTES_MAX:
                excess.append(place)
        return excess

    def add(self, batch: pl.DataFrame, arriving: Arriving, matched: set[int]) -> None:
        """Keeps the rows of a batch. `matched` are the places of those that have a partner already."""
        rows: list[Kept] = list(
            zip(arriving.ats, *(plain_values(batch[name]) for name, _ in self.columns), strict=True)
        )
        known, sizes = arriving.known, arriving.sizes or [0] * len(rows)
        put: Iterable[Value]
        if len(known) == len(rows):
            put = [
                ((row,), size) if value is None else (_merge(value[0], (row,)), value[1] + size)
                for row, size, value in zip(rows, sizes, known.values(), strict=True)
            ]
        else:
            put = _group(rows, arriving.entries, sizes, known)
        self._rows.put_many(known, put)
        self._added += len(known)
        if self.tracked:
            places = zip(arriving.ats, *arriving.keys, strict=True)
            self._wait([(key, row) for n, (key, row) in enumerate(zip(places, rows, strict=True)) if n not in matched])

    def _wait(self, rows: list[tuple[Row, Kept]]) -> None:
        """Adds rows that have no partner yet, with their positions and keys."""
        if not rows or self._waiting is None:
            return
        self._last_at = max(self._last_known(), *(key[0] for key, _ in rows))
        new: dict[Row, tuple[Kept, ...]] = {}
        for key, row in rows:
            new[key] = (*new[key], row) if key in new else (row,)
        known = self._waiting.get_many(new)
        values = [
            (some,) if old is None else ((*old[0], *some),) for old, some in zip(known, new.values(), strict=True)
        ]
        self._waiting.put_many(new, values)

    def _sizes_of(self, batch: pl.DataFrame) -> list[int]:
        sizes = [size for name in self._sized if (size := size_of(pl.col(name), batch[name].dtype)) is not None]
        if not sizes:
            return []
        return batch.select(reduce(add, [size.fill_null(0) for size in sizes]).alias("bytes"))["bytes"].to_list()

    def _buckets(self, ats: pl.Series) -> list[int]:
        width = self._bucket_ms
        return (ats if width == 1 else ats // width * width).to_list()

    def move_to_buckets(self, groups: range) -> None:
        """Moves rows to the buckets of the present width, after a start with another one."""
        for group in groups:
            before = list(self._state.scan(group))
            moved: dict[Row, Value] = {}
            for entry, (rows, size) in before:
                for row in rows:
                    to = (row[0] // self._bucket_ms * self._bucket_ms, *entry[1:])
                    known, total = moved.get(to, ((), 0))
                    moved[to] = (_merge(known, (row,)), total + size // len(rows))
            self._rows.delete_many([entry for entry, _ in before if entry not in moved])
            self._rows.put_many(moved, moved.values())

    # -- partners ------------------------------------------------------------------------------------------------------

    def find(self, batch: pl.DataFrame, arriving: Arriving) -> Iterator[list[Pair]]:
        """Yields the partners that rows of the other side have here, in parts. This side gets no rows meanwhile."""
        before, after = self._partner_reach
        firsts, lasts = self._buckets(batch[AT] - before), self._buckets(batch[AT] + after)
        first = list(zip(firsts, *arriving.keys, strict=True))
        last = list(zip(lasts, *arriving.keys, strict=True)) if firsts != lasts else []
        wanted = dict.fromkeys(first) | dict.fromkeys(last)
        known = zip(wanted, self._rows.get_many(wanted), strict=True)
        found = {entry: value for entry, value in known if value is not None}
        if not found:
            return
        hits = [(place, entry) for place, entry in enumerate(first) if entry in found]
        hits += [(place, entry) for place, entry in enumerate(last) if entry in found and firsts[place] != lasts[place]]
        pairs: list[Pair] = []
        ats, room = arriving.ats, self._bytes_max
        for place, entry in hits:
            (rows, size), low, high = found[entry], ats[place] - before, ats[place] + after
            size //= len(rows)
            if len(rows) > _FEW:
                start = bisect_left(rows, low, key=_POSITION)
                rows = rows[start : bisect_right(rows, high, start, key=_POSITION)]
            for row in rows:
                if low <= row[0] <= high:
                    pairs.append((place, entry, row))
                    room -= size
                    if len(pairs) == PAIRS_AT_ONCE or room < 0:
                        yield pairs
                        pairs, room = [], self._bytes_max
        if pairs:
            yield pairs

    def match(self, pairs: Sequence[Pair]) -> list[Kept]:
        """Records that rows of this side have matched. Returns those that have for the first time."""
        assert self._waiting is not None
        matched: dict[Row, set[bytes]] = {}
        for _, entry, row in pairs:
            key = (row[0], *entry[1:])
            if self._alike:
                matched[key] = _ALL
            else:
                matched.setdefault(key, set()).add(_encode(row))
        taken: list[Kept] = []
        gone: list[Row] = []
        put: dict[Row, Value] = {}
        for (key, some), value in zip(matched.items(), self._waiting.get_many(matched), strict=True):
            if value is None:
                continue
            left = () if self._alike else tuple(row for row in value[0] if _encode(row) not in some)
            taken += value[0] if not left else (row for row in value[0] if _encode(row) in some)
            if left:
                put[key] = (left,)
            else:
                gone.append(key)
        if gone:  # first, because they have just been looked up
            self._waiting.delete_many(gone)
        if put:
            self._waiting.put_many(put, put.values())
        return taken

    # -- time passes ---------------------------------------------------------------------------------------------------

    def take_unmatched(self, watermark_ms: int, limit: int) -> tuple[list[Row], list[Kept]]:
        """Returns the positions and keys whose wait is over, at most `limit`, and the rows there."""
        if self._waiting is None:
            return [], []
        self._last_known()
        taken = self._waiting.take_due(watermark_ms - self.waits_ms, limit)
        return [key for key, _ in taken], [row for _, value in taken for row in value[0]]

    def groups_of(self, keys: list[Row]) -> Sequence[int]:
        """Returns the key groups of positions and keys."""
        return self._state.groups_of(keys)

    def remove(self, watermark_ms: int, limit: int) -> bool:
        """Removes rows that can get no partner any more, in parts. Returns True if there may be more."""
        limit, self._added = max(limit, self._added), 0
        over_ms = watermark_ms - self.waits_ms
        more = self._rows.remove_due(over_ms - self._bucket_ms + 1, limit) == limit
        if self._waiting is not None and not self.preserved:
            more |= self._waiting.remove_due(over_ms, limit) == limit
        return more

    # -- sizes ---------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the number of entries."""
        return len(self._rows)

    @property
    def waiting(self) -> int:
        """The number of positions and keys of rows that come out if they match nothing."""
        return len(self._waiting) if self._waiting is not None and self.preserved else 0

    @property
    def waits_until_ms(self) -> int | None:
        """When the wait of the last of them is over; None if nothing waits."""
        return self._last_at + self.waits_ms if self.waiting and self._last_at is not None else None

    def _last_known(self) -> int:
        if self._last_at is None:
            last_ms = None if self._waiting is None else self._waiting.last_ms
            self._last_at = LOWEST if last_ms is None else last_ms
        return self._last_at


def _group(
    rows: Sequence[Kept], entries: Sequence[Row], sizes: Sequence[int], known: Mapping[Row, Value | None]
) -> list[Value]:
    """Returns the new values of entries, of which some have several new rows."""
    new: dict[Row, list[Kept]] = {entry: [] for entry in known}
    added = dict.fromkeys(known, 0)
    for row, entry, size in zip(rows, entries, sizes, strict=True):
        new[entry].append(row)
        added[entry] += size
    return [
        (_merge((), some), size) if value is None else (_merge(value[0], some), value[1] + size)
        for some, size, value in zip(new.values(), added.values(), known.values(), strict=True)
    ]


def _merge(known: tuple[Kept, ...], new: Sequence[Kept]) -> tuple[Kept, ...]:
    """Returns the rows of an entry with new ones, in the order of their positions."""
    some = sorted(new, key=_POSITION)
    merged = (*known, *some)
    return merged if not known or known[-1][0] <= some[0][0] else tuple(sorted(merged, key=_POSITION))


_ALL: Final = set[bytes]()
"""Which rows of a position and key have matched: all of them."""
