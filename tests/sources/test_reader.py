"""In what parts the reader hands over, when it reports an outage."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import msgspec
import pytest

from tests.sources.kafka_topics import NEW, source_operator
from tests.sources.scripted import P0, ScriptedClient, ScriptedTools
from tests.support.clocks import SetClock
from tests.waiting import PATIENCE_S, wait_until
from tidegate.ids import TopicPartition
from tidegate.kafka.diagnosis import Obstacle
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.kafka.tls import RENEWAL_S
from tidegate.sources.consumer_errors import Outage
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.positions import Due
from tidegate.sources.reader import ConsumerThread, Pending
from tidegate.sources.tools import Consumer, SourceTools

DOWN = ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN)


def records_of(*sizes: int) -> KafkaMessages:
    return KafkaMessages([ck.Message(topic="orders", value=b"x" * size) for size in sizes])


def test_the_end_of_a_partition_is_told_behind_its_last_record() -> None:
    end = {TopicPartition("orders", 0): 3}
    caught_up = {TopicPartition("orders", 1): Due(8)}
    first, rest = Pending(records_of(1, 2, 3), end, 6, caught_up).split(2)
    assert (first.records.sizes, first.ends, first.size_bytes, first.caught_up) == ([1, 2], {}, 3, {})
    assert (rest.records.sizes, rest.ends, rest.size_bytes, rest.caught_up) == ([3], end, 3, caught_up)
    last, nothing = rest.split(1)
    assert (last, nothing) == (rest, Pending())


def test_X15_records_are_handed_over_up_to_a_size_but_one_at_least() -> None:
    end = {TopicPartition("orders", 0): 4}
    parts, rest = [], Pending(records_of(1, 2, 30, 4), end, 37)
    while rest.records:
        first, rest = rest.split(3, bytes_max=10)
        parts.append((first.records.sizes, first.size_bytes, first.ends))
    assert parts == [([1, 2], 3, {}), ([30], 30, {}), ([4], 4, end)]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tidegate.sources"]


def test_an_outage_is_told_after_4_seconds_and_once(clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("orders", clock)
    outage.heard()
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        for seconds in (0.0, 3.9):
            clock.now = 100.0 + seconds
            outage.on_error(DOWN)
        assert told(caplog) == []
        for seconds in (4.0, 5.0, 60.0):
            clock.now = 100.0 + seconds
            outage.on_error(DOWN)
        (line,) = told(caplog)
        assert line == f"source orders: no answer from its brokers for 4 s: {DOWN.str()}"
        outage.end()
        outage.end()
        assert told(caplog)[1:] == ["source orders: its brokers answer again, after 60 s"]
        for seconds in (70.0, 75.0):
            clock.now = 100.0 + seconds
            outage.on_error(DOWN)
    assert told(caplog)[2].startswith("source orders: no answer from its brokers for 15 s: "), (
        "the next one is reported, too"
    )


def test_an_outage_counts_from_the_last_answer(clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    """The client's first error comes half a minute later where a link is silent: it said 6 s after 30."""
    outage = Outage("orders", clock)
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        outage.end()  # a record came
        for seconds in (26.0, 30.0):
            clock.now = 100.0 + seconds
            outage.on_error(DOWN)
        clock.now = 145.0
        outage.end()
    assert told(caplog) == [
        f"source orders: no answer from its brokers for 30 s: {DOWN.str()}",
        "source orders: its brokers answer again, after 45 s",
    ]


def test_where_the_last_answer_is_not_known_the_duration_is_a_least_one(
    clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An idle topic: its last record came an hour ago, and brokers have answered since then."""
    outage = Outage("orders", clock)
    outage.heard()
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        for seconds in (3600.0, 3604.0):
            clock.now = 100.0 + seconds
            outage.on_error(DOWN)
        clock.now += 10.0
        outage.end()
    assert told(caplog) == [
        f"source orders: no answer from its brokers for at least 4 s: {DOWN.str()}",
        "source orders: its brokers answer again, after at least 14 s",
    ]


REFUSED = ck.KafkaError(ck.KafkaError._AUTHENTICATION, "SASL authentication error")


def test_the_reason_of_an_outage_is_not_lost_under_words_about_connections(
    clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The client reports a refused login seldom, and the reader's own look says each second that nobody answers."""
    outage = Outage("orders", clock)
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        outage.on_error(DOWN)
        outage.on_error(REFUSED)
        for seconds in range(1, 5):
            clock.now = 100.0 + seconds
            outage.on_error(ck.KafkaError(ck.KafkaError._TRANSPORT))
    assert told(caplog) == ["source orders: no answer from its brokers for at least 4 s: SASL authentication error"]
    outage.end()
    outage.on_error(DOWN)
    assert outage.last == DOWN.str()


class ObstructedTools(SourceTools):
    """Something is in the way."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = self.set_clock = clock
        self.obstacle: Obstacle | None = None
        self.looked: list[float] = []

    def find_obstacle(self, kafka: Mapping[str, str]) -> Obstacle | None:
        assert kafka["bootstrap.servers"] == "127.0.0.1:9"
        self.looked.append(self.set_clock.now - 100.0)
        return self.obstacle


def test_a_source_that_is_refused_while_it_runs_ends_its_attempt_with_the_reason(
    clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka tries a login for ever, and the daemon, which has another one, sees brokers that answer."""

    def list_topics(_topic: str, timeout: float) -> None:
        raise ck.KafkaException(DOWN)

    client: Any = SimpleNamespace(list_topics=list_topics)
    tools = ObstructedTools(clock)
    source = ConsumerThread(source_operator("127.0.0.1:9", "orders"), (), NEW, "tests", lambda: None, tools)
    tools.obstacle = Obstacle("127.0.0.1:9: Connection refused", "start the broker", "bootstrap.servers", final=False)
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        source._outage.on_error(DOWN)
        for second in range(1, 34):
            clock.now = 100.0 + second
            source._check_brokers(client)
    assert tools.looked == [4.0], "connections are dear"
    assert told(caplog) == [
        "source orders: no answer from its brokers for at least 4 s: 127.0.0.1:9: Connection refused; start the broker"
    ]
    tools.obstacle = Obstacle("127.0.0.1:9: it refuses the user `bob`", "correct it", "sasl.username", final=True)
    clock.now = 134.0
    with pytest.raises(SourceUnavailable, match=r"source orders: .*it refuses the user `bob`; correct it"):
        source._check_brokers(client)


def test_a_client_that_falls_silent_behind_its_first_error_is_asked_every_second(
    clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka repeats an error only 30 s later, and an idle topic never says that all is well again."""
    asked: list[float] = []
    away = True

    def list_topics(topic: str, timeout: float) -> None:
        assert topic == "orders", "a cluster may have many others"
        assert 0 < timeout <= 1.0
        asked.append(clock.now - 100.0)
        if away:
            raise ck.KafkaException(DOWN)

    client: Any = SimpleNamespace(list_topics=list_topics)
    tools = SourceTools()
    tools.clock = clock
    source = ConsumerThread(source_operator("127.0.0.1:9", "orders"), (), NEW, "tests", lambda: None, tools)
    with caplog.at_level(logging.WARNING, "tidegate.sources"):
        source._check_brokers(client)
        assert asked == [], "there was no error"
        source._outage.on_error(DOWN)
        for quarter in range(1, 22):
            clock.now = 100.0 + quarter / 4
            away = quarter < 20
            source._check_brokers(client)
    assert asked == [0.25, 1.25, 2.25, 3.25, 4.25, 5.25]
    assert [line.split(": ", 2)[:2] for line in told(caplog)] == [
        ["source orders", "no answer from its brokers for at least 4 s"],
        ["source orders", "its brokers answer again, after at least 5 s"],
    ]


def test_a_client_in_trouble_whose_certificates_were_replaced_is_made_again(clock: SetClock) -> None:
    """It has read them once: when they expire, no broker lets it in any more, or some do not."""
    stamp = ["former"]
    outage = Outage("orders", clock, lambda: list(stamp))
    outage.on_error(DOWN)
    clock.now += RENEWAL_S
    outage.check()
    stamp[0] = "half"
    clock.now += RENEWAL_S
    outage.check()  # without an error it is good as it is
    outage.on_error(DOWN)
    outage.end()  # a record of another broker's partition
    stamp[0] = "later"
    clock.now += RENEWAL_S
    outage.check()  # the other file has come meanwhile: maybe there is one more
    clock.now += RENEWAL_S - 1
    outage.check()
    clock.now += 1
    with pytest.raises(SourceUnavailable, match=r"; its certificates were replaced .* the next attempt reads"):
        outage.check()


def test_a_client_whose_certificates_are_again_what_it_has_read_is_good(clock: SetClock) -> None:
    stamp = ["former"]
    outage = Outage("orders", clock, lambda: list(stamp))
    stamp[0] = "later"
    outage.on_error(DOWN)
    stamp[0] = "former"  # they were taken back
    for _ in range(3):
        clock.now += RENEWAL_S
        outage.check()


@pytest.fixture
def client() -> ScriptedClient:
    made = ScriptedClient()
    made.stable[P0] = 0
    return made


@pytest.fixture
def reading(client: ScriptedClient, caplog: pytest.LogCaptureFixture) -> Iterator[ConsumerThread]:
    made = ConsumerThread(
        source_operator("127.0.0.1:9", "orders"), (P0,), NEW, "tests", lambda: None, ScriptedTools(client)
    )
    made.start()
    yield made
    made.close(5.0)
    assert client.closed
    assert "did not end" not in caplog.text


def test_a_reader_in_trouble_whose_certificates_were_replaced_ends_its_attempt(
    client: ScriptedClient, tmp_path: Path
) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("former")
    operator = source_operator("127.0.0.1:9", "orders")
    named = msgspec.structs.replace(operator, kafka={**operator.kafka, "ssl.ca.location": str(authorities)})
    tools = ScriptedTools(client)
    reading = ConsumerThread(named, (P0,), NEW, "tests", lambda: None, tools)
    reading.start()
    try:
        authorities.write_text("the later ones")
        reading._outage.on_error(DOWN)
        tools.set_clock.now += RENEWAL_S
        wait_until(lambda: reading._failure is not None, "the reader has failed")
        with pytest.raises(SourceUnavailable, match="its certificates were replaced"):
            reading.take(10)
    finally:
        reading.close(5.0)


class RefusingTools(ScriptedTools):
    """Its client does not take its settings for so long; each try lasts for half of the patience."""

    def __init__(self, client: ScriptedClient, refuses_s: float) -> None:
        super().__init__(client)
        self.taken_at = self.set_clock.now + refuses_s

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Consumer:
        self.set_clock.now += RENEWAL_S / 2
        if self.set_clock.now < self.taken_at:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG))
        return super().consumer(config, on_error)


@pytest.mark.parametrize(
    ("refuses_s", "files", "refused"), [(RENEWAL_S, True, False), (60.0, True, True), (RENEWAL_S, False, True)]
)
def test_files_that_are_being_replaced_are_waited_for(
    client: ScriptedClient, refuses_s: float, files: bool, refused: bool
) -> None:
    """A certificate and its key are two files: in between there is no client, and the pipeline stopped for good."""
    operator = source_operator("127.0.0.1:9", "orders")
    if files:
        operator = msgspec.structs.replace(operator, kafka={**operator.kafka, "ssl.key.location": "/no/key.pem"})
    reading = ConsumerThread(operator, (P0,), NEW, "tests", lambda: None, RefusingTools(client, refuses_s))
    reading.start()
    try:
        with (
            pytest.raises(SourceFailed, match="source orders: the Kafka client rejects its settings")
            if refused
            else contextlib.nullcontext()
        ):
            reading.wait_initial(PATIENCE_S)
    finally:
        reading.close(5.0)


def failing(reading: ConsumerThread, client: ScriptedClient) -> BaseException:
    """Why it has ended, after a record; its client must live: what is pending may lie in its memory."""
    wait_until(lambda: reading._failure is not None, "the reader has failed")
    assert not client.closed
    pending = reading.take(10)
    assert pending is not None
    assert pending.records.values == [b"first"]
    with pytest.raises(SourceUnavailable) as failure:
        reading.take(10)
    return failure.value


def test_where_a_log_begins_that_nobody_says_is_for_the_next_attempt(
    reading: ConsumerThread, client: ScriptedClient
) -> None:
    client.put(P0, b"first")
    wait_until(lambda: len(reading._pending.records) == 1, "the record is pending")
    client.away = True
    client.lose(P0, 1)
    assert str(failing(reading, client)).startswith("source orders: orders[0]: offset 1 is not in the log")


def test_a_client_lives_until_the_loop_is_done_with_its_records_whatever_the_failure_is(
    reading: ConsumerThread, client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(_: object) -> None:
        raise ck.KafkaException(DOWN)

    client.put(P0, b"first")
    wait_until(lambda: len(reading._pending.records) == 1, "the record is pending")
    monkeypatch.setattr(client, "pause", pause)
    reading.pause([P0])
    assert "KafkaException" in str(failing(reading, client))
