"""Lag in seconds, and the time from a record's timestamp to its commit."""

from __future__ import annotations

import pytest

from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.source_progress import SAMPLES_MAX, RecordTimes
from tidegate.ids import MAIN_CLUSTER, OperatorName, TopicPartition

PART, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
ORDERS = OperatorName("orders")
AT, OTHER_AT = (MAIN_CLUSTER, PART), (MAIN_CLUSTER, OTHER)


def positions(**nexts: int) -> tuple[SourcePositions, ...]:
    parts = {"zero": PART, "one": OTHER}
    return (SourcePositions(ORDERS, tuple((parts[name], after) for name, after in nexts.items())),)


def test_without_lag_it_is_zero_and_before_anything_is_known_it_is_unknown() -> None:
    times = RecordTimes()
    assert times.lag_s(AT, 5, 100.0, 100_000) is None
    assert times.lag_s(AT, 0, 100.0, 100_000) == 0


def test_lag_is_the_age_of_the_newest_record_that_was_read() -> None:
    times = RecordTimes()
    assert not list(times.read([(ORDERS, PART, 7, 40_000)]))
    assert times.lag_s(AT, 5, 100.0, 100_000) == 60
    assert times.lag_s(OTHER_AT, 5, 100.0, 100_000) is None
    assert times.lag_s(AT, 5, 100.0, 39_000) == 0, "the producer's clock is ahead"


def test_a_record_after_a_quiet_hour_is_as_old_as_the_last_look_without_lag_says() -> None:
    times = RecordTimes()
    assert not list(times.read([(ORDERS, PART, 7, 40_000)]))
    times.lag_s(AT, 0, 3_640.0, 3_640_000)
    assert times.lag_s(AT, 1, 3_642.0, 3_642_000) == 2


def test_records_are_counted_once_when_a_checkpoint_covers_them() -> None:
    times = RecordTimes()
    assert not list(times.read([(ORDERS, PART, 7, 1_000), (ORDERS, OTHER, 3, 2_000)]))
    assert not list(
        times.read([(ORDERS, PART, 7, 1_000), (ORDERS, PART, 9, 4_000)])
    )  # a report repeats what has not changed
    assert list(times.committed(positions(zero=7, one=3), 5_000)) == []
    assert list(times.committed(positions(zero=8, one=4), 5_000)) == [(AT, 4.0), (OTHER_AT, 3.0)]
    assert list(times.committed(positions(zero=10, one=4), 6_000)) == [(AT, 2.0)]
    assert list(times.committed(positions(zero=10, one=4), 7_000)) == []


def test_what_an_attempt_has_read_in_vain_is_counted_when_it_was_read_again() -> None:
    times = RecordTimes()
    assert not list(times.read([(ORDERS, PART, 7, 1_000)]))
    times.begin_attempt()
    assert list(times.committed(positions(zero=7), 5_000)) == []
    assert not list(times.read([(ORDERS, PART, 7, 1_000)]))
    assert list(times.committed(positions(zero=10), 9_000)) == [(AT, 8.0)]


@pytest.mark.parametrize("reads", [SAMPLES_MAX, SAMPLES_MAX + 1, 10_000])
def test_a_checkpoint_that_does_not_come_does_not_fill_the_memory(reads: int) -> None:
    times = RecordTimes()
    for offset in range(reads):
        assert not list(times.read([(ORDERS, PART, offset, offset)]))
    found = list(times.committed(positions(zero=reads), reads))
    assert SAMPLES_MAX // 2 <= len(found) <= SAMPLES_MAX
    assert found[-1] == (AT, 0.001), "the newest is kept"


def test_a_report_that_comes_after_the_commit_counts_to_the_commit() -> None:
    times = RecordTimes()
    assert not list(times.committed(positions(zero=5), 2_000))
    assert not list(times.committed(positions(zero=8), 3_000))
    assert not list(times.committed(positions(zero=8), 4_000)), "an idle checkpoint"
    assert list(times.read([(ORDERS, PART, 7, 1_500)])) == [(AT, 1.5)]
    assert not list(times.committed(positions(zero=8), 5_000)), "counted once"
    assert not list(times.read([(ORDERS, PART, 8, 4_500)]))
    assert list(times.committed(positions(zero=9), 6_000)) == [(AT, 1.5)]
