"""What letters are written again with."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.cli.letters import replay
from tidegate.cli.letters.replay import OWN
from tidegate.cli.letters.topic import LettersRefused
from tidegate.formats import letters
from tidegate.formats.letters.letter import read_letter
from tidegate.kafka.facts import TopicFacts, TopicLimits


def test_the_queue_has_room_for_the_largest_record() -> None:
    """With a `queue.buffering.max.kbytes` of the pipeline's that was smaller a replay never ended."""
    assert 1024 * int(OWN["queue.buffering.max.kbytes"]) >= int(OWN["message.max.bytes"])


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
