"""The source while its broker is away."""

from __future__ import annotations

import logging

import pytest

from tests.conftest import BrokerMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tests.waiting import wait_until
from tidegate.dev.broker.server import create_topics

pytestmark = pytest.mark.slow


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
