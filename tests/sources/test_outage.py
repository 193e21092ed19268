"""The source while its broker is away."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.conftest import BrokerMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tests.support.secured_broker import Right, SecuredBroker
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.dev.broker.server import create_topics
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceUnavailable
from tidegate.sources.reader import ConsumerThread

pytestmark = pytest.mark.slow


@pytest.mark.deep
def test_a_login_that_is_refused_while_the_source_runs_ends_its_attempt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The user's password was changed; the client that was let in before tries the former one for ever."""
    broker = SecuredBroker(tmp_path, {"alice": "alice-secret"})
    try:
        broker.start()
        broker.add_scram_user("bob", "former-secret")
        broker.grant("bob", [Right("TOPIC", "orders", "READ"), Right("GROUP", "tests", "READ")])
        broker.create_topics({"orders": 1})
        login = {
            "bootstrap.servers": broker.secured,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(broker.authority.file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": "former-secret",
        }
        operator = source_operator(broker.secured, "orders", until="never", kafka=login)
        part = TopicPartition("orders", 0)
        reader = ConsumerThread(operator, (part,), SourcePositions(operator.name, ((part, 0),)), "tests", lambda: None)
        reader.start()
        try:
            reader.wait_initial(60)
            broker.add_scram_user("bob", "later-secret")
            broker.kill()
            broker.start()
            with caplog.at_level(logging.WARNING, "tidegate.sources"):
                wait_until(lambda: reader._failure is not None, "the reader has failed")
            with pytest.raises(SourceUnavailable, match="it refuses the user `bob`"):
                while reader.take(10) is not None:  # what was pending comes first
                    pass
        finally:
            reader.close(30.0)
    finally:
        broker.kill()


def test_an_outage_is_told_once_and_its_end_too_although_the_topic_is_idle_and_reading_goes_on(
    own_broker: BrokerMaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle topic never says that all is well again. How soon it is reported: test_reader.py."""
    monkeypatch.setattr("tidegate.sources.kafka._CLOSE_SECONDS", 60.0)
    broker = own_broker()
    create_topics(broker.bootstrap, {"orders": 1})
    produce(broker.bootstrap, "orders", orders(range(10)))
    with (
        caplog.at_level(logging.WARNING, "tidegate.sources"),
        Reading(source_operator(broker.bootstrap, "orders", until="never")) as reading,
    ):
        reading.read(10)
        broker.kill()
        wait_until(lambda: "no answer from its brokers" in caplog.text, "a report of the outage")
        broker.start()
        wait_until(lambda: "answer again" in caplog.text, "a report of its end")
        told = [record.levelname for record in caplog.records if record.name == "tidegate.sources"]
        assert told == ["WARNING", "WARNING"]
        produce(broker.bootstrap, "orders", orders(range(10, 20)))
        assert reading.read(20)["id"].to_list() == list(range(20))
        broker.kill()
        reading.poll()
    assert reading.source._reader._thread.join(0)  # type: ignore[union-attr]  # it has partitions
