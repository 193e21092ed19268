"""What is read from a real broker before a start."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator

import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.daemon.small_pipeline import pipeline
from tests.support import clients
from tidegate.checks.cluster import read_cluster
from tidegate.checks.facts import BROKER_SETTINGS, MIN_IN_SYNC, UNCLEAN, ClusterFacts
from tidegate.ids import MAIN_CLUSTER, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.plan.build import build_plan

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def collected_sockets() -> Iterator[None]:
    """kafka-python drops the sockets of refused connections without closing them: theirs to mend."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def survey(timeout_s: float = 60.0, **words: object) -> ClusterFacts:
    loaded = pipeline(**words)
    return read_cluster(loaded, build_plan(loaded), MAIN_CLUSTER, timeout_s)


def test_topics_with_their_settings_limits_and_rights_are_read(broker: SessionBroker, topics: TopicMaker) -> None:
    source = topics("in", 3)
    sink = topics("out", 1, {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})
    found = survey(servers=broker.bootstrap, source=source, sink=sink, start="{0: 0, 7: 1}")
    assert found.brokers == len(found.versions) == 1
    rights = {(need.resource, need.name, need.operation) for need, had in found.rights if had}
    assert rights == {
        ("topic", source, "Read"),
        ("topic", sink, "Write"),
        ("topic", sink, "Read"),
        ("transactional-id", "check.", "Write"),
        ("group", "check", "Read"),
    }
    assert found.broker_settings == dict(zip(BROKER_SETTINGS, (900_000, 604_800_000), strict=True))
    assert found.offsets == {TopicPartition(source, 0): (0, 0)}
    seen = found.topics[source]
    assert seen.facts is not None
    assert (seen.facts.partitions, len(seen.facts.topic_id)) == (3, 36)
    assert (seen.copies, seen.number(MIN_IN_SYNC), seen.settings[UNCLEAN]) == (1, 1, "false")
    assert found.topics[sink].settings[UNCLEAN] == "true"
    clients.producer({"bootstrap.servers": broker.bootstrap, "transactional.id": sink}).init_transactions(60)
    again = survey(servers=broker.bootstrap, source=source + "-typo", sink=sink)
    assert again.internal[TRANSACTION_LOG].copies == 1
    missing = again.topics[source + "-typo"]
    assert (missing.error, missing.facts) == ("UnknownTopicOrPartition", None)


@pytest.mark.parametrize("way", ["nobody listens", "nobody answers", "no such host"])
def test_a_broker_that_cannot_be_asked_is_told_with_address_and_reason(way: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        if way == "nobody answers":
            taken.listen()
        address = "nohost.invalid:9092" if way == "no such host" else f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerUnavailable) as caught:
            survey(0.5, servers=address)
    fields = caught.value.fields
    assert f"no broker answers at {address} within 500ms: " in str(fields["text"])
    reason = {"nobody listens": "refused", "nobody answers": "does not answer", "no such host": "cannot be resolved"}[
        way
    ]
    assert reason in str(fields["text"])
    assert fields["remedy"]
    assert caught.value.exit_code == 1, "it may come back"
