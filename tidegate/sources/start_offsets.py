"""Determines where a source starts and where a bounded read ends. Blocking: runs on a thread of the daemon."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final, Protocol

from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceFailed
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sources.positions import describe_out_of_range

Offsets = dict[TopicPartition, int]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
AHEAD: Final = "is in the future"
AHEAD_REMEDY: Final = "take a past instant, or `latest`"
_NONE = -1
"""What `offsets_at` returns if no record is that young."""


class OffsetClient(Protocol):
    """The requests to the brokers; see kafka.transactions.TransactionClient."""

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns where the logs begin."""

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns where read-committed readers end."""

    def offsets_at(self, partitions: Iterable[TopicPartition], at_ms: int) -> Offsets:
        """Returns the offsets of the first records not older than `at_ms`; -1 if there is none."""


class RightClient(Protocol):
    """The same client, for permissions."""

    def may_read(self, topic: str) -> bool:
        """Returns whether the user has READ on a topic."""


def refuse_unreadable(client: RightClient, operator: SourceOperator, unplaced: UnassignedSource) -> None:
    """Raises SourceFailed for topics that a pattern matches and that may not be read.

    This must happen before they get positions: once a checkpoint has positions of a topic, for partitions that it had
    before, the pattern can no longer exclude it.
    """
    topics = sorted({part.topic for part in unplaced.partitions}) if operator.pattern else []
    forbidden = [topic for topic in topics if not client.may_read(topic)]
    new = [topic for topic in forbidden if topic not in unplaced.known_topics]
    if forbidden:
        remedy = "grant READ"
        if new:
            left_out = ", ".join(new)
            remedy += (
                f", or change `pattern` so that it does not match {left_out}: no checkpoint has positions of it yet"
            )
        raise SourceFailed(
            f"source {operator.name}: this user may not read {', '.join(forbidden)}, which match "
            f"{operator.pattern}; {remedy}",
            source=operator.name,
            topics=forbidden,
        )


def read_beginning(
    client: OffsetClient, operator: SourceOperator, unplaced: UnassignedSource, now: dt.datetime
) -> SourcePositions:
    """Returns positions of all partitions. Raises SourceFailed for an invalid offset or instant, and errors of
    requests.

    A bounded read ends at the last stable offset: records of transactions that are open now are not part of it.
    """
    partitions = unplaced.partitions
    ends = _read_ends(client, operator, partitions, now)
    if unplaced.next_offsets is not None:
        return SourcePositions(operator.name, unplaced.next_offsets, tuple(sorted(ends.items())))
    nexts = _read_starts(client, operator, partitions)
    return SourcePositions(operator.name, tuple(sorted(nexts.items())), tuple(sorted(ends.items())))


def _read_starts(client: OffsetClient, operator: SourceOperator, partitions: tuple[TopicPartition, ...]) -> Offsets:
    """Returns the starting offsets. Partitions that an explicit map does not name start at their beginning."""
    start = operator.start
    if isinstance(start, dict):
        first, behind = client.first_offsets(partitions), client.stable_offsets(partitions)
        return {part: _explicit(operator, part, start, first[part], behind[part]) for part in partitions}
    if start == "earliest":
        return client.first_offsets(partitions)
    if start == "latest":
        return client.stable_offsets(partitions)
    return _read_times(client, partitions, parse_instant(start))


def _read_ends(
    client: OffsetClient, operator: SourceOperator, partitions: tuple[TopicPartition, ...], now: dt.datetime
) -> Offsets:
    until = operator.until
    if until == "never":
        return {}
    if until == "latest":
        return client.stable_offsets(partitions)
    if is_ahead(until, now):
        raise SourceFailed(f"source {operator.name}: until: {until} {AHEAD}; {AHEAD_REMEDY}", until=until)
    return _read_times(client, partitions, parse_instant(until))


def _explicit(operator: SourceOperator, part: TopicPartition, start: dict[int, int], low: int, high: int) -> int:
    offset = start.get(part.partition, low)
    if not low <= offset <= high:
        found, _, _ = describe_out_of_range(part, offset, low, high).partition("; ")
        text = f"source {operator.name}: {found}; write offsets from {low} to {high} in `start`"
        raise SourceFailed(text, partition=str(part), offset=offset)
    return offset


def _read_times(client: OffsetClient, partitions: tuple[TopicPartition, ...], instant: dt.datetime) -> Offsets:
    at_ms = -((_EPOCH - instant) // dt.timedelta(milliseconds=1))  # the first one that is not before it
    if at_ms < 0:  # no record is older, and Kafka uses negative times for other requests
        return client.first_offsets(partitions)
    found = client.offsets_at(partitions, at_ms)
    behind = client.stable_offsets([part for part, offset in found.items() if offset == _NONE])
    return {**found, **behind}


def is_ahead(until: str, now: dt.datetime) -> bool:
    """Returns whether this end is in the future, so that it cannot be read up to yet. Raises SourceFailed."""
    return until not in ("never", "latest") and parse_instant(until) > now


def parse_instant(text: str) -> dt.datetime:
    """Parses an ISO 8601 instant; without a UTC offset it is UTC. Raises SourceFailed."""
    try:
        instant = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise SourceFailed(f"{text!r} is not an instant: write it as 2026-11-01T00:00:00Z", value=text) from error
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=dt.UTC)
