"""Positions of a source: how Kafka messages move them, when a bounded read is finished, and when a read has caught up
with what its topics held at its start. Pure.

A restart continues at the next offset of a partition (F04). It moves past emitted records and past entries that only
the broker sees (markers and aborted records), which an end-of-partition event reports.

A partition is caught up when everything up to its last stable offset was emitted, and it stays there. The client
reports the end of a partition, the loop has emitted all records before it, some time passes, and then the broker is
asked whether the partition still ends there. Time alone decides nothing: without an answer nothing is known. A
downstream question whether a partition is still caught up (ADR 52) is sent at once, with its number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.coordinator.discovery import FIRST_OFFSET
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition

_NO_WAY_ON: Final = "check the topic, or start without the old positions"


class Positions:
    """Next and end offsets of the partitions of one subtask. `end_offsets` is empty for an unbounded read."""

    def __init__(
        self,
        source: OperatorName,
        next_offsets: Mapping[TopicPartition, int],
        end_offsets: Mapping[TopicPartition, int] | None = None,
        initial_ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """`initial_ends` are the last stable offsets at the start of the read, if `caught_up` is used."""
        self.source = source
        self.next_offsets = dict(next_offsets)
        self.end_offsets = dict(end_offsets or {})
        if self.end_offsets and self.end_offsets.keys() != self.next_offsets.keys():
            raise ValueError(f"source {source}: a bounded read needs an end for each of its partitions")
        self._open = {part for part, end in self.end_offsets.items() if self.next_offsets[part] < end}
        self._behind = {part: end for part, end in (initial_ends or {}).items() if self.next_offsets[part] < end}

    @property
    def bounded(self) -> bool:
        """Whether the read is bounded."""
        return bool(self.end_offsets)

    @property
    def finished(self) -> bool:
        """Whether every partition of a bounded read has reached its end."""
        return self.bounded and not self._open

    @property
    def caught_up(self) -> bool:
        """Whether everything that the partitions held at the start of the read is before their positions."""
        return not self._behind and not self._open

    @property
    def ended(self) -> set[TopicPartition]:
        """Partitions of a bounded read that have reached their ends."""
        return self.end_offsets.keys() - self._open

    def move(self, behind: Mapping[TopicPartition, int]) -> None:
        """Moves positions past records or broker-side entries before the given offsets; positions never go back."""
        for part, offset in behind.items():
            end = self.end_offsets.get(part)
            reached = offset if end is None else min(offset, max(end, self.next_offsets[part]))
            if reached > self.next_offsets[part]:
                self.next_offsets[part] = reached
            if end is not None and self.next_offsets[part] >= end:
                self._open.discard(part)
            if self.next_offsets[part] >= self._behind.get(part, reached):
                self._behind.pop(part, None)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions that appeared during an unbounded read: all of their records are new."""
        if self.bounded:
            raise ValueError(f"source {self.source}: a bounded read was given new partitions")
        for part in partitions:
            self.next_offsets.setdefault(part, FIRST_OFFSET)

    def crosses_end(self, behind: Mapping[TopicPartition, int]) -> bool:
        """Returns whether records before these offsets include some at or past an end, which must not be emitted."""
        return self.bounded and any(offset > self.end_offsets[part] for part, offset in behind.items())

    def within(self, part: TopicPartition, offset: int) -> bool:
        """Returns whether a record belongs to the read."""
        return not self.bounded or offset < self.end_offsets[part]

    def snapshot(self) -> SourcePositions:
        """Returns the positions for the ack of a checkpoint (F08); partitions in order."""
        return SourcePositions(
            self.source, tuple(sorted(self.next_offsets.items())), tuple(sorted(self.end_offsets.items()))
        )


def derive_restored(
    partitions: Iterable[TopicPartition], restored: SourcePositions
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[TopicPartition]]:
    """Returns what a checkpoint holds for `partitions`: next offsets, end offsets, and unknown partitions.

    An unknown partition was added to the topic later: all of its records are new, so it is read from its beginning. In
    a bounded read it is past the end and is not read at all.
    """
    known, ends = dict(restored.next_offsets), dict(restored.end_offsets)
    wanted = list(partitions)
    return (
        {part: known[part] for part in wanted if part in known},
        {part: ends[part] for part in wanted if part in ends},
        [part for part in wanted if part not in known],
    )


def describe_out_of_range(part: TopicPartition, wanted: int, low: int, high: int) -> str:
    """Describes an offset that the broker does not have: input lost to retention, or a recreated topic."""
    if wanted < low:
        return (
            f"{part}: offset {wanted} is gone, the log now starts at {low}: {low - wanted} offsets were removed by "
            f"retention before they were read, [{wanted}, {low}); restore the data, or accept the loss by "
            "`on_lost_input: continue`"
        )
    if wanted <= high:
        return (
            f"{part}: offset {wanted} was past the end of the log, which is {low} to {high} now: it was truncated "
            f"and has grown again; {_NO_WAY_ON}"
        )
    return (
        f"{part}: offset {wanted} is past the end of the log ({low} to {high}): the topic was recreated or "
        f"truncated; {_NO_WAY_ON}"
    )


def describe_cut_off(part: TopicPartition, error: str) -> str:
    """Describes a log that ends before the source's position, with the client's message."""
    return (
        f"{part}: its log was truncated before the position of this source: a broker without the last records has "
        f"become its leader, or the topic was recreated ({error}); {_NO_WAY_ON}"
    )


STAYS_SECONDS: Final = 1.0
"""Seconds between the end and the request."""
AGAIN_SECONDS: Final = 5.0
"""Seconds until an unanswered request is repeated."""


class Due(msgspec.Struct, frozen=True):
    """A request to compare a partition with its last stable offset; `question` is 0 without a downstream question."""

    offset: int
    question: int = 0


class _Watched(msgspec.Struct):
    asked: Due
    due: float


class CaughtUp:
    """Partitions that are at their ends but not known to stay there."""

    def __init__(self) -> None:
        self._watched: dict[TopicPartition, _Watched] = {}

    def watch(self, ends: Mapping[TopicPartition, int], now: float) -> None:
        """Watches the ends that the loop has reached; a new end of a partition replaces the old one."""
        for part, offset in ends.items():
            self._watched[part] = _Watched(Due(offset), now + STAYS_SECONDS)

    def ask(self, questions: Mapping[TopicPartition, Due], now: float) -> None:
        """Asks whether partitions still end at these offsets, which the loop has reached."""
        for part, asked in questions.items():
            self._watched[part] = _Watched(asked, now)

    def due(self, now: float) -> dict[TopicPartition, Due]:
        """Returns the requests that are due."""
        return {part: one.asked for part, one in self._watched.items() if one.due <= now}

    def answer(
        self, part: TopicPartition, asked: Due, stable: int | None, now: float, *, is_open: bool = False
    ) -> bool:
        """Returns whether the partition is caught up, given its last stable offset; None if the broker did not answer.

        `is_open`: an undecided transaction has records after that offset, so more records are on their way.
        """
        one = self._watched.get(part)
        if one is None or one.asked != asked:
            return False  # its end has advanced since, or there is a newer question
        if stable is None or stable < asked.offset:  # a new leader may not know yet how far the log goes
            one.due = now + AGAIN_SECONDS
            return False
        if stable == asked.offset and is_open:
            one.due = now + STAYS_SECONDS
            return False
        del self._watched[part]  # there is more to read: its next end will be watched
        return stable == asked.offset
