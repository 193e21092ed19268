"""Asks the brokers where a source starts and where a bounded read ends. Blocking: for the reader's thread only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import confluent_kafka as ck

from tidegate.ids import TopicPartition
from tidegate.sources.errors import SourceFailed
from tidegate.sources.positions import describe_out_of_range

REQUEST_SECONDS = 3.0
"""Requests are repeated by the caller, so this only bounds how long a source takes to close."""
_END = -1
"""What `offsets_for_times` answers when no record is that young."""


class OffsetReader:
    """One consumer's view of the offsets of `partitions`."""

    def __init__(self, consumer: ck.Consumer, partitions: Iterable[TopicPartition]) -> None:
        self._consumer = consumer
        self._partitions = list(partitions)
        self._bounds: dict[TopicPartition, tuple[int, int]] = {}

    def read_starts(self, start: str | dict[int, int]) -> dict[TopicPartition, int]:
        """The first offset of each partition; partitions that an explicit map does not name start at their beginning.

        Raises SourceFailed for an explicit offset that does not exist, KafkaException for a failed request.
        """
        if isinstance(start, dict):
            return {part: self._explicit(part, start.get(part.partition)) for part in self._partitions}
        if start == "earliest":
            return {part: self._bounds_of(part)[0] for part in self._partitions}
        if start == "latest":
            return {part: self._bounds_of(part)[1] for part in self._partitions}
        found = self._read_times(parse_instant(start))
        return {part: self._bounds_of(part)[1] if offset == _END else offset for part, offset in found.items()}

    def read_ends(self, until: str, now: dt.datetime) -> dict[TopicPartition, int]:
        """The offset behind the last record of a bounded read; empty for `never`.

        `latest` is the last stable offset: records of transactions that are open now are not part of the read.
        """
        if until == "never":
            return {}
        if until == "latest":
            return {part: self._bounds_of(part)[1] for part in self._partitions}
        instant = parse_instant(until)
        if instant > now:
            raise SourceFailed(f"until: {until} lies in the future; take a past instant, or `latest`", until=until)
        found = self._read_times(instant)
        return {part: self._bounds_of(part)[1] if offset == _END else offset for part, offset in found.items()}

    def bounds(self, part: TopicPartition) -> tuple[int, int]:
        """First offset and last stable offset (exclusive), asked anew."""
        wanted = ck.TopicPartition(part.topic, part.partition)
        low, high = self._consumer.get_watermark_offsets(wanted, timeout=REQUEST_SECONDS, cached=False)
        return low, high

    def _bounds_of(self, part: TopicPartition) -> tuple[int, int]:
        if part not in self._bounds:
            self._bounds[part] = self.bounds(part)
        return self._bounds[part]

    def _explicit(self, part: TopicPartition, offset: int | None) -> int:
        low, high = self._bounds_of(part)
        if offset is None:
            return low
        if not low <= offset <= high:
            raise SourceFailed(describe_out_of_range(part, offset, low, high), partition=str(part), offset=offset)
        return offset

    def _read_times(self, instant: dt.datetime) -> dict[TopicPartition, int]:
        since_ms = int(instant.timestamp() * 1000)
        wanted = [ck.TopicPartition(part.topic, part.partition, since_ms) for part in self._partitions]
        answers = self._consumer.offsets_for_times(wanted, timeout=REQUEST_SECONDS)
        for answer in answers:
            if answer.error is not None:
                raise ck.KafkaException(answer.error)
        return {TopicPartition(answer.topic, answer.partition): answer.offset for answer in answers}


def parse_instant(text: str) -> dt.datetime:
    """An ISO 8601 instant; without an offset it is UTC. Raises SourceFailed."""
    try:
        instant = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise SourceFailed(f"{text!r} is no instant: write it as 2026-11-01T00:00:00Z", value=text) from error
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=dt.UTC)
