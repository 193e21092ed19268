"""Messages of librdkafka as columns, in place: no object per message, and none for parts that are not requested.

librdkafka owns the messages until the last batch with some of them is gone or their client ends. Then all are given
back, since a client cannot end before (ADR 67).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from typing import Final
from weakref import WeakSet

import polars as pl
from typing_extensions import override

from tidegate.formats.contract import FlatHeaders, Headers, ValueMemory
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.ids import TopicPartition
from tidegate.native.library import Library
from tidegate.native.librdkafka import Librdkafka
from tidegate.sources.messages import NO_HEADERS, Origins, OutOfOrder, Records


class Loans:
    """The messages lent by one client."""

    def __init__(self, library: Library, client: Librdkafka) -> None:
        self.library = library
        self.client = client
        self._open: WeakSet[Loan] = WeakSet()

    def add(self, messages: array[int]) -> Loan:
        """Lends messages, given by their addresses."""
        one = Loan(self, messages)
        self._open.add(one)
        return one

    def end(self) -> None:
        """Gives everything back, when the client ends: nothing may be read any more."""
        for one in list(self._open):
            one.give_back()


class Loan:
    """Some messages, given back once."""

    def __init__(self, loans: Loans, messages: array[int]) -> None:
        self._loans = loans
        self._messages: array[int] | None = messages

    @property
    def ended(self) -> bool:
        """Whether the messages have been given back."""
        return self._messages is None

    def give_back(self) -> None:
        """Gives the messages back to librdkafka."""
        messages, self._messages = self._messages, None
        if messages:
            destroy = self._loans.client.address["message_destroy"]
            self._loans.library.free.tg_destroy(address_of(messages), len(messages), destroy)

    def __del__(self) -> None:
        self.give_back()


class Columns:
    """The fields of each message that are available without further access to memory."""

    __slots__ = ("lengths", "messages", "offsets", "partitions", "topics", "values")

    def __init__(
        self,
        messages: array[int],
        values: array[int],
        lengths: array[int],
        partitions: array[int],
        offsets: array[int],
        topics: array[int],
    ) -> None:
        """Addresses, also of values and topics; lengths of values, -1 for NULL."""
        self.messages, self.values, self.lengths = messages, values, lengths
        self.partitions, self.offsets, self.topics = partitions, offsets, topics

    @classmethod
    def of(cls, count: int) -> Columns:
        """Allocates columns for `count` messages."""
        return cls(*(room_of(kind, count) for kind in "QQiiqQ"))

    def __getitem__(self, rows: slice) -> Columns:
        return Columns(*(getattr(self, name)[rows] for name in _COLUMNS))

    def __add__(self, other: Columns) -> Columns:
        return Columns(*(getattr(self, name) + getattr(other, name) for name in _COLUMNS))

    def choose(self, rows: Sequence[int]) -> Columns:
        """Returns some of the rows."""
        found = ((column.typecode, column) for column in (getattr(self, name) for name in _COLUMNS))
        return Columns(*(array(kind, [column[row] for row in rows]) for kind, column in found))


_NO_MEMORY: Final = -(1 << 63)
_COLUMNS = ("messages", "values", "lengths", "partitions", "offsets", "topics")


class NativeMessages(Records):
    """Messages in librdkafka's memory."""

    def __init__(self, loans: Loans, kept: frozenset[Loan], columns: Columns, size_bytes: int | None = None) -> None:
        """`kept` are the loans that the messages belong to."""
        self._loans = loans
        self._library = loans.library
        self._arrow = loans.library.arrow
        self._address = loans.client.address
        self._kept = kept
        self._all = columns
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self._all.messages)

    @property
    def _columns(self) -> Columns:
        """The columns, for reading librdkafka's memory. Raises RuntimeError after the client's end."""
        if any(one.ended for one in self._kept):
            raise RuntimeError("records were used after the client that read them had been closed")
        return self._all

    @property
    @override
    def memory(self) -> ValueMemory:
        columns = self._columns
        return ValueMemory(address_of(columns.values), address_of(columns.lengths), len(self))

    @cached_property
    @override
    def values(self) -> list[bytes | None]:
        columns = self._columns
        return self._library.bytes_of(address_of(columns.values), address_of(columns.lengths), len(self))

    @property
    @override
    def keys(self) -> list[bytes | None]:
        addresses, lengths = self._find_keys()
        return self._library.bytes_of(address_of(addresses), address_of(lengths), len(self))

    @property
    @override
    def key_column(self) -> pl.Series:
        addresses, lengths = self._find_keys()
        return self._arrow.view_column("key", address_of(addresses), address_of(lengths), len(self))

    def _find_keys(self) -> tuple[array[int], array[int]]:
        count = len(self)
        addresses, lengths = room_of("Q", count), room_of("i", count)
        self._library.free.tg_keys(
            address_of(self._columns.messages), count, address_of(addresses), address_of(lengths)
        )
        return addresses, lengths

    @property
    @override
    def headers(self) -> Sequence[Headers | None]:
        counts, names, name_lengths, values, value_lengths = self._find_headers()
        if not names:
            return [()] * len(self)
        read = self._library.bytes_of
        texts = map(_text_of, read(address_of(names), address_of(name_lengths), len(names)))
        pairs = list(zip(texts, read(address_of(values), address_of(value_lengths), len(values)), strict=True))
        found: list[Headers | None] = []
        start = 0
        for count in counts:
            mine = pairs[start : start + count]
            start += count
            found.append(None if any(name is None for name, _ in mine) else mine)  # type: ignore[arg-type]  # looked at just now
        return found

    @property
    @override
    def flat_headers(self) -> FlatHeaders | None:
        counts, names, name_lengths, values, value_lengths = self._find_headers()
        if not names:
            return NO_HEADERS
        try:
            texts = self._arrow.view_column("key", address_of(names), address_of(name_lengths), len(names)).cast(
                pl.String
            )
        except pl.exceptions.PolarsError:  # some are not UTF-8
            return None
        contents = self._arrow.view_column("value", address_of(values), address_of(value_lengths), len(values))
        return FlatHeaders(self._arrow.fixed_column("", address_of(counts), len(counts), pl.Int64), texts, contents)

    def _find_headers(self) -> tuple[array[int], array[int], array[int], array[int], array[int]]:
        """Returns the header count of each message, and addresses and lengths of all names and of all values."""
        count, address = len(self), self._address
        lists, counts = room_of("Q", count), room_of("q", count)
        messages = address_of(self._columns.messages)
        number = self._library.free.tg_count_headers(
            messages,
            count,
            address["message_headers"],
            address["header_cnt"],
            address_of(lists),
            address_of(counts),
        )
        parts = room_of("Q", number), room_of("i", number), room_of("Q", number), room_of("i", number)
        if number:
            get = address["header_get_all"]
            given = (messages, address_of(lists), address_of(counts))
            self._library.free.tg_headers(*given, count, get, *map(address_of, parts))
        return counts, *parts

    @property
    @override
    def timestamps_ms(self) -> list[int | None]:
        times, known, missing = self._find_times()
        if not missing:
            return [*times]
        return [at if there else None for at, there in zip(times, known, strict=True)]

    @property
    @override
    def timestamp_column(self) -> pl.Series:
        times, _, missing = self._find_times()
        if missing:
            return pl.Series("timestamp", self.timestamps_ms, dtype=pl.Int64)
        return self._arrow.fixed_column("timestamp", address_of(times), len(times), pl.Int64)

    def _find_times(self) -> tuple[array[int], array[int], int]:
        count = len(self)
        times, known = room_of("q", count), room_of("B", count)
        get = self._address["message_timestamp"]
        missing = self._library.free.tg_timestamps(
            address_of(self._columns.messages), count, get, address_of(times), address_of(known)
        )
        return times, known, missing

    @cached_property
    @override
    def topics(self) -> list[str]:
        columns = self._columns
        name_of = {at: self._loans.client.topic_name(at).decode() for at in set(columns.topics)}
        return [name_of[at] for at in columns.topics]

    @property
    @override
    def partitions(self) -> Sequence[int]:
        return self._all.partitions

    @property
    @override
    def offsets(self) -> Sequence[int]:
        return self._all.offsets

    @cached_property
    @override
    def origins(self) -> Origins:
        columns, count = self._all, len(self)
        numbers, firsts, lasts = room_of("i", count), room_of("q", count), room_of("q", count)
        given = map(address_of, (columns.partitions, columns.topics))
        taken = map(address_of, (columns.offsets, numbers, firsts, lasts))
        found = self._library.free.tg_origins(*given, count, *taken)
        if found == _NO_MEMORY:
            raise MemoryError("no memory to number the partitions of a batch")
        if found < 0:
            raise OutOfOrder(-found)
        firsts = firsts[:found]
        return Origins(tuple(map(self.partition_at, firsts)), numbers, firsts, lasts[:found])

    @override
    def partition_at(self, row: int) -> TopicPartition:
        name = self._loans.client.topic_name(self._columns.topics[row])
        return TopicPartition(name.decode(), self._all.partitions[row])

    @cached_property
    @override
    def partition_column(self) -> pl.Series:
        return self._arrow.fixed_column("__tidegate_partition", address_of(self._all.partitions), len(self), pl.Int32)

    @cached_property
    @override
    def offset_column(self) -> pl.Series:
        return self._arrow.fixed_column("__tidegate_offset", address_of(self._all.offsets), len(self), pl.Int64)

    @property
    @override
    def sizes(self) -> list[int]:
        return [max(length, 0) for length in self._all.lengths]

    @property
    @override
    def size_bytes(self) -> int:
        if self._size_bytes is None:
            self._size_bytes = self._library.free.tg_value_bytes(address_of(self._all.lengths), len(self))
        return self._size_bytes

    @property
    @override
    def record_bytes(self) -> int:
        asked = (self._address[name] for name in ("message_headers", "header_cnt", "header_get_all"))
        found: int = self._library.free.tg_record_bytes(address_of(self._columns.messages), len(self), *asked)
        return found

    @override
    def raw(self, row: int) -> RawRecord:
        one = self.part(row, row + 1)
        return RawRecord(one.keys[0], one.values[0], one.headers[0], one.timestamps_ms[0])

    @override
    def part(self, start: int, end: int) -> NativeMessages:
        if end - start == len(self):
            return self
        return NativeMessages(self._loans, self._kept, self._all[start:end])

    @override
    def choose(self, rows: Sequence[int]) -> NativeMessages:
        return NativeMessages(self._loans, self._kept, self._all.choose(rows))

    @override
    def joined(self, others: Records) -> Records:
        if not self:
            return others
        if not others:
            return self
        assert isinstance(others, NativeMessages)
        size_bytes = self.size_bytes + others.size_bytes
        kept, columns = self._kept | others._kept, self._all + others._all  # noqa: SLF001  # of its own class
        return NativeMessages(self._loans, kept, columns, size_bytes)


def room_of(kind: str, count: int) -> array[int]:
    """Returns zeros for C to overwrite. A ctypes array is not used: each size would be a type of its own."""
    return array(kind, bytes(array(kind).itemsize * count))


def address_of(values: array[int]) -> int:
    """Returns the address of the first element, valid while the array exists and keeps its length."""
    return values.buffer_info()[0]


def _text_of(name: bytes | None) -> str | None:
    try:
        return (name or b"").decode()
    except UnicodeDecodeError:
        return None
