"""What `tidegate doctor` asks, of a cluster of answers that are written down."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    NodeNotReadyError,
    ThrottlingQuotaExceededError,
)
from kafka.protocol.broker_version_data import BrokerVersionData

from tests.kafka.test_connection import HELD_BACK, Scripted
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka import inspection
from tidegate.kafka.inspection import (
    THROTTLED_MAX,
    ActiveProducer,
    BrokerVersion,
    ClockReading,
    ClusterNodes,
    Inspector,
    read_nodes,
    read_versions,
)


def inspector_of(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> tuple[Inspector, Scripted]:
    """The last answer is given again and again."""
    left = list(answers)
    manager = Scripted(lambda _request, _node: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(inspection, "connect", lambda _kafka, _timeout_s: SimpleNamespace(_manager=manager))
    return Inspector({}, 1.0), manager


def read(code: int) -> Any:
    return SimpleNamespace(responses=[SimpleNamespace(partitions=[SimpleNamespace(error_code=code)])])


@pytest.mark.parametrize(("code", "may"), [(29, False), (3, True), (0, True)])
def test_whether_a_topic_may_be_read_is_asked_again_while_a_quota_holds_it_back(
    monkeypatch: pytest.MonkeyPatch, code: int, may: bool
) -> None:
    monkeypatch.setattr(inspection, "PAUSE_S", 0.0)
    inspector, manager = inspector_of(monkeypatch, HELD_BACK, NodeNotReadyError("paused"), read(code))
    assert inspector.may_read("orders") is may
    assert len(manager.asked) == 3


def whole(*path: str, code: int) -> Any:
    """An answer whose lists have one entry each, down to the error code."""
    found = SimpleNamespace(error_code=code)
    for name in reversed(path):
        found = SimpleNamespace(**{name: [found]})
    return found


PLACES: dict[str, tuple[Callable[[Inspector], bool], tuple[str, ...]]] = {
    "read": (lambda asking: asking.may_read("orders"), ("responses", "partitions")),
    "write": (lambda asking: asking.may_write("orders"), ("responses", "partition_responses")),
    "see the settings of": (lambda asking: asking.may_see_settings("orders"), ("results",)),
    "see": (lambda asking: asking.may_see("orders"), ("topics",)),
    "mirror": (lambda asking: asking.may_mirror("shop", "orders"), ("topics", "partitions")),
    "transact": (lambda asking: asking.may_transact(TransactionalId("shop.doctor")), ()),
}
"""Of each right: the question, and where its answer has the code."""


@pytest.mark.parametrize("right", PLACES)
@pytest.mark.parametrize("code", [0, 3, 29, 30, 53])
def test_only_an_answer_about_rights_says_that_one_is_missing(
    monkeypatch: pytest.MonkeyPatch, right: str, code: int
) -> None:
    """NONE, UNKNOWN_TOPIC_OR_PARTITION, and those of topics, groups and transactional ids."""
    ask, path = PLACES[right]
    inspector, _ = inspector_of(monkeypatch, whole(*path, code=code))
    missing = code == 30 if right == "mirror" else code > 3
    assert ask(inspector) is not missing


@pytest.mark.parametrize("right", PLACES)
def test_a_right_is_tried_with_what_cannot_be(monkeypatch: pytest.MonkeyPatch, right: str) -> None:
    """So nothing is changed, whatever the right."""
    ask, path = PLACES[right]
    inspector, manager = inspector_of(monkeypatch, whole(*path, code=0))
    ask(inspector)
    (request,) = manager.sent
    none = (1 << 31) - 1
    match right:
        case "read":
            assert (request.topics[0].topic, request.topics[0].partitions[0].partition) == ("orders", none)
        case "write":
            assert (request.topic_data[0].name, request.topic_data[0].partition_data[0].index) == ("orders", none)
        case "see the settings of":
            assert request.resources[0].resource_name == "orders"
        case "see":
            assert [topic.name for topic in request.topics] == ["orders"]
            assert request.allow_auto_topic_creation is False
        case "mirror":
            assert (request.group_id, request.topics[0].name) == ("shop", "orders")
            assert request.topics[0].partitions[0].partition_index == none
        case "transact":
            assert (request.transactional_id, request.committed) == ("shop.doctor", False)
            assert (request.producer_id, request.producer_epoch) == (0, 0)


def test_the_settings_of_topics_are_those_that_may_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [SimpleNamespace(name="retention.ms", value="5"), SimpleNamespace(name="cleanup.policy", value=None)]
    seen = SimpleNamespace(results=[SimpleNamespace(error_code=0, configs=entries)])
    hidden = SimpleNamespace(results=[SimpleNamespace(error_code=29, configs=entries)])
    inspector, manager = inspector_of(monkeypatch, seen, hidden)
    assert inspector.topic_settings({"b", "a"}, ["retention.ms", "cleanup.policy"]) == {
        "a": {"retention.ms": "5", "cleanup.policy": ""},
        "b": {},
    }
    asked = [(one.resource_name, one.configuration_keys) for request in manager.sent for one in request.resources]
    assert asked == [(topic, ["retention.ms", "cleanup.policy"]) for topic in ("a", "b")]


def client_of(monkeypatch: pytest.MonkeyPatch, **calls: Any) -> Inspector:
    """Of two brokers with the client's own calls."""
    client, _ = cluster({2: (4, 0), 1: (4, 0)}, [8])
    for name, call in calls.items():
        setattr(client, name, call)
    monkeypatch.setattr(inspection, "connect", lambda _kafka, _timeout_s: client)
    return Inspector({}, 1.0)


def test_brokers_and_operations_are_those_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    inspector = client_of(monkeypatch)
    assert inspector.versions() == [BrokerVersion(1, "4.0"), BrokerVersion(2, "4.0")]
    assert inspector.operations() == {"DESCRIBE"}


def test_limits_of_brokers_are_the_least_of_those_that_may_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def describe(resources: list[Any], config_filter: str) -> Any:
        asked.extend((one.resource_type.name, one.name, list(one.configs), config_filter) for one in resources)
        return {"broker": {"1": {"a": {"value": "5"}, "b": {"value": "7"}}, "2": {"a": {"value": "4"}}}}

    assert client_of(monkeypatch, describe_configs=describe).broker_settings(["a", "b"]) == {"a": 4, "b": 7}
    assert asked == [("BROKER", node, ["a", "b"], "all") for node in "12"], "also those that were never set"
    nothing = client_of(monkeypatch, describe_configs=lambda _resources, config_filter: {"broker": {}})
    assert nothing.broker_settings(["a"]) == {}

    def refuse(_resources: Any, config_filter: str) -> Any:
        raise ClusterAuthorizationFailedError(f"{config_filter}: not for you")

    assert client_of(monkeypatch, describe_configs=refuse).broker_settings(["a"]) == {}


def test_producers_are_those_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def describe(asked: list[Any]) -> Any:
        active = [SimpleNamespace(producer_id=7, last_timestamp=70), SimpleNamespace(producer_id=8, last_timestamp=80)]
        return {part: SimpleNamespace(active_producers=active[: part.partition]) for part in asked}

    partitions = [TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("c", 1)]
    assert client_of(monkeypatch, describe_producers=describe).producers(partitions) == [
        ActiveProducer(TopicPartition("a", 2), 7, 70),
        ActiveProducer(TopicPartition("a", 2), 8, 80),
        ActiveProducer(TopicPartition("c", 1), 7, 70),
    ]


def quorum(leader: int, stamps: dict[int, int | None]) -> Any:
    """An answer to DescribeQuorum; brokers before Kafka 3.3 have no stamps in it."""
    voters = [
        {"replica_id": node} | ({} if stamp is None else {"last_caught_up_timestamp": stamp})
        for node, stamp in stamps.items()
    ]
    return {"topics": [{"partitions": [{"leader_id": leader, "current_voters": voters}]}]}


@pytest.mark.parametrize(
    ("stamps", "reading"),
    [
        ({1: 9_000, 2: 10_060}, ClockReading(10, 51)),
        ({1: 9_000, 2: 10_000}, ClockReading(-50, 51)),
        ({2: 1, 1: 9_000}, ClockReading(1 - 10_050, 51)),
        ({1: 9_000, 2: -1}, None),
        ({1: 9_000, 2: 0}, None),
        ({1: 9_000, 2: None}, None),
        ({1: 9_000}, None),
    ],
)
def test_the_clock_of_the_controller_is_that_of_the_leader_of_the_quorum(
    monkeypatch: pytest.MonkeyPatch, stamps: dict[int, int | None], reading: ClockReading | None
) -> None:
    """The others have caught up at some time or other."""
    inspector, manager = inspector_of(monkeypatch, SimpleNamespace(to_dict=lambda: quorum(2, stamps)))
    times = iter([10.0, 10.101])
    found = inspector.clock(lambda: next(times))
    assert found == reading
    assert found is None or isinstance(found.ahead_ms, int)
    assert manager.asked == [("DescribeQuorum", None)]


def test_a_clock_that_may_not_be_seen_is_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    inspector, _ = inspector_of(monkeypatch, ClusterAuthorizationFailedError("not for you"))
    assert inspector.clock() is None


def test_a_quota_that_leaves_no_room_to_ask_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    inspector, manager = inspector_of(monkeypatch, HELD_BACK)
    with pytest.raises(ThrottlingQuotaExceededError, match="about topic orders"):
        inspector.may_read("orders")
    assert len(manager.asked) == THROTTLED_MAX


def cluster(releases: dict[int, tuple[int, int]], operations: list[int] | None = None) -> tuple[Any, Scripted]:
    """A client of brokers of these releases, by kafka-python's own table of them."""
    brokers = [SimpleNamespace(node_id=one) for one in releases]
    answer = SimpleNamespace(cluster_id="c", brokers=brokers, authorized_operations=operations)
    manager = Scripted(lambda _request, _node: answer)
    made = {node: BrokerVersionData(release) for node, release in releases.items()}
    return SimpleNamespace(_manager=manager, get_broker_version_data=made.get), manager


def test_each_broker_is_asked_what_it_answers() -> None:
    client, _ = cluster({2: (2, 8), 1: (4, 0), 4: (2, 6), 3: (3, 0)})
    lacking = "DescribeTransactions", "ListTransactions", "FindCoordinator 4"
    assert read_versions(client) == [
        BrokerVersion(1, "4.0"),
        BrokerVersion(2, "2.8", lacking),
        BrokerVersion(3, "3.0"),
        BrokerVersion(4, "2.6", ("DescribeProducers", *lacking, "Metadata 10", "WriteTxnMarkers 1")),
    ]


def test_a_cluster_is_known_by_any_of_its_brokers_and_so_is_what_this_user_may_do() -> None:
    """0 to 2 are Kafka's words for no operation and for all."""
    client, manager = cluster({2: (4, 0), 1: (4, 0)}, [1, 2, 8, 10])
    assert read_nodes(client) == ClusterNodes("c", (1, 2), frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"}))
    assert manager.asked == [("Metadata", None)], "any of them knows"
    (request,) = manager.sent
    assert (request.topics, request.allow_auto_topic_creation) == ([], False)
    assert request.include_cluster_authorized_operations is True
    assert request._max_version == 10, "newer ones do not say what this user may do"
    assert read_nodes(cluster({1: (4, 0)})[0]) == ClusterNodes("c", (1,))


def test_a_cluster_that_does_not_answer_is_no_cluster_without_brokers() -> None:
    manager = Scripted(lambda _request, _node: KafkaConnectionError("away"))
    with pytest.raises(KafkaConnectionError, match="away"):
        read_nodes(SimpleNamespace(_manager=manager))
