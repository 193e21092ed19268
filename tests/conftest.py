"""Fixtures shared by all tests: a real broker, topics with names of their own.

The broker of the session is, in this order: KAFKA_BOOTSTRAP; a container when Docker's socket answers and
testcontainers is installed; the development broker. A test that stops or kills brokers starts its own through
`own_broker`.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from tests.depth import DEPTH
from tests.scheduling import ByRoom, derive_rank
from tests.support.compiled_tests import compile_share
from tests.support.formatting import formatted_once
from tests.support.leaks import LeakCheck
from tests.support.spark_session import spark
from tests.support.trying import tried_here
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics

__all__ = ["spark"]

# How long an example takes says how busy the machine is.
settings.register_profile("tidegate", deadline=None, max_examples=30 * DEPTH)
settings.load_profile("tidegate")

DOCKER_SOCKET = "/var/run/docker.sock"
CONTAINER_IMAGE = "confluentinc/cp-kafka:8.1.0"
CONTAINER_SETTINGS = {
    "AUTO_CREATE_TOPICS_ENABLE": "false",
    "TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "500",
    "TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "TRANSACTION_STATE_LOG_NUM_PARTITIONS": "1",
    "TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
}
"""What the container needs beyond its own defaults: one node, transactions that time out soon, as in our own broker."""


KEPT = {"retention.ms": "-1"}
"""Of topics whose records have old timestamps: by default brokers delete them, in the middle of a test."""


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeakCheck())
    compile_share(config, Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collects without the garbage collector, and keeps it from walking the collected tests again and again later.

    The garbage of the collection, some MB, stays: to find it takes each worker half a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # after the shuffling, whose order remains within a room
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: derive_rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return ByRoom(config, log)


@pytest.fixture(scope="session", autouse=True)
def _fewer_processes() -> Iterator[None]:
    """What is done in a child as often as a file is read or a broker made; commands that tests start do it as ever."""
    with tried_here(), formatted_once():
        yield


class SessionBroker:
    """The broker that all tests of a session share; nobody may stop it."""

    def __init__(self, bootstrap: str, kind: str) -> None:
        self.bootstrap = bootstrap
        self.kind = kind

    def create_topics(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Create topics with this many partitions each and wait for their leaders."""
        create_topics(self.bootstrap, topics, {**KEPT, **(config or {})})


class TopicMaker(Protocol):
    """`topics("orders", 4)` makes a topic with a name of its own and returns the name."""

    def __call__(self, name: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class BrokerMaker(Protocol):
    """`own_broker()` gives a started development broker of this test alone."""

    def __call__(
        self,
        *,
        start: bool = True,
        transaction_version: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> DevelopmentBroker: ...


def docker_answers(path: str = DOCKER_SOCKET) -> bool:
    """Whether an engine listens: a `docker` program alone says nothing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(path)
        connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
        return b"200" in connection.recv(64)
    return False


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionBroker]:
    """The real broker of this session."""
    given = os.environ.get("KAFKA_BOOTSTRAP")
    if given:
        yield SessionBroker(given, "KAFKA_BOOTSTRAP")
    elif find_spec("testcontainers") is not None and docker_answers():
        from testcontainers.community.kafka import KafkaContainer

        wanted = KafkaContainer(CONTAINER_IMAGE).with_kraft()
        for name, value in CONTAINER_SETTINGS.items():
            wanted.with_env(f"KAFKA_{name}", value)
        with wanted as container:
            yield SessionBroker(container.get_bootstrap_server(), "container")
    else:
        own = DevelopmentBroker(tmp_path_factory.mktemp("broker"))
        try:
            yield SessionBroker(own.start().bootstrap, "embedded")
        finally:
            own.kill()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerMaker]:
    """Makes brokers that belong to one test, which may stop, kill and pause them. All are killed at its end."""
    made: list[DevelopmentBroker] = []

    def make(
        *,
        start: bool = True,
        transaction_version: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> DevelopmentBroker:
        own = DevelopmentBroker(
            tmp_path / f"broker-{len(made)}", transaction_version=transaction_version, properties=properties
        )
        made.append(own)
        return own.start() if start else own

    try:
        yield make
    finally:
        for own in made:
            own.kill()


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """`unique_name("orders")` gives `orders-` and something that no other test has."""
    return lambda name: f"{name}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topics(broker: SessionBroker, unique_name: Callable[[str], str]) -> TopicMaker:
    """Makes topics at the session's broker; their names are unique, so nothing is deleted afterwards."""

    def make(name: str = "topic", partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        topic = unique_name(name)
        broker.create_topics({topic: partitions}, config)
        return topic

    return make
