"""The input of the campaign of joins: two topics with disorder, late rows, silence, skewed and NULL keys, and a table.

Everything is drawn from a seed. The input consists of chunks of one second of event time. A chunk is written and
flushed before the next one, and rows are out of order by less than the delay of the watermarks. So the only late rows
are those that are made late here, by the watermark of their own partition, however long a partition is silent.
`find_late` determines the late rows again, from the input alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

DELAY_MS: Final = 10_000
"""The delay of the watermarks of both sources."""
DISORDER_MS: Final = 8_000
CHUNK_MS: Final = 1_000
WINDOW_MS: Final = 10_000
"""The size of the windows of joins with windows."""
LATE_MS: Final = (5_000, 60_000)
"""How far a late row is behind the watermark of its partition."""
ROWS_PER_CHUNK: Final = 200
"""Of both sides together."""
BASE_MS: Final = 1_767_225_600_000
CLOSING_MS: Final = 3_600_000
"""The last row of every partition is later by this than all others: it makes everything before it due."""
ACCOUNTS: Final = 5_000
HOT: Final = 20
PARTITIONS: Final = {"orders": 4, "payments": 3, "customers": 4}
SILENT: Final = (
    ("payments", None, 0.20, 0.30),
    ("orders", 0, 0.40, 0.55),
    ("orders", None, 0.60, 0.68),
    ("payments", 2, 0.70, 0.95),
)
"""Topic, partition (None: all), and from which to which share of the input nothing is written there."""

Side: TypeAlias = Literal["orders", "payments"]


class Entry(msgspec.Struct, frozen=True):
    """An order or a payment. `id` is unique on its side, and negative for a row that closes a partition."""

    id: int
    account: int | None
    amount: int
    at: int
    """Event time, ms."""
    customer: str | None = None


class Version(msgspec.Struct, frozen=True):
    """A row of the table of customers."""

    version: int
    segment: str


class Chunk(msgspec.Struct, frozen=True):
    """What is written at once, per topic as (partition, row) in order. A customer's row of None is a tombstone."""

    entries: Mapping[Side, list[tuple[int, Entry]]]
    customers: list[tuple[str, Version | None]] = []


class JoinInput:
    """All chunks of a seed, and what was written, for the oracle."""

    def __init__(self, seed: int, rows: int) -> None:
        self._dice = random.Random(f"joins {seed}")
        self._versions: dict[str, int] = {}
        """Per customer the highest version, also while the customer is deleted."""
        self._deleted: set[str] = set()
        self._ids = {"orders": 0, "payments": 0}
        self._newest: dict[tuple[str, int], int] = {}
        """Per partition, the newest event time."""
        self.customers = list(self._first_customers())
        """What the topic of the table has before anything else begins."""
        self.loaded = {name: version for name, version in self._versions.items() if name not in self._deleted}
        """Per customer the version at the end of `customers`; deleted ones are missing."""
        count = max(10, rows // ROWS_PER_CHUNK)
        self.chunks = [self._chunk(number, count) for number in range(count)]
        self.chunks.append(self._closing(count))

    def written(self, side: Side) -> list[tuple[int, Entry]]:
        """Returns the partitions and rows of a side in the order of their partition."""
        return [one for chunk in self.chunks for one in chunk.entries[side]]

    def updates(self) -> list[tuple[str, Version | None]]:
        """Returns all rows of the table in the order per customer."""
        return [*self.customers, *(one for chunk in self.chunks for one in chunk.customers)]

    def _first_customers(self) -> Iterator[tuple[str, Version | None]]:
        for account in range(ACCOUNTS):
            if account % 10 != 9:  # the others are never in the table
                yield self._update(account)
            if account % 5 == 0:
                yield self._update(account)
            if account % 10 == 8:
                yield self._delete(account)

    def _update(self, account: int) -> tuple[str, Version]:
        name = f"c{account}"
        self._versions[name] = self._versions.get(name, 0) + 1
        self._deleted.discard(name)
        return name, Version(self._versions[name], f"s{self._dice.randrange(10)}")

    def _delete(self, account: int) -> tuple[str, None]:
        self._deleted.add(f"c{account}")
        return f"c{account}", None

    def _chunk(self, number: int, count: int) -> Chunk:
        entries: dict[Side, list[tuple[int, Entry]]] = {"orders": [], "payments": []}
        for _ in range(ROWS_PER_CHUNK):
            side: Side = self._dice.choice(("orders", "payments"))
            last = PARTITIONS[side] - 1  # has twice as many rows as the others
            partition = min(self._dice.randrange(last + 2), last)
            if not _is_silent(side, partition, number / count):
                entries[side].append((partition, self._entry(side, partition, BASE_MS + number * CHUNK_MS)))
        changed = self._dice.sample(range(ACCOUNTS // 10), 3)
        customers: list[tuple[str, Version | None]] = [self._update(10 * account) for account in changed]
        if number % 5 == 0:
            account = 10 * self._dice.randrange(ACCOUNTS // 10) + 7
            gone = f"c{account}" in self._deleted
            customers.append(self._update(account) if gone else self._delete(account))
        return Chunk(entries, customers)

    def _entry(self, side: Side, partition: int, chunk_ms: int) -> Entry:
        dice = self._dice
        at = chunk_ms + dice.randrange(CHUNK_MS) - dice.randrange(DISORDER_MS)
        newest = self._newest.get((side, partition), 0)
        if newest > chunk_ms - CHUNK_MS and dice.random() < 0.01:
            closed = newest - DELAY_MS
            at = closed - dice.randrange(*LATE_MS)
            if closed < _window_end(at, WINDOW_MS) <= closed + 2 * CHUNK_MS:
                at -= WINDOW_MS  # whether its window is closed could depend on other partitions
        self._newest[side, partition] = max(newest, at)
        drawn = dice.random()
        account = None if drawn < 0.02 else dice.randrange(HOT) if drawn < 0.12 else dice.randrange(ACCOUNTS)
        self._ids[side] += 1
        customer = None if account is None else f"c{account}"
        return Entry(self._ids[side], account, dice.randrange(1, 10_000), at, customer if side == "orders" else None)

    def _closing(self, count: int) -> Chunk:
        at = BASE_MS + count * CHUNK_MS + CLOSING_MS
        sides: tuple[Side, Side] = ("orders", "payments")
        return Chunk(
            {
                side: [
                    (partition, Entry(-1 - partition, -1 - partition - 100 * place, 0, at, None))
                    for partition in range(PARTITIONS[side])
                ]
                for place, side in enumerate(sides)
            }
        )


def _is_silent(side: Side, partition: int, share: float) -> bool:
    return any(
        topic == side and only in {None, partition} and begin <= share < end for topic, only, begin, end in SILENT
    )


def find_late(written: Iterable[tuple[int, Entry]], window_ms: int = 1) -> set[int]:
    """Returns the ids of rows whose window is closed by the watermark of their partition when they are read.

    The watermark is the highest event time so far, minus the delay. A join without windows closes every instant by
    itself.
    """
    highest: dict[int, int] = {}
    late: set[int] = set()
    for partition, entry in written:
        if _window_end(entry.at, window_ms) <= highest.get(partition, entry.at) - DELAY_MS:
            late.add(entry.id)
        highest[partition] = max(entry.at, highest.get(partition, entry.at))
    return late


def _window_end(at: int, window_ms: int) -> int:
    return at // window_ms * window_ms + window_ms
