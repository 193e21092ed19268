"""The source while its broker is away."""

from __future__ import annotations

import logging
import time

import pytest

from tests.conftest import BrokerMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tests.waiting import wait_until
from tidegate.daemon.broker.server import create_topics
from tidegate.sources import reader

pytestmark = pytest.mark.slow


def test_reading_goes_on_after_a_restart_of_the_broker(own_broker: BrokerMaker) -> None:
    broker = own_broker()
    create_topics(broker.bootstrap, {"orders": 1})
    produce(broker.bootstrap, "orders", orders(range(10)))
    with Reading(source_operator(broker.bootstrap, "orders", until="never")) as reading:
        reading.read(10)
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "orders", orders(range(10, 20)))
        assert reading.read(20)["id"].to_list() == list(range(20))


def test_an_outage_is_reported_and_closing_takes_bounded_time(
    own_broker: BrokerMaker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client may fall silent for 30 s behind its first two errors: the first one must do.
    monkeypatch.setattr(reader, "_OUTAGE_REPORT_SECONDS", 0.0)
    broker = own_broker()
    create_topics(broker.bootstrap, {"orders": 1})
    produce(broker.bootstrap, "orders", orders(range(10)))
    with (
        caplog.at_level(logging.WARNING, "tidegate.sources"),
        Reading(source_operator(broker.bootstrap, "orders", until="never")) as reading,
    ):
        reading.read(10)
        broker.kill()
        wait_until(lambda: "no data for" in caplog.text, "a report of the outage")
        reading.poll()
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert not reading.source._reader._thread.is_alive()  # type: ignore[union-attr]  # it has partitions
