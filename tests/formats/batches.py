"""Batches of messages as decoders get them, with all columns there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.formats.contract import Headers


class MessageColumns(msgspec.Struct, frozen=True):
    """See `contract.Messages`. All columns have the length of `values`."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    headers: Sequence[Headers]
    timestamps_ms: Sequence[int | None]
    topics: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]

    @property
    def memory(self) -> None:
        return None

    @property
    def flat_headers(self) -> None:
        return None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, end: int) -> MessageColumns:
        return MessageColumns(*(getattr(self, name)[start:end] for name in self.__struct_fields__))


def messages_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int | None] | None = None,
) -> MessageColumns:
    """Of partition 3 of the topic `in`, from offset 10 on."""
    count = len(values)
    return MessageColumns(
        values=values,
        keys=[None] * count if keys is None else keys,
        headers=[()] * count,
        timestamps_ms=[None] * count if timestamps_ms is None else timestamps_ms,
        topics=["in"] * count,
        partitions=[3] * count,
        offsets=range(10, 10 + count),
    )
