"""How transactions ended, by what lies in a partition, read batch by batch; and whether a topic may be read at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from tests.kafka.test_batches import ABORT, COMMIT, OURS, batch
from tests.kafka.test_connection import (
    PARTITION,
    Answer,
    SleptClock,
    described,
    in_turn,
    led_by,
    read_from,
    scripted,
    stable_at,
)
from tidegate.committable import WrittenRange
from tidegate.ids import ProducerId
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import LoggedRange, Marker
from tidegate.kafka.log_reader import SCAN_TIMEOUT_S
from tidegate.kafka.requests import NO_PARTITION
from tidegate.kafka.transactions import ANSWER_TIMEOUT_S


class Log:
    """A partition that is read batch by batch; its leader is broker 1."""

    def __init__(self, *batches: bytes, grows: int = 0) -> None:
        self.batches = list(batches)
        self.end = sum(map(_records, batches)) - grows
        self.grows = grows
        """Records that become visible one by one, after each answer."""
        self.asked: list[tuple[int | None, int, int]] = []
        """Node, offset, bytes."""

    def __call__(self, request: Any, node: int | None) -> Any:
        if "Metadata" in type(request).__name__:
            return led_by(1)
        (part,) = request.topics[0].partitions
        self.asked.append((node, part.fetch_offset, part.partition_max_bytes))
        starts = [sum(map(_records, self.batches[:at])) for at in range(len(self.batches) + 1)]
        found = [one for one, end in zip(self.batches, starts[1:], strict=True) if end > part.fetch_offset]
        end, self.end = self.end, min(self.end + 1, starts[-1])
        return read_from(end, b"".join(found[:1]))


def _records(one: bytes) -> int:
    return int.from_bytes(one[57:61], "big")


WRITTEN = WrittenRange(PARTITION, 1, 2, 1)


def test_a_log_is_read_batch_by_batch_until_the_marker_is_there() -> None:
    """The first batch begins before the offset that is asked for."""
    log = Log(batch(0, 3, 0), batch(3, 1, 3), batch(4, 1, -1, control=COMMIT), batch(5, 1, 4))
    client, _ = scripted(log)
    assert client.outcome(WRITTEN, OURS) is Marker.COMMIT
    assert [(node, offset) for node, offset, _ in log.asked] == [(1, 1), (1, 3), (1, 4)]


def test_a_log_that_grows_is_read_to_where_it_ended_at_first() -> None:
    """Somebody may write faster than it is read."""
    log = Log(*(batch(at, 1, at) for at in range(9)), grows=6)
    client, _ = scripted(log)
    assert client.outcome(WRITTEN, OURS) is Marker.OPEN
    assert [offset for _, offset, _ in log.asked] == [1, 2]


def slow(log: Log, clock: SleptClock, seconds: float) -> Answer:
    def answer(request: Any, node: int | None) -> Any:
        if "Fetch" in type(request).__name__:
            clock.sleep(seconds)
        return log(request, node)

    return answer


def test_what_others_wrote_until_a_broker_aborted_is_read_past_however_long_that_takes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All in all it takes longer than an answer may, and a recovery that gave up would never get through."""
    clock = SleptClock()
    others = [batch(at, 1, at) for at in range(2, 62)]
    log = Log(batch(0, 2, 0), *others, batch(62, 1, -1, control=ABORT))
    client, _ = scripted(slow(log, clock, 0.5), clock)
    with caplog.at_level("INFO", "tidegate.kafka.log_reader"):
        assert client.outcome(WRITTEN, OURS, timeout_s=10) is Marker.ABORT
    assert clock.now_s > 1030
    assert [record.message for record in caplog.records] == [
        f"searching out[0] from offset 1 on: {reached} of 63 is reached" for reached in (21, 41, 61)
    ]


@pytest.mark.parametrize(("control", "end"), [(COMMIT, Marker.COMMIT), (ABORT, Marker.ABORT)])
def test_an_end_is_read_once_whoever_asks_again(control: bytes, end: Marker) -> None:
    """A recovery asks several times, and between records and marker there may be tens of GB."""
    log = Log(batch(0, 2, 0), batch(2, 1, -1, control=control))
    client, _ = scripted(log)
    assert [client.outcome(WRITTEN, OURS), client.outcome(WRITTEN, OURS)] == [end, end]
    assert len(log.asked) == 2
    assert client.outcome(WRITTEN, ProducerId(OURS.id, OURS.epoch + 1)) is Marker.OPEN


def test_what_is_open_is_asked_again_and_not_taken_for_an_end() -> None:
    log = Log(batch(0, 2, 0))
    client, _ = scripted(log)
    assert client.outcome(WRITTEN, OURS) is Marker.OPEN
    log.batches.append(batch(2, 1, -1, control=COMMIT))
    log.end = 3
    assert client.outcome(WRITTEN, OURS) is Marker.COMMIT


def test_a_log_that_has_no_end_is_not_read_for_ever() -> None:
    clock = SleptClock()
    log = Log(*(batch(at, 1, at) for at in range(100)))
    client, _ = scripted(slow(log, clock, 9), clock)
    with pytest.raises(BrokerUnavailable, match=r"out\[0\] from offset 1 took too long: offset 68 of 100 was reached"):
        client.outcome(WRITTEN, OURS, timeout_s=10)
    assert SCAN_TIMEOUT_S <= clock.now_s - 1000 < SCAN_TIMEOUT_S + 10


def test_a_broker_that_falls_silent_within_a_log_is_not_waited_for_as_long_as_a_long_log() -> None:
    clock = SleptClock()
    found = [read_from(9, batch(0, 3, 0)), *[errors.KafkaConnectionError("it was killed")] * 100]
    client, _ = scripted(in_turn(Metadata=[led_by(1)] * 100, Fetch=found), clock)
    with pytest.raises(BrokerUnavailable, match="at offset 3: no final answer from a:1 in 10 s"):
        client.outcome(WRITTEN, OURS, timeout_s=10)
    assert clock.now_s < 1011


def test_a_log_that_gives_nothing_more_is_read_no_further() -> None:
    client, manager = scripted(in_turn(Metadata=[led_by(1)], Fetch=[read_from(9, batch(0, 3, 0)), read_from(9)]))
    assert client.outcome(WRITTEN, OURS) is Marker.OPEN
    assert [name for name, _ in manager.asked] == ["Metadata", "Fetch", "Fetch"]


BOTH = WrittenRange(PARTITION, 0, 2, 2)


def test_records_that_a_new_leader_does_not_know_to_be_committed_yet_are_waited_for() -> None:
    """After a power failure its high watermark is of a file, seconds old, until all of the ISR have fetched."""
    log = [read_from(1, batch(0, 1, 0)), read_from(1, batch(0, 1, 0)), read_from(2, batch(0, 1, 0) + batch(1, 1, 1))]
    answers = in_turn(Metadata=[led_by(1)] * 9, Fetch=log, ListOffsets=[stable_at(-1, 78), stable_at(2)])
    client, manager = scripted(answers, SleptClock())
    assert client.data_ranges(BOTH, OURS) == [LoggedRange(0, 2, 2)]
    ends = [request for request in manager.sent if "ListOffsets" in type(request).__name__]
    assert [request.isolation_level for request in ends] == [0, 0], "of the log, not the last stable offset"


def test_records_that_a_leader_never_knows_to_be_committed_are_no_missing_ones() -> None:
    def answer(request: Any, _node: int | None) -> Any:
        kind = type(request).__name__
        if "Metadata" in kind:
            return led_by(1)
        return read_from(1, batch(0, 1, 0)) if "Fetch" in kind else stable_at(-1, 78)

    clock = SleptClock()
    client, _ = scripted(answer, clock)
    with pytest.raises(BrokerUnavailable, match=r"reading out\[0\] at offset 0: .*OffsetNotAvailableError"):
        client.data_ranges(BOTH, OURS, SCAN_TIMEOUT_S)
    assert clock.now_s - 1000 <= ANSWER_TIMEOUT_S


def test_of_a_log_that_was_cut_off_the_rest_is_found() -> None:
    answers = in_turn(Metadata=[led_by(1)], Fetch=[read_from(1, batch(0, 1, 0))], ListOffsets=[stable_at(1)])
    client, _ = scripted(answers, SleptClock())
    assert client.data_ranges(BOTH, OURS) == [LoggedRange(0, 1, 1)]


def test_a_first_sequence_takes_one_batch_which_brokers_give_whole() -> None:
    log = Log(batch(0, 3, 7), batch(3, 1, 10))
    client, _ = scripted(log)
    assert client.first_sequence(PARTITION, 0, OURS) == 7
    assert log.asked == [(1, 0, 1)]


def test_only_a_topic_that_is_not_there_any_more_has_lost_its_records() -> None:
    """The cluster may have thousands of others; a partition without a leader has its records still."""
    named: list[list[str]] = []

    def answer(request: Any, _node: int | None) -> Any:
        named.append([topic.name for topic in request.topics])
        return described(SimpleNamespace(name="out", error_code=3, partitions=[]))

    client, _ = scripted(answer, SleptClock())
    assert client.outcome(WRITTEN, OURS) is Marker.GONE
    assert named == [["out"], ["out"]]
    client, _ = scripted(lambda _request, _node: led_by(-1), SleptClock())
    with pytest.raises(BrokerUnavailable, match=r"out\[0\] has no leader"):
        client.outcome(WRITTEN, OURS)


@pytest.mark.parametrize(("code", "may"), [(29, False), (3, True)])
def test_whether_a_topic_may_be_read_is_tried_also_where_a_quota_holds_back(code: int, may: bool) -> None:
    """No broker has the partition; only one that lets us read says so."""
    held = SimpleNamespace(responses=[], throttle_time_ms=40)
    partition = SimpleNamespace(partition_index=0, error_code=code)
    answer = SimpleNamespace(responses=[SimpleNamespace(topic="out", partitions=[partition])])
    client, manager = scripted(in_turn(Fetch=[held, answer]), SleptClock())
    assert client.may_read("out") is may
    assert manager.asked == [("Fetch", None)] * 2
    (topic,) = manager.sent[-1].topics
    assert (topic.topic, topic.partitions[0].partition) == ("out", NO_PARTITION)
