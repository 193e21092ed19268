"""What letters are written again with."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka as ck
import pytest

from tidegate.cli.letters import replay
from tidegate.cli.letters.replay import OWN, derive_replay_properties
from tidegate.cli.letters.topic import LettersRefused
from tidegate.clock import SYSTEM_CLOCK
from tidegate.formats import letters
from tidegate.formats.letters.letter import read_letter
from tidegate.kafka.facts import TopicFacts, TopicLimits
from tidegate.sinks.naming import replay_id


def test_the_queue_has_room_for_the_largest_record() -> None:
    """With a `queue.buffering.max.kbytes` of the pipeline's that was smaller a replay never ended."""
    assert 1024 * int(OWN["queue.buffering.max.kbytes"]) >= int(OWN["message.max.bytes"])


@pytest.mark.parametrize("name", ["socket.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"])
@pytest.mark.parametrize(("given_ms", "used_ms"), [("120000", "60000"), ("30000", "30000")])
def test_a_producer_is_made_with_times_beyond_the_limit_of_its_transactions(
    name: str, given_ms: str, used_ms: str
) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1", name: given_ms}
    properties = derive_replay_properties(kafka, replay_id("shop"))
    assert properties[name] == used_ms
    ck.Producer({**properties, "log_level": 0})


def test_a_replay_makes_no_topic() -> None:
    properties = derive_replay_properties({"bootstrap.servers": "none"}, replay_id("shop"))
    producer = ck.Producer({**properties, "test.mock.num.brokers": 1, "log_level": 0})
    assert producer.list_topics("nowhere", timeout=10).topics["nowhere"].error is not None
    assert not producer.list_topics(timeout=10).topics


class Client:
    """Knows one topic."""

    limits = TopicLimits()

    def __init__(self, kafka: Mapping[str, str]) -> None:
        pass

    def topics(self, names: list[str], timeout_s: float) -> dict[str, TopicFacts]:
        return {name: TopicFacts("id", 1) for name in names if name == "orders"}

    def topic_limits(self, topic: str, timeout_s: float) -> TopicLimits:
        return self.limits

    def close(self) -> None:
        pass


def test_a_topic_that_is_not_there_is_refused_by_a_dry_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said how many records would be written, and the replay itself was refused."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    letter = read_letter(0, 3, None, None, b"v", [(letters.KIND, b"X"), (letters.HEADERS, b"0")])
    assert letter is not None
    with replay._Fitting(cast("Any", SimpleNamespace(topic="dead", kafka={}))) as fitting:
        assert not fitting.refuses(letter, "orders")
        with pytest.raises(LettersRefused, match="topic ordres does not exist; choose another by --to"):
            fitting.refuses(letter, "ordres")


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("limits", "age_ms", "key", "reason"),
    [
        (
            TopicLimits(before_ms=7 * DAY_MS),
            8 * DAY_MS,
            None,
            "too old for the topic (message.timestamp.before.max.ms, before Kafka 4.0 ",
        ),
        (TopicLimits(before_ms=7 * DAY_MS), 6 * DAY_MS, None, ""),
        (TopicLimits(before_ms=7 * DAY_MS), None, None, ""),  # it gets the time of the replay
        (TopicLimits(after_ms=DAY_MS), -2 * DAY_MS, None, "too new for the topic (message.timestamp.after.max"),
        (TopicLimits(compacted=True), 0, None, "without a key, and the topic is compacted"),
        (TopicLimits(compacted=True), 0, b"k", ""),
        (TopicLimits(batch_bytes=100), 0, None, "too large for the topic (max.message.bytes)"),
    ],
)
def test_a_record_that_the_topic_does_not_take_is_known_before_it_is_written(
    limits: TopicLimits, age_ms: int | None, key: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refused it in its transaction, and up to 499 others with it: no replay came past it."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    monkeypatch.setattr(Client, "limits", limits)
    headers = [(letters.KIND, b"X"), (letters.HEADERS, b"0")]
    if age_ms is not None:
        headers.append((letters.TIMESTAMP, str(SYSTEM_CLOCK.now_ms() - age_ms).encode()))
    letter = read_letter(0, 3, None, key, b"v" * 50, headers)
    assert letter is not None
    with replay._Fitting(cast("Any", SimpleNamespace(topic="dead", kafka={}))) as fitting:
        assert fitting.refuses(letter, "orders").startswith(reason)
        assert bool(fitting.refuses(letter, "orders")) == bool(reason)
