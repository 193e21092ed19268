"""What a source needs of a batch of messages, and message objects of the Python client as such a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol

import confluent_kafka as ck
import polars as pl
from typing_extensions import override

from tidegate.formats.contract import Headers, Messages
from tidegate.formats.dead_letters.frames import RawRecord

# The library's types allow None, which only messages without a broker have: narrowed once, not per record.
_TOPIC: Callable[[ck.Message], str] = ck.Message.topic  # type: ignore[assignment]  # see above
_PARTITION: Callable[[ck.Message], int] = ck.Message.partition  # type: ignore[assignment]  # see above
_OFFSET: Callable[[ck.Message], int] = ck.Message.offset  # type: ignore[assignment]  # see above
_HEADERS: Callable[[ck.Message], Headers | None] = ck.Message.headers  # type: ignore[assignment]  # values may be None
_UNREADABLE: Final[Any] = []
"""In place of headers that cannot be read; compared by identity. False like no headers, so that one look at a batch
finds both."""
_SECOND: Final = itemgetter(1)


class OutOfOrder(Exception):
    """A record of a partition comes after one with the same or a higher offset."""

    def __init__(self, row: int) -> None:
        self.row = row


class FlatHeaders(NamedTuple):
    """The headers of a batch: how many each message has, and the names and values of all after each other.

    All three are empty where no message has any.
    """

    counts: pl.Series
    names: pl.Series
    values: pl.Series


NO_HEADERS: Final = FlatHeaders(
    pl.Series(dtype=pl.Int64), pl.Series("key", dtype=pl.String), pl.Series("value", dtype=pl.Binary)
)
"""Most topics have none, so it is made once."""


class Records(Messages, Protocol):
    """What a source needs of a batch besides what a decoder does."""

    @property
    def key_column(self) -> pl.Series:
        """`keys` as Binary."""

    @property
    def flat_headers(self) -> FlatHeaders | None:
        """`headers`; None where they are at hand as lists only."""

    cut_names: int
    """Names of headers that the client has cut off at a NUL, as far as it can be seen, once headers were asked for."""

    @property
    def timestamp_column(self) -> pl.Series:
        """`timestamps_ms` as Int64."""

    @property
    def partition_column(self) -> pl.Series:
        """`partitions` as Int32: each row carries it, and it may be a column of the source as well."""

    @property
    def offset_column(self) -> pl.Series:
        """The same for `offsets`, as Int64."""

    @property
    def run_ends(self) -> Sequence[int]:
        """Rows in ascending order: from the one after each to the next one all are of one partition, and in order.

        Raises OutOfOrder.
        """

    @property
    def sizes(self) -> Sequence[int]:
        """Of the values, in bytes."""

    @property
    def size_bytes(self) -> int:
        """Of all values."""

    @property
    def record_bytes(self) -> int:
        """Of all keys, values, and names and values of headers."""

    def raw(self, row: int) -> RawRecord:
        """One message as it is, for a letter about it."""

    @override
    def part(self, start: int, end: int) -> Records:
        pass

    def choose(self, rows: Sequence[int]) -> Records:
        """Some of the messages."""

    def joined(self, others: Records) -> Records:
        """These, and after them others that were read in the same way."""


class KafkaMessages(Records):
    """See Records: a column is made when it is asked for. Only of messages without an error."""

    memory = None
    flat_headers = None
    cut_names = 0

    def __init__(self, messages: Sequence[ck.Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    @override
    def values(self) -> list[bytes | None]:
        """The source looks for tombstones among them where they are none of the decoder's business."""
        return list(map(ck.Message.value, self._messages))

    @property
    @override
    def keys(self) -> list[bytes | None]:
        return list(map(ck.Message.key, self._messages))

    @property
    @override
    def headers(self) -> Sequence[Headers | None]:
        """For a name that is not UTF-8 the client returns a list and raises as well, and gives the list when it is
        asked again; reading the name in it ends the process. So the message keeps a mark in place of the list. And
        only calls from C see the exception for sure: those that the interpreter has specialised do not look.
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
        # Each pair is free before the next one is made: a list of pairs takes half as long again.
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
        """The source asks for them anyway."""
        return list(map(_PARTITION, self._messages))

    @cached_property
    @override
    def offsets(self) -> list[int]:
        """The source asks for them anyway."""
        return list(map(_OFFSET, self._messages))

    @cached_property
    @override
    def partition_column(self) -> pl.Series:
        return pl.Series("__tidegate_partition", self.partitions, dtype=pl.Int32)

    @cached_property
    @override
    def offset_column(self) -> pl.Series:
        return pl.Series("__tidegate_offset", self.offsets, dtype=pl.Int64)

    @property
    @override
    def run_ends(self) -> Sequence[int]:
        """To look for fewer takes longer than to look at all."""
        return range(len(self._messages))

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
        """Headers with a name that is not UTF-8 are not counted: the client does not give them."""
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
"""What others are joined to."""


def stamp_of(message: ck.Message) -> int | None:
    """The Kafka timestamp, ms since 1970; None where the record has none. Producers write -1 for none (NO_TIMESTAMP of
    Kafka's clients), which the client takes for a time of creation; no negative number is a time.
    """
    kind, at_ms = message.timestamp()
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE or at_ms < 0 else at_ms
