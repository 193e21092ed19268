"""How a writer opens where brokers have just started, and know of nothing yet; and while its files are replaced."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from tests.support.certificates import Authority
from tidegate.kafka.errors import SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.producer_properties import derive_producer_properties
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.writer import Writer


class Tools(KafkaTools):
    """Producers whose broker learns of its topics later, and a clock that only sleep moves."""

    def __init__(self, unknown_s: float, code: int) -> None:
        self.now = 0.0
        self.unknown_s = unknown_s
        self.code = code
        self.clock: Any = self

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def producer(self, config: object) -> Any:
        return self

    def __len__(self) -> int:
        return 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        error = ck.KafkaError(self.code) if self.now < self.unknown_s else None
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={} if error else {0: 1, 1: 1})})


def opened(unknown_s: float, code: int = ck.KafkaError.UNKNOWN_TOPIC_OR_PART) -> Writer:
    tools = Tools(unknown_s, code)
    writer = Writer("out", {"orders": TopicLimits()}, derive_producer_properties({}, None, 60_000), tools)
    writer.open(None, lambda: False)
    return writer


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again() -> None:
    """A broker that has just started: the pipeline stopped for good, with code 4."""
    assert opened(3.0).partitions == {"orders": 2}


def test_a_topic_that_stays_unknown_is_refused() -> None:
    with pytest.raises(SinkRefused, match=r"topic orders: .*create it"):
        opened(1000.0)


def test_a_topic_that_is_forbidden_is_refused_at_once() -> None:
    with pytest.raises(SinkRefused, match="topic orders"):
        opened(1.0, ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Renewing(KafkaTools):
    """Real producers, and a clock that only sleep moves: when it is `at_s`, the second file is replaced, too."""

    def __init__(self, at_s: float, key: Path, by: Path) -> None:
        self.now = 0.0
        self.at_s = at_s
        self.key, self.by = key, by
        self.clock: Any = self

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.at_s:
            shutil.copy(self.by, self.key)


def renewed(directory: Path, at_s: float) -> None:
    """Make a producer whose certificate was replaced, and whose key is not yet."""
    authority = Authority(directory / "authority")
    former, later = authority.sign("former"), authority.sign("later")
    certificate, key = directory / "me.pem", directory / "me-key.pem"
    shutil.copy(later.certificate, certificate)
    shutil.copy(former.key, key)
    user = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    tools = Renewing(at_s, key, later.key)
    properties = derive_producer_properties(user, None, 60_000)
    Writer("out", {"orders": TopicLimits()}, properties, tools)._make_producer(lambda: False)


def test_files_that_are_being_replaced_are_waited_for(tmp_path: Path) -> None:
    """A certificate and its key are two files: in between no producer is made, and the pipeline stopped for good."""
    renewed(tmp_path, RENEWAL_S / 2)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"refuses its settings: .*ssl\.key"):
        renewed(tmp_path, RENEWAL_S * 2)
