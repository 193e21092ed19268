"""A broker that is killed and comes back: what a retry can cure fails nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import BrokerMaker
from tests.sinks.driving import NO_IDS, Cluster, assert_order_per_key, permit, rows
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import CheckpointId
from tidegate.sinks.outcome import CommitOutcome

pytestmark = pytest.mark.slow


@pytest.fixture
def broker_and_cluster(
    own_broker: BrokerMaker, unique_name: Callable[[str], str]
) -> Iterator[tuple[DevelopmentBroker, Cluster]]:
    broker = own_broker()
    cluster = Cluster(broker.bootstrap, unique_name)
    yield broker, cluster
    cluster.close()


def test_kills_while_writing_and_between_prepare_and_commit(
    broker_and_cluster: tuple[DevelopmentBroker, Cluster],
) -> None:
    broker, cluster = broker_and_cluster
    topic = cluster.topic()
    driven = cluster.sink(topic, timeout_ms=600_000)  # it outlives two starts of the broker
    driven.write(rows(range(500)))
    driven.written()
    broker.kill()
    driven.write(rows(range(500, 1000)))
    broker.start()
    first = driven.prepared(1).committables
    broker.kill()
    driven.write(rows(range(1000, 1500)))
    broker.start()
    outcomes: list[CommitOutcome] = []

    def committed() -> bool:
        outcomes[:] = cluster.committer.commit(permit(first))
        return outcomes == [CommitOutcome.ENDED_NOW]

    wait_until(committed, "the first checkpoint is committed")
    driven.sink.completed(CheckpointId(1), NO_IDS)
    second = driven.prepared(2).committables
    assert cluster.committer.commit(permit(second, 2)) == [CommitOutcome.ENDED_NOW]
    visible = cluster.visible(topic)
    assert sorted(number for part in visible.values() for number in part) == list(range(1500))
    assert_order_per_key(visible)
