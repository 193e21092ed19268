"""Brokers of both transaction versions for the sinks: started when first asked for, shared by the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.sinks.driving import Cluster
from tidegate.dev.broker import DevelopmentBroker
from tidegate.kafka.transactions import TransactionClient


def _serve(factory: pytest.TempPathFactory, version: int) -> Iterator[DevelopmentBroker]:
    broker = DevelopmentBroker(factory.mktemp(f"broker-tv{version}"), transaction_version=version)
    try:
        yield broker.start()
    finally:
        broker.kill()


@pytest.fixture(scope="session")
def broker_tv1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevelopmentBroker]:
    yield from _serve(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def broker_tv2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevelopmentBroker]:
    yield from _serve(tmp_path_factory, 2)


def _cluster(broker: DevelopmentBroker, unique_name: Callable[[str], str]) -> Iterator[Cluster]:
    cluster = Cluster(broker.bootstrap, unique_name)
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def cluster(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> Iterator[Cluster]:
    """A cluster of each transaction version: for what the broker's protocol decides."""
    yield from _cluster(request.getfixturevalue(f"broker_tv{request.param}"), unique_name)


@pytest.fixture
def cluster_tv2(broker_tv2: DevelopmentBroker, unique_name: Callable[[str], str]) -> Iterator[Cluster]:
    """A cluster as Kafka makes it today: for what does not depend on the version."""
    yield from _cluster(broker_tv2, unique_name)


@pytest.fixture
def client(cluster: Cluster) -> TransactionClient:
    return cluster.client
