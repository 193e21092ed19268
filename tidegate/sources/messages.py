"""A source's view of a batch of messages, and message objects of the Python client as such a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain, starmap
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import confluent_kafka as ck
import polars as pl
from typing_extensions import override

from tidegate.formats.contract import FlatHeaders, Headers, Messages
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.ids import TopicPartition

# The library's types allow None, which only messages without a broker have: narrowed once, not per record.
_TOPIC: Callable[[ck.Message], str] = ck.Message.topic  # type: ignore[assignment]  # see above
_PARTITION: Callable[[ck.Message], int] = ck.Message.partition  # type: ignore[assignment]  # see above
_OFFSET: Callable[[ck.Message], int] = ck.Message.offset  # type: ignore[assignment]  # see above
_HEADERS: Callable[[ck.Message], Headers | None] = ck.Message.headers  # type: ignore[assignment]  # values may be None
_UNREADABLE: Final[Any] = []
"""Replaces headers that cannot be read; compared by identity. It is false like missing headers, so that a single check
finds both.
"""
_SECOND: Final = itemgetter(1)


class OutOfOrder(Exception):
    """A record of a partition follows one with the same or a higher offset."""

    def __init__(self, row: int) -> None:
        self.row = row


class Origins(NamedTuple):
    """The partitions of the messages of a batch, in the order in which they first occur."""

    partitions: Sequence[TopicPartition]
    numbers: Sequence[int]
    """By message, the place of its partition in `partitions`."""
    firsts: Sequence[int]
    """By partition, the row of its first message."""
    lasts: Sequence[int]
    """By partition, the row of its last message."""


NO_HEADERS: Final = FlatHeaders(
    pl.Series(dtype=pl.Int64), pl.Series("key", dtype=pl.String), pl.Series("value", dtype=pl.Binary)
)
"""Most topics have no headers, so it is created once."""


class Records(Messages, Protocol):
    """What a source needs from a batch in addition to a decoder's needs."""

    @property
    def key_column(self) -> pl.Series:
        """`keys` as Binary."""

    @property
    def timestamp_column(self) -> pl.Series:
        """`timestamps_ms` as Int64."""

    @property
    def partition_column(self) -> pl.Series:
        """`partitions` as Int32: each row carries it, and it may also be a column of the source."""

    @property
    def offset_column(self) -> pl.Series:
        """`offsets` as Int64: each row carries it, and it may also be a column of the source."""

    @property
    def origins(self) -> Origins:
        """The partitions of the messages. Raises OutOfOrder."""

    def partition_at(self, row: int) -> TopicPartition:
        """Returns the partition of one message."""

    @property
    def sizes(self) -> Sequence[int]:
        """Sizes of the values, in bytes."""

    @property
    def size_bytes(self) -> int:
        """Size of all values."""

    @property
    def record_bytes(self) -> int:
        """Size of all keys, values, and names and values of headers."""

    def raw(self, row: int) -> RawRecord:
        """Returns one message unchanged, for a dead letter about it."""

    @override
    def part(self, start: int, end: int) -> Records:
        pass

    def choose(self, rows: Sequence[int]) -> Records:
        """Returns some of the messages."""

    def joined(self, others: Records) -> Records:
        """Returns these messages, followed by others read in the same way."""


class KafkaMessages(Records):
    """Messages of the Python client, without errors. A column is created when requested."""

    memory = None
    flat_headers = None

    def __init__(self, messages: Sequence[ck.Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    @override
    def values(self) -> list[bytes | None]:
        """Cached: the source searches them for tombstones if the decoder does not handle those."""
        return list(map(ck.Message.value, self._messages))

    @property
    @override
    def keys(self) -> list[bytes | None]:
        return list(map(ck.Message.key, self._messages))

    @property
    @override
    def headers(self) -> Sequence[Headers | None]:
        """Marks headers with a name that is not UTF-8.

        For such a name the client both returns a list and raises, and returns the list when called again; reading the
        name in it crashes the process. Therefore the mark replaces the list in the message. Only calls from C reliably
        see the exception: calls that the interpreter has specialised do not check.
        """
        found: list[Headers | None] = []
        answers = map(_HEADERS, self._messages)  # after an exception it continues with the next message
        while len(found) < len(self._messages):
            try:
                found.extend(answers)  # keeps what it had before an exception
            except (UnicodeDecodeError, SystemError):
                self._messages[len(found)].set_headers(_UNREADABLE)
                found.append(_UNREADABLE)
        if all(found):
            return found
        if found.count(None) == len(found):
            return [()] * len(found)
        return [None if headers is _UNREADABLE else headers or () for headers in found]

    @property
    @override
    def key_column(self) -> pl.Series:
        return pl.Series("key", self.keys, dtype=pl.Binary)

    @property
    @override
    def timestamp_column(self) -> pl.Series:
        return pl.Series("timestamp", self.timestamps_ms, dtype=pl.Int64)

    @property
    @override
    def timestamps_ms(self) -> Sequence[int | None]:
        # Each pair is freed before the next one is created: a list of pairs takes half as long again.
        found: list[int] = list(map(_SECOND, map(ck.Message.timestamp, self._messages)))
        if found and min(found) < 0:
            return list(map(stamp_of, self._messages))
        return found

    @property
    @override
    def topics(self) -> list[str]:
        return list(map(_TOPIC, self._messages))

    @cached_property
    @override
    def partitions(self) -> list[int]:
        """Cached: the source always requests them."""
        return list(map(_PARTITION, self._messages))

    @cached_property
    @override
    def offsets(self) -> list[int]:
        """Cached: the source always requests them."""
        return list(map(_OFFSET, self._messages))

    @cached_property
    @override
    def partition_column(self) -> pl.Series:
        return pl.Series("__tidegate_partition", self.partitions, dtype=pl.Int32)

    @cached_property
    @override
    def offset_column(self) -> pl.Series:
        return pl.Series("__tidegate_offset", self.offsets, dtype=pl.Int64)

    @cached_property
    @override
    def origins(self) -> Origins:
        found: dict[tuple[str, int], int] = {}
        numbers: list[int] = []
        firsts: list[int] = []
        lasts: list[int] = []
        places = zip(self.topics, self.partitions, strict=True)
        for row, (place, offset) in enumerate(zip(places, self.offsets, strict=True)):
            number = found.setdefault(place, len(found))
            if number == len(lasts):
                firsts.append(row)
                lasts.append(row)
            elif offset <= self.offsets[lasts[number]]:
                raise OutOfOrder(row)
            lasts[number] = row
            numbers.append(number)
        return Origins(tuple(starmap(TopicPartition, found)), numbers, firsts, lasts)

    @override
    def partition_at(self, row: int) -> TopicPartition:
        return TopicPartition(_TOPIC(self._messages[row]), self.partitions[row])

    @property
    @override
    def sizes(self) -> list[int]:
        return list(map(len, self._messages))

    @property
    @override
    def size_bytes(self) -> int:
        return sum(map(len, self._messages))

    @property
    @override
    def record_bytes(self) -> int:
        """Omits headers with a name that is not UTF-8: the client does not return them."""
        headers = chain.from_iterable(filter(None, self.headers))
        keys = sum(map(len, filter(None, self.keys)))
        return self.size_bytes + keys + sum(len(name.encode()) + len(value or b"") for name, value in headers)

    @override
    def raw(self, row: int) -> RawRecord:
        one = KafkaMessages([self._messages[row]])
        return RawRecord(one.keys[0], one.values[0], one.headers[0], one.timestamps_ms[0])

    @override
    def part(self, start: int, end: int) -> KafkaMessages:
        return self if end - start == len(self) else KafkaMessages(self._messages[start:end])

    @override
    def choose(self, rows: Sequence[int]) -> KafkaMessages:
        return KafkaMessages([self._messages[row] for row in rows])

    @override
    def joined(self, others: Records) -> Records:
        if not self._messages:
            return others
        assert isinstance(others, KafkaMessages)
        return KafkaMessages([*self._messages, *others._messages])  # noqa: SLF001  # of its own class


NO_RECORDS: Final[Records] = KafkaMessages(())
"""The empty batch that others are joined to."""


def stamp_of(message: ck.Message) -> int | None:
    """Returns the Kafka timestamp, ms since 1970; None if the record has none.

    Producers write -1 for none (NO_TIMESTAMP of Kafka's clients), which the client takes for a creation time; no
    negative number is a time.
    """
    kind, at_ms = message.timestamp()
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE or at_ms < 0 else at_ms
