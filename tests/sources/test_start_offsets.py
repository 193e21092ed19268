"""Where a source starts and a bounded read ends, asked of brokers that answer as a test says."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import pytest

from tests.sources.kafka_topics import source_operator
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.errors import SourceFailed
from tidegate.sources.start_offsets import read_beginning

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


LOGS = {ONE: (10, 20), TWO: (0, 5)}


class Brokers:
    """Partition 0 has the offsets 10 to 19, partition 1 has 0 to 4; a second lies between records, from 1970 on."""

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {part: LOGS[part][0] for part in partitions}

    def stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {part: LOGS[part][1] for part in partitions}

    def offsets_at(self, partitions: Iterable[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        assert at_ms >= 0, "-1 asks for the end of a log, -2 for its beginning"
        found = {part: max(LOGS[part][0], -(-at_ms // 1000)) for part in partitions}
        return {part: offset if offset < LOGS[part][1] else -1 for part, offset in found.items()}


def begin(start: Any = "earliest", until: str = "never", goes_on: bool = False) -> SourcePositions:
    operator = source_operator("model", "orders", start=start, until=until)
    known = ((ONE, 12), (TWO, 3)) if goes_on else None
    return read_beginning(Brokers(), operator, UnassignedSource(OperatorName("orders"), (ONE, TWO), known), NOW)


@pytest.mark.parametrize(
    ("start", "wanted"),
    [
        ("earliest", [10, 0]),
        ("latest", [20, 5]),
        ("1970-01-01T00:00:03Z", [10, 3]),
        ("1970-01-01T00:00:12.5", [13, 5]),
        ("1970-01-01T01:00:15+01:00", [15, 5]),
        ("1970-01-01T00:00:02.000001Z", [10, 3]),
        ("1969-12-31T23:59:59.999Z", [10, 0]),
        ("0001-01-01", [10, 0]),
        ({0: 15}, [15, 0]),
        ({1: 5}, [10, 5]),
    ],
)
def test_every_start_becomes_an_offset_of_each_partition(start: Any, wanted: list[int]) -> None:
    found = begin(start)
    assert found.next_offsets == ((ONE, wanted[0]), (TWO, wanted[1]))
    assert found.end_offsets == ()


@pytest.mark.parametrize(
    ("until", "wanted"),
    [("latest", [20, 5]), ("1970-01-01T00:00:04Z", [10, 4]), ("1969-12-31", [10, 0])],
)
def test_a_bounded_read_gets_an_end_for_each_partition(until: str, wanted: list[int]) -> None:
    assert begin(until=until).end_offsets == ((ONE, wanted[0]), (TWO, wanted[1]))


def test_a_read_that_goes_on_gets_ends_only() -> None:
    found = begin("latest", "latest", goes_on=True)
    assert found.next_offsets == ((ONE, 12), (TWO, 3))
    assert found.end_offsets == ((ONE, 20), (TWO, 5))


@pytest.mark.parametrize(
    ("start", "until", "words"),
    [
        ({0: 9}, "never", r"source orders: orders\[0\]: offset 9 is gone, the log now starts at 10"),
        ({0: 21}, "never", r"source orders: orders\[0\]: offset 21 is past the end of the log \(10 to 20\)"),
        ("earliest", "2999-01-01", "source orders: until: 2999-01-01 is in the future"),
        ("tomorrow", "never", "'tomorrow' is not an instant: write it as"),
    ],
)
def test_what_cannot_be_is_refused(start: Any, until: str, words: str) -> None:
    with pytest.raises(SourceFailed, match=words):
        begin(start, until)
