"""Clients that cannot be made for reasons of this machine."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.conftest import SessionBroker
from tests.support.descriptors import no_descriptors_left
from tidegate.ids import TransactionalId
from tidegate.kafka.errors import BrokerUnavailable
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
            asking.join(0.5)
            assert answers == []
            assert client.interruptions > before
        asking.join(CONNECT_S)
        assert answers == [None]
    finally:
        client.close()


async def _close_all(manager: Any) -> None:
    for connection in list(manager._conns.values()):
        connection.close()
