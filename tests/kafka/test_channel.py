"""Clients that cannot be made for reasons of this machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import SessionBroker
from tests.support.descriptors import no_descriptors_left
from tests.waiting import wait_until
from tidegate.clock import SYSTEM_CLOCK
from tidegate.ids import TransactionalId
from tidegate.kafka.channel import open_client_channel
from tidegate.kafka.connection import BrokerConnection
from tidegate.kafka.errors import BrokerUnavailable, PropertyRefused
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.transactions import TransactionClient

CONNECT_S = 60.0


@pytest.fixture(autouse=True)
def loaded() -> None:
    """A daemon has loaded its libraries before anything goes wrong."""
    with pytest.raises(BrokerUnavailable):
        TransactionClient({"bootstrap.servers": "127.0.0.1:1"}, 0.0)


def test_X30_a_client_for_which_no_descriptor_is_left_is_told_and_may_be_tried_again() -> None:
    with no_descriptors_left(), pytest.raises(BrokerUnavailable, match=r"Too many open files.*ulimit -n") as told:
        TransactionClient({"bootstrap.servers": "127.0.0.1:1"}, 0.0)
    assert told.value.retriable


class Renewing(KafkaTools):
    """Clients whose files cannot be used for so long, and a clock that only sleep moves."""

    def __init__(self, unusable_s: float) -> None:
        self.now = 0.0
        self.unusable_s = unusable_s
        self.clock: Any = self

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def connect(self, kafka: Mapping[str, str], timeout_s: float) -> Any:
        if self.now < self.unusable_s:
            raise PropertyRefused("the key is not that of the certificate")
        return self


def test_a_slot_waits_for_files_that_are_being_replaced() -> None:
    """A certificate and its key are two files; the pipeline stopped for good where a slot began in between."""
    tools = Renewing(RENEWAL_S / 2)
    tools.connect_again({}, 1.0)
    assert tools.now >= RENEWAL_S / 2
    with pytest.raises(PropertyRefused, match="the key"):
        Renewing(RENEWAL_S * 2).connect_again({}, 1.0)


COMMITS = 64
"""Of one checkpoint and one coordinator: as many as slots and sinks."""


def test_a_client_takes_all_commits_of_a_checkpoint_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    def make(**arguments: Any) -> Any:
        made.append(arguments)
        manager = SimpleNamespace(run=lambda call: call(), close=lambda: None)
        return SimpleNamespace(_manager=manager, close=lambda: None)

    monkeypatch.setattr("kafka.KafkaAdminClient", make)
    TransactionClient({"bootstrap.servers": "127.0.0.1:1"}).close()
    (arguments,) = made
    assert arguments["max_in_flight_requests_per_connection"] > COMMITS


@pytest.mark.slow
def test_requests_to_one_broker_that_go_out_at_once_are_all_answered(broker: SessionBroker) -> None:
    """None of them counts as an interruption, after which all partitions are looked at for hanging transactions."""
    from kafka.protocol.metadata import MetadataRequest

    connection = BrokerConnection({"bootstrap.servers": broker.bootstrap}, CONNECT_S, open_client_channel, SYSTEM_CLOCK)
    try:
        (node,) = connection.nodes(CONNECT_S)
        requests = [MetadataRequest(topics=[], allow_auto_topic_creation=False) for _ in range(COMMITS)]
        answers = connection.send_all([(request, node) for request in requests], CONNECT_S)
    finally:
        connection.close()
    assert {type(answer).__name__ for answer in answers} == {"MetadataResponse"}
    assert connection.interruptions == 0


@pytest.mark.slow
def test_X30_no_descriptor_left_is_waited_out_by_new_clients_and_by_those_that_lost_their_connection(
    broker: SessionBroker,
) -> None:
    """A commit that meets it is asked again, in the same attempt."""
    made: list[TransactionClient] = []
    kafka = {"bootstrap.servers": broker.bootstrap}
    making = threading.Thread(target=lambda: made.append(TransactionClient(kafka, CONNECT_S)))
    with no_descriptors_left():
        making.start()
        making.join(0.3)
        assert made == []
    making.join(CONNECT_S)
    (client,) = made
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(client.describe(TransactionalId("nobody"), CONNECT_S)))
    try:
        channel: Any = client._broker._channel
        manager = channel._manager
        manager.run(_close_all, manager)
        with no_descriptors_left():
            before = client.interruptions
            asking.start()
            wait_until(lambda: client.interruptions > before, "it has noticed")
            assert answers == []
        asking.join(CONNECT_S)
        assert answers == [None]
    finally:
        client.close()


async def _close_all(manager: Any) -> None:
    for connection in list(manager._conns.values()):
        connection.close()
