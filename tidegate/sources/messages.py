"""Message objects of the Python client as columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

import confluent_kafka as ck

from tidegate.formats.contract import Headers

# The library's types allow None, which only messages without a broker have: narrowed once, not per record.
_TOPIC: Callable[[ck.Message], str] = ck.Message.topic  # type: ignore[assignment]  # see above
_PARTITION: Callable[[ck.Message], int] = ck.Message.partition  # type: ignore[assignment]  # see above
_OFFSET: Callable[[ck.Message], int] = ck.Message.offset  # type: ignore[assignment]  # see above


class KafkaMessages:
    """See formats.contract.Messages: a column is made when it is asked for. Only of messages without an error."""

    def __init__(self, messages: Sequence[ck.Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def values(self) -> list[bytes | None]:
        """See Messages."""
        return list(map(ck.Message.value, self._messages))

    @property
    def keys(self) -> list[bytes | None]:
        """See Messages."""
        return list(map(ck.Message.key, self._messages))

    @property
    def headers(self) -> list[Headers]:
        """See Messages."""
        return [cast("Headers", message.headers() or ()) for message in self._messages]

    @property
    def timestamps_ms(self) -> list[int | None]:
        """See Messages."""
        return [_timestamp_ms(*message.timestamp()) for message in self._messages]

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

    @property
    def size_bytes(self) -> int:
        """Of all values."""
        return sum(map(len, self._messages))

    def part(self, start: int, end: int) -> KafkaMessages:
        """See Messages."""
        return self if end - start == len(self) else KafkaMessages(self._messages[start:end])

    def choose(self, rows: Sequence[int]) -> KafkaMessages:
        """Some of the messages."""
        return KafkaMessages([self._messages[row] for row in rows])


def _timestamp_ms(kind: int, at_ms: int) -> int | None:
    return None if kind == ck.TIMESTAMP_NOT_AVAILABLE else at_ms
