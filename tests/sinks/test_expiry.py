"""What Kafka forgets: transactional ids that nobody uses, records and markers that retention removes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import TopicPartition as Position

from tests.sinks.driving import Cluster, permit, rows
from tests.support import clients
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import TransactionalId
from tidegate.kafka.errors import TransactionGone
from tidegate.kafka.facts import EndAnswer
from tidegate.kafka.transactions import TransactionClient
from tidegate.sinks.committer import Committer
from tidegate.sinks.outcome import CommitOutcome

pytestmark = pytest.mark.slow

LIFETIME_MS = 4_000


@pytest.fixture(scope="module")
def forgetful_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevelopmentBroker]:
    """Forgets ids after seconds; 7 days by default."""
    properties = {
        "transactional.id.expiration.ms": f"{LIFETIME_MS}",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    broker = DevelopmentBroker(tmp_path_factory.mktemp("broker"), properties=properties)
    try:
        yield broker.start()
    finally:
        broker.kill()


@pytest.fixture
def forgetful(forgetful_broker: DevelopmentBroker, unique_name: Callable[[str], str]) -> Iterator[Cluster]:
    cluster = Cluster(forgetful_broker.bootstrap, unique_name)
    try:
        yield cluster
    finally:
        cluster.close()


def remove_records(cluster: Cluster, committable: Committable, *, but: int = 0) -> None:
    """As retention does it: all partitions of the transaction but so many lose everything up to now."""
    parts = [part.partition for part in committable.written][but:]
    ends = cluster.client.stable_offsets(parts)
    clients.delete_records(cluster.bootstrap, [Position(p.topic, p.partition, ends[p]) for p in parts])


def test_X10_an_idle_sink_opens_its_producers_anew_before_their_ids_are_forgotten(forgetful: Cluster) -> None:
    """What nobody has used for as long is forgotten meanwhile, so the time was long enough."""
    topic = forgetful.topic()
    driven = forgetful.sink(topic)
    driven.turn_until(lambda: len(driven.sink._producers._warm) == 2, "two warm producers")
    unused = TransactionalId(f"{forgetful.pipeline}.unused")
    forgetful.client.fence(unused)
    driven.turn_until(lambda: forgetful.client.describe(unused) is None, "an unused id is forgotten")
    driven.write(rows(range(100)))
    (one,) = driven.prepared(1).committables
    assert forgetful.committer.commit(permit([one])) == [CommitOutcome.ENDED_NOW]
    assert forgetful.values(topic) == list(range(100))


def test_X02_what_was_committed_is_known_as_long_as_one_partition_has_a_marker(forgetful: Cluster) -> None:
    """The id is forgotten, and retention has emptied all partitions but one, then that one too."""
    topic = forgetful.topic()
    driven = forgetful.sink(topic)
    driven.write(rows(range(100)))
    (one,) = driven.prepared(1).committables
    assert len(one.written) > 1
    driven.sink.close()
    assert forgetful.committer.commit(permit([one])) == [CommitOutcome.ENDED_NOW]
    assert forgetful.values(topic) == list(range(100))
    wait_until(lambda: forgetful.client.describe(one.transactional_id) is None, "its id is forgotten")
    assert forgetful.client.end_transaction(one) is EndAnswer.UNKNOWN_PRODUCER
    assert forgetful.committer.commit(permit([one])) == [CommitOutcome.COMMITTED]
    remove_records(forgetful, one, but=1)
    with closing(TransactionClient({"bootstrap.servers": forgetful.bootstrap})) as later:
        assert Committer(later).commit(permit([one])) == [CommitOutcome.COMMITTED]
    remove_records(forgetful, one)
    assert forgetful.committer.commit(permit([one])) == [CommitOutcome.COMMITTED], (
        "whoever has seen a marker knows the end"
    )
    with (
        closing(TransactionClient({"bootstrap.servers": forgetful.bootstrap})) as later,
        pytest.raises(TransactionGone, match=r"--accept-gone \d+, "),
    ):
        Committer(later).commit(permit([one]))
