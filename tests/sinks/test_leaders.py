"""Three brokers: what only a leader knows is taken from nobody else, however the leaders move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import clients
from tests.support.broker_cluster import SIZE, BrokerCluster
from tests.waiting import wait_until
from tidegate.committable import WrittenRange
from tidegate.ids import TopicPartition
from tidegate.kafka.facts import TRANSACTION_LOG, Marker
from tidegate.kafka.requests import fetch_request, producers_request
from tidegate.kafka.transactions import TransactionClient

pytestmark = [pytest.mark.slow, pytest.mark.deep]

PART = TopicPartition("out", 0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path_factory.mktemp("leaders")) as made:
        made.create_topics({PART.topic: 1})
        yield made


@pytest.fixture
def client(cluster: BrokerCluster) -> Iterator[TransactionClient]:
    made = TransactionClient({"bootstrap.servers": cluster.bootstrap})
    yield made
    made.close()


def test_X08_a_leader_that_has_moved_is_noticed_although_its_follower_still_answers(
    cluster: BrokerCluster, client: TransactionClient
) -> None:
    """Kafka's followers report their producers, too, without the newest markers: committed transactions look open."""
    producer = clients.producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x.out.0.1-j.0"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(PART.topic, b"one", partition=PART.partition)
    assert producer.flush(60) == 0
    before = client.leaders([PART.topic])
    (opened,) = client.open_transactions([PART])

    old = cluster.leader(PART)
    cluster.move_leader(PART, old % SIZE + 1)
    assert client._broker.send(producers_request([PART]), old, 10).topics[0].partitions[0].error_code == 0, (
        "the follower answers"
    )
    seen = client.interruptions
    assert client.open_transactions([PART]) == [opened]
    assert client.interruptions > seen, "its answer was thrown away, and the leader looked up"
    after = client.leaders([PART.topic])
    assert after[PART].epoch > before[PART].epoch
    assert {part.topic for part in after} == {PART.topic, TRANSACTION_LOG}

    producer.commit_transaction(60)
    owner = opened.producer
    written = WrittenRange(PART, opened.start_offset, opened.start_offset + 1, 1)
    wait_until(lambda: client.outcome(written, owner) is Marker.COMMIT, "the marker is there")
    cluster.move_leader(PART, old)  # its high watermark reaches the marker a little later
    wait_until(lambda: client.outcome(written, owner) is Marker.COMMIT, "the new leader's marker is seen")
    for node in cluster.brokers.keys() - {old}:
        answer = client._broker.send(fetch_request({PART: 0}, 1000), node, 10).responses[0].partitions[0]
        assert answer.error_code == 6, "a follower may not know the end yet, and is not to be read"
