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
from tidegate.formats import letters
from tidegate.formats.letters.letter import read_letter
from tidegate.kafka.facts import TopicFacts, TopicLimits
from tidegate.sinks.naming import replay_id


def test_the_queue_has_room_for_the_largest_record() -> None:
    """With a `queue.buffering.max.kbytes` of the pipeline's that was smaller a replay never ended."""
    assert 1024 * int(OWN["queue.buffering.max.kbytes"]) >= int(OWN["message.max.bytes"])


@pytest.mark.parametrize(("given_ms", "used_ms"), [("120000", "60000"), ("30000", "30000")])
def test_a_producer_is_made_with_a_socket_timeout_beyond_the_limit_of_its_transactions(
    given_ms: str, used_ms: str
) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": given_ms}
    properties = derive_replay_properties(kafka, replay_id("shop"))
    assert properties["socket.timeout.ms"] == used_ms
    ck.Producer({**properties, "log_level": 0})


class Client:
    """Knows one topic."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        pass

    def topics(self, names: list[str], timeout_s: float) -> dict[str, TopicFacts]:
        return {name: TopicFacts("id", 1) for name in names if name == "orders"}

    def topic_limits(self, topic: str, timeout_s: float) -> TopicLimits:
        return TopicLimits()

    def close(self) -> None:
        pass


def test_a_topic_that_is_not_there_is_refused_by_a_dry_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said how many records would be written, and the replay itself was refused."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    letter = read_letter(0, 3, None, None, b"v", [(letters.KIND, b"X"), (letters.HEADERS, b"0")])
    assert letter is not None
    with replay._Fitting(cast("Any", SimpleNamespace(topic="dead", kafka={}))) as fitting:
        assert fitting.takes(letter, "orders")
        with pytest.raises(LettersRefused, match="topic ordres does not exist; choose another by --to"):
            fitting.takes(letter, "ordres")
