"""Message objects of the Python client as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

import confluent_kafka as ck
import polars as pl

from tidegate.formats.contract import Headers
from tidegate.formats.letters.frames import RawRecord

# The library's types allow None, which only messages without a broker have: narrowed once, not per record.
_TOPIC: Callable[[ck.Message], str] = ck.Message.topic  # type: ignore[assignment]  # see above
_PARTITION: Callable[[ck.Message], int] = ck.Message.partition  # type: ignore[assignment]  # see above
_OFFSET: Callable[[ck.Message], int] = ck.Message.offset  # type: ignore[assignment]  # see above
_HEADERS: Callable[[ck.Message], Headers | None] = ck.Message.headers  # type: ignore[assignment]  # values may be None

_NO_TIMESTAMP: Final = -1
"""What a message without timestamp has; one that has it may have it, too."""
_UNREADABLE: Final[Any] = []
"""In place of headers that cannot be read; compared by identity. False like no headers, so that one look at a batch
finds both."""
_SECOND: Final = itemgetter(1)


class KafkaMessages:
    """See formats.contract.Messages: a column is made when it is asked for. Only of messages without an error."""

    def __init__(self, messages: Sequence[ck.Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @cached_property
    def values(self) -> list[bytes | None]:
        """See Messages; the source looks for tombstones among them where they are none of the decoder's business."""
        return list(map(ck.Message.value, self._messages))

    @property
    def keys(self) -> list[bytes | None]:
        """See Messages."""
        return list(map(ck.Message.key, self._messages))

    @property
    def headers(self) -> Sequence[Headers | None]:
        """See Messages.

        For a name that is not UTF-8 the client returns a list and raises as well, and gives the list when it is
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
    def timestamps_ms(self) -> list[int | None]:
        """See Messages."""
        # Each pair is free before the next one is made: a list of pairs takes half as long again.
        found: list[int | None] = list(map(_SECOND, map(ck.Message.timestamp, self._messages)))
        if _NO_TIMESTAMP in found:
            return [_timestamp_ms(*message.timestamp()) for message in self._messages]
        return found

    @property
    def topics(self) -> list[str]:
        """See Messages."""
        return list(map(_TOPIC, self._messages))

    @cached_property
    def partitions(self) -> list[int]:
        """See Messages; the source asks for them anyway."""
        return list(map(_PARTITION, self._messages))

    @cached_property
    def offsets(self) -> list[int]:
        """See Messages; the source asks for them anyway."""
        return list(map(_OFFSET, self._messages))

    @cached_property
    def partition_column(self) -> pl.Series:
        """`partitions`, which each row carries, and which may be a column of the source as well."""
        return pl.Series("__partition", self.partitions, dtype=pl.Int32)

    @cached_property
    def offset_column(self) -> pl.Series:
        """The same for `offsets`."""
        return pl.Series("__offset", self.offsets, dtype=pl.Int64)

    @property
    def size_bytes(self) -> int:
        """Of all values."""
        return sum(map(len, self._messages))

    def raw(self, row: int) -> RawRecord:
        """One message as it is, for a letter about it."""
        one = KafkaMessages(self._messages[row : row + 1])
        return RawRecord(one.keys[0], one.values[0], one.headers[0], one.timestamps_ms[0])

    def part(self, start: int, end: int) -> KafkaMessages:
        """See Messages."""
        return self if end - start == len(self) else KafkaMessages(self._messages[start:end])

    def choose(self, rows: Sequence[int]) -> KafkaMessages:
        """Some of the messages."""
        return KafkaMessages([self._messages[row] for row in rows])


def _timestamp_ms(kind: int, at_ms: int) -> int | None:
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE else at_ms
