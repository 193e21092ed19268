"""Single records by partition and offset: there, gone, not to be had in time; a near one is reached by reading on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from tests.sinks.leaping import LeapingClock
from tests.waiting import wait_until
from tidegate.formats.dead_letters import GONE, UNREAD
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.kafka.tls import RENEWAL_S
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.calls.caller import CallsFailed
from tidegate.sources import read_back
from tidegate.sources.read_back import RecordReader
from tidegate.sources.tools import SourceTools
from tidegate.threads import HelperThread

ORIGINS = (Origin(("orders", "more"), {"bootstrap.servers": "nowhere"}),)
END = ck.KafkaError._PARTITION_EOF  # the client's own codes begin so, and are public


class FakeConsumer:
    """Partitions as offsets with values; -1 as a value stands for an error of the broker's instead of a record."""

    def __init__(self, topics: Mapping[tuple[str, int], Mapping[int, bytes]], first: int = 0) -> None:
        self.topics = topics
        self.first = first
        self.assigned: list[tuple[str, int, int]] = []
        self.end: int | None = None
        """Where a log ends, unless that is after its last record."""
        self.closed = threading.Event()
        self._queue: deque[ck.Message] = deque()

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        (one,) = partitions
        self.assigned.append((one.topic, one.partition, one.offset))
        records = self.topics.get((one.topic, one.partition), {})
        if one.offset < self.first:
            error = ck.KafkaError(ck.KafkaError._AUTO_OFFSET_RESET)  # see above
            self._queue = deque([ck.Message(error=error, topic=one.topic, partition=one.partition)])
            return
        self._queue = deque(
            ck.Message(
                topic=one.topic,
                partition=one.partition,
                offset=offset,
                key=b"k",
                value=value,
                headers=[("h", None)],
                timestamp=(ck.TIMESTAMP_CREATE_TIME, 5),
            )
            for offset, value in sorted(records.items())
            if offset >= one.offset
        )
        end = max(records) + 1 if records and self.end is None else self.end
        if end is not None:
            event = ck.Message(error=ck.KafkaError(END), topic=one.topic, partition=one.partition, offset=end)
            self._queue.append(event)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:  # as Consumer
        assert timeout >= 0, "nothing may wait for ever"
        return [self._queue.popleft() for _ in range(min(num_messages, len(self._queue)))]

    def get_watermark_offsets(self, partition: ck.TopicPartition, timeout: float = -1) -> tuple[int, int]:
        assert timeout > 0, "nothing may wait for ever"
        if (partition.topic, partition.partition) not in self.topics:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._UNKNOWN_PARTITION))  # see above
        return self.first, 1000

    def close(self) -> None:
        self.closed.set()


class Tools(SourceTools):
    def __init__(self, consumer: FakeConsumer) -> None:
        self._consumer = consumer

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Any:  # as SourceTools
        assert config["isolation.level"] == "read_uncommitted"
        return self._consumer


def read(consumer: FakeConsumer, *requests: tuple[str, int, int]) -> list[object]:
    """The answers, in the order of the requests."""
    reader = RecordReader(ORIGINS, "letters", lambda: None, Tools(consumer))
    calls = [PendingCall(None, row) for row in range(len(requests))]
    done: list[PendingCall] = []
    try:
        reader.submit([(call, (MAIN_CLUSTER, *one)) for call, one in zip(calls, requests, strict=True)])

        def answered() -> bool:
            done.extend(reader.take())
            return len(done) == len(calls)

        wait_until(answered, "all are answered")
    finally:
        reader.close()
    assert done == calls
    assert consumer.closed.is_set() or not consumer.assigned
    return [call.answer for call in calls]


def record(value: bytes) -> RawRecord:
    return RawRecord(b"k", value, [("h", None)], 5)


def test_records_are_whole_and_near_ones_are_reached_by_reading_on() -> None:
    consumer = FakeConsumer({("orders", 0): {at: b"%d" % at for at in range(2000)}, ("more", 1): {7: b"seven"}})
    wanted = (0, 3, 4, 400, 900, 1500)
    found = read(consumer, *(("orders", 0, at) for at in wanted), ("more", 1, 7))
    assert found == [*(record(b"%d" % at) for at in wanted), record(b"seven")]
    assert consumer.assigned == [("orders", 0, 0), ("orders", 0, 1500), ("more", 1, 7)]


def test_topics_that_a_pattern_is_for_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ORIGINS", (*ORIGINS, Origin((), {"bootstrap.servers": "nowhere"}, "late-.*")))
    consumer = FakeConsumer({("orders", 0): {3: b"three"}, ("late-1", 0): {4: b"four"}, ("other", 0): {5: b"five"}})
    found = read(consumer, ("late-1", 0, 4), ("orders", 0, 3), ("other", 0, 5))
    assert found == [record(b"four"), record(b"three"), UNREAD]


def test_a_record_may_be_asked_for_again() -> None:
    """Two steps may have failed with rows of it."""
    consumer = FakeConsumer({("orders", 0): {3: b"three", 4: b"four"}})
    assert read(consumer, *(("orders", 0, at) for at in (3, 3, 4, 4))) == [
        *[record(b"three")] * 2,
        *[record(b"four")] * 2,
    ]


@pytest.mark.parametrize(("offset", "end", "answer"), [(3, 4, GONE), (3, 3, UNREAD), (0, 1, GONE), (0, 0, UNREAD)])
def test_a_record_in_front_of_the_end_is_gone_and_one_behind_it_may_come(
    monkeypatch: pytest.MonkeyPatch, offset: int, end: int, answer: str
) -> None:
    """A new leader may not know yet how far its log goes."""
    monkeypatch.setattr(read_back, "WAIT_MS", 50 if answer == UNREAD else 60_000)
    consumer = FakeConsumer({("orders", 0): {}})
    consumer.end = end
    assert read(consumer, ("orders", 0, offset)) == [answer]


def test_what_compaction_has_removed_is_gone_and_the_next_one_is_not() -> None:
    consumer = FakeConsumer({("orders", 0): {1: b"a", 5: b"b", 6: b"c"}})
    requests = [("orders", 0, at) for at in (1, 3, 4, 5, 6, 7)]
    assert read(consumer, *requests[:5]) == [record(b"a"), GONE, GONE, record(b"b"), record(b"c")]
    assert len(consumer.assigned) == 1


@pytest.mark.parametrize("first", [10, 0])
def test_what_retention_has_removed_is_gone(first: int) -> None:
    consumer = FakeConsumer({("orders", 0): {at: b"x" for at in range(first, 20) if at >= 10}}, first)
    assert read(consumer, ("orders", 0, 3), ("orders", 0, 12)) == [GONE, record(b"x")]


def test_a_broker_that_does_not_answer_costs_the_bytes_and_not_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back, "WAIT_MS", 50)
    silent = FakeConsumer({})
    assert read(silent, ("orders", 0, 3), ("orders", 0, 4), ("elsewhere", 0, 1)) == [UNREAD, UNREAD, UNREAD]


def test_the_end_does_not_wait_for_what_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    reader = RecordReader(ORIGINS, "letters", lambda: None, Tools(silent := FakeConsumer({})))
    reader.submit([(PendingCall(None, row), (MAIN_CLUSTER, "orders", 0, row)) for row in range(3)])
    wait_until(lambda: bool(silent.assigned), "it is looked for")
    reader.close()
    assert silent.closed.is_set()
    assert caplog.text == ""


class Jobs(HelperThread):
    """What the thread was given, run when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        self.waiting.append(job)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for job in waiting:
            job()


def test_what_is_asked_for_is_answered_whenever_it_comes() -> None:
    class ByHand(Tools):
        jobs = Jobs()

        def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
            return self.jobs

    tools = ByHand(FakeConsumer({("orders", 0): {at: b"%d" % at for at in range(9)}}))
    reader = RecordReader(ORIGINS, "letters", lambda: None, tools)

    def ask(row: int) -> None:
        reader.submit([(PendingCall(None, row), (MAIN_CLUSTER, "orders", 0, row))])

    def answers() -> list[object]:
        tools.jobs.run()
        return [call.answer for call in reader.take()]

    ask(0)
    ask(1)
    assert len(tools.jobs.waiting) == 1, "a thread takes so many jobs only, and one does for all that is asked for"
    assert answers() == [record(b"0"), record(b"1")]
    ask(2)
    assert answers() == [record(b"2")], "after everything was answered"
    assert tools.jobs.waiting == [], "nothing is left to do, and nobody is woken for it"
    reader._serving = True  # the thread finds nothing more ...
    ask(3)
    reader._serving = False  # ... and ends
    assert reader.take() == []
    assert reader.take() == []
    assert len(tools.jobs.waiting) == 1
    assert answers() == [record(b"3")]


def test_an_error_of_ours_ends_the_attempt() -> None:
    class Broken(Tools):
        def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Any:
            raise ValueError("no such setting")

    reader = RecordReader(ORIGINS, "letters", lambda: None, Broken(FakeConsumer({})))
    reader.submit([(PendingCall(None, 0), (MAIN_CLUSTER, "orders", 0, 1))])

    def failed() -> bool:
        try:
            reader.take()
        except CallsFailed:
            return True
        return False

    wait_until(failed, "it is reported")
    reader.close()


def test_a_broker_that_does_not_say_where_a_log_begins_is_asked_for_each_record() -> None:
    consumer = FakeConsumer({}, first=10)
    assert read(consumer, ("orders", 0, 3), ("orders", 0, 4)) == [GONE, GONE]
    assert consumer.assigned == [("orders", 0, 3), ("orders", 0, 4)]


def test_that_retention_has_removed_many_records_is_found_out_once() -> None:
    consumer = FakeConsumer({("orders", 0): {90: b"90"}}, first=90)
    found = read(consumer, *(("orders", 0, offset) for offset in (3, 4, 50, 89, 90)))
    assert found == [*[GONE] * 4, record(b"90")]
    assert consumer.assigned == [("orders", 0, 3), ("orders", 0, 90)]


def test_what_a_source_is_told_about_fetching_many_records_does_not_make_single_ones_slow() -> None:
    """With `fetch.queue.backoff.ms` of 1000 each of them took a second, and most letters lost their bytes."""
    seen: list[Mapping[str, Any]] = []

    class Seeing(Tools):
        def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Any:
            seen.append(config)
            return super().consumer(config, on_error)

    kafka = {"fetch.min.bytes": "1000000", "fetch.wait.max.ms": "500", "fetch.queue.backoff.ms": "1000"}
    reader = RecordReader((Origin(("orders",), kafka),), "letters", lambda: None, Seeing(FakeConsumer({})))
    reader.submit([(PendingCall(None, 0), (MAIN_CLUSTER, "orders", 0, 1))])
    wait_until(lambda: bool(seen), "a consumer is made")
    reader.close()
    assert {name: int(seen[0][name]) for name in kafka} == {
        "fetch.min.bytes": 1,
        "fetch.wait.max.ms": 20,
        "fetch.queue.backoff.ms": 5,
    }
    assert seen[0]["group.id"] == "read-back-letters", "without one there is no consumer"


class Renewing(Tools):
    """A consumer for each time that one is made; None stands for files that it refuses."""

    def __init__(self, *consumers: FakeConsumer | None) -> None:
        self.left = deque(consumers)
        self.jobs = Jobs()
        self.clock = LeapingClock(speed=1)

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Any:
        made = self.left.popleft()
        if made is None:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG))
        return made

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        return self.jobs

    def answers(self, reader: RecordReader, offset: int) -> list[object]:
        reader.submit([(PendingCall(None, 0), (MAIN_CLUSTER, "orders", 0, offset))])
        self.jobs.run()
        return [call.answer for call in reader.take()]


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    (file := tmp_path / "me.pem").write_text("A")
    return file


def test_topics_of_the_same_name_in_two_clusters_are_read_back_from_their_own() -> None:
    us = ClusterName("us")
    origins = [
        Origin(("orders",), {"bootstrap.servers": "eu"}),
        Origin(("orders",), {"bootstrap.servers": "us"}, cluster=us),
        Origin((), {"bootstrap.servers": "us"}, "late-.*", us),
    ]
    eu_records = FakeConsumer({("orders", 0): {3: b"eu"}, ("late-1", 0): {3: b"eu"}}, first=3)
    us_records = FakeConsumer({("orders", 0): {2: b"us 2", 3: b"us"}})
    us_pattern = FakeConsumer({("late-1", 0): {3: b"us, late"}})
    tools = Renewing(eu_records, us_records, us_pattern)
    reader = RecordReader(origins, "letters", lambda: None, tools)
    asked: list[tuple[str, str, int, int]] = [
        (MAIN_CLUSTER, "orders", 0, 1),  # lost in one cluster, and only there
        (us, "orders", 0, 2),
        (MAIN_CLUSTER, "orders", 0, 3),
        (us, "orders", 0, 3),
        (us, "late-1", 0, 3),
        (MAIN_CLUSTER, "late-1", 0, 3),  # read by no source
    ]
    reader.submit([(PendingCall(None, row), one) for row, one in enumerate(asked)])
    tools.jobs.run()
    assert [call.answer for call in reader.take()] == [
        GONE,
        *(record(value) for value in (b"us 2", b"eu", b"us", b"us, late")),
        UNREAD,
    ]


def secured(certificate: Path) -> tuple[Origin, ...]:
    return (Origin(("orders",), {"bootstrap.servers": "nowhere", "ssl.certificate.location": str(certificate)}),)


def test_certificates_that_were_replaced_are_read_again(certificate: Path) -> None:
    """Brokers close idle connections, and let nobody in by the former ones: all letters lost their bytes."""
    old, new = (FakeConsumer({("orders", 0): dict.fromkeys(range(9), name)}) for name in (b"old", b"new"))
    tools = Renewing(old, None, new)
    reader = RecordReader(secured(certificate), "letters", lambda: None, tools)
    assert tools.answers(reader, 0) == tools.answers(reader, 1) == [record(b"old")]
    certificate.write_text("half of")
    assert tools.answers(reader, 2) == [record(b"old")], "half of the files is written"
    assert not old.closed.is_set()
    assert tools.answers(reader, 3) == tools.answers(reader, 4) == [record(b"new")]
    assert old.closed.is_set()
    assert new.assigned == [("orders", 0, 3)]


@pytest.mark.parametrize("tries", [3, 1000])
def test_a_first_consumer_waits_for_files_that_are_being_replaced(certificate: Path, tries: int) -> None:
    tools = Renewing(*[None] * tries, FakeConsumer({("orders", 0): {3: b"three"}}))
    reader = RecordReader(secured(certificate), "letters", lambda: None, tools)
    if tries == 3:
        assert tools.answers(reader, 3) == [record(b"three")]
        return
    with pytest.raises(ck.KafkaException):
        tools.answers(reader, 3)
    assert RENEWAL_S <= tools.clock.monotonic() < 2 * RENEWAL_S


def test_that_letters_lose_their_bytes_is_told_once_a_minute(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(FakeConsumer):
        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
            tools.clock.sleep(timeout)
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._SSL))

    tools = Renewing(Refused({}))
    reader = RecordReader(secured(certificate), "letters", lambda: None, tools)
    for offset in range(7):
        assert tools.answers(reader, offset) == [UNREAD]
    lines = [line for line in caplog.messages if "has no bytes" in line]
    assert len(lines) == 2
    assert "letters: offset 0 of orders[0] was not read again within 10 s" in lines[0]
    assert "SSL" in lines[0]


@pytest.mark.parametrize(
    "code", [ck.KafkaError.UNKNOWN_TOPIC_OR_PART, ck.KafkaError._UNKNOWN_TOPIC, ck.KafkaError._UNKNOWN_PARTITION]
)
def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(code: int) -> None:
    """One that has just started knows of none: the letter said `gone`, and had no bytes."""

    class Starting(FakeConsumer):
        def assign(self, partitions: list[ck.TopicPartition]) -> None:
            super().assign(partitions)
            if len(self.assigned) == 1:
                self._queue = deque([ck.Message(error=ck.KafkaError(code), topic="orders", partition=0)])

    consumer = Starting({("orders", 0): {3: b"three"}})
    assert read(consumer, ("orders", 0, 3)) == [record(b"three")]
