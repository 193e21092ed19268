"""Requests of our own in a cluster whose leaders and coordinators move: a client of answers that are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.committable import Committable
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    ProducerId,
    SlotIndex,
    TopicPartition,
    TransactionalId,
)
from tidegate.kafka.channel import ClientChannel
from tidegate.kafka.connection import is_passing
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.facts import EndAnswer, TopicFacts
from tidegate.kafka.transactions import TransactionClient

PASSING = {
    "LEADER_NOT_AVAILABLE": 5,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "NOT_ENOUGH_REPLICAS": 19,
    "KAFKA_STORAGE_ERROR": 56,
    "FENCED_LEADER_EPOCH": 74,
    "OFFSET_NOT_AVAILABLE": 78,
}
FINAL = {"NONE": 0, "OFFSET_OUT_OF_RANGE": 1, "TOPIC_AUTHORIZATION_FAILED": 29, "INVALID_TXN_STATE": 48}
PREPARED = Committable(
    sink=OperatorName("out"),
    subtask=SlotIndex(0),
    attempt=Attempt(1),
    checkpoint=CheckpointId(1),
    transactional_id=TransactionalId("p.out.0.1-j.0"),
    producer_id=7,
    producer_epoch=0,
    written=(),
    opened_at_ms=0,
    timeout_ms=60_000,
)
PARTITION = TopicPartition("out", 0)

Answer = Callable[[Any, int | None], Any]
"""What a node answers to a request; a KafkaError among the answers is raised."""


class Scripted:
    """The manager inside kafka-python's client: `answer` plays the cluster."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int | None]] = []
        self.sent: list[Any] = []
        """The requests themselves."""
        self.refreshed = 0
        self.cluster = SimpleNamespace(broker_metadata=lambda _node: True, request_update=self._refresh)

    def _refresh(self) -> None:
        self.refreshed += 1

    def run(self, call: Callable[[], Any]) -> Any:
        return asyncio.run(call())

    def send(self, request: Any, node_id: int | None) -> Any:
        self.asked.append((type(request).__name__.removesuffix("Request"), node_id))
        self.sent.append(request)
        return self.answer(request, node_id)

    async def wait_for(self, answer: Any, timeout_ms: float) -> Any:
        assert timeout_ms > 0
        if isinstance(answer, errors.KafkaError):
            raise answer
        return answer


class SleptClock:
    """Only sleep moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def scripted(answer: Answer, clock: Clock = SYSTEM_CLOCK) -> tuple[TransactionClient, Scripted]:
    """A client of a scripted cluster."""
    manager = Scripted(answer)
    admin: Any = SimpleNamespace(_manager=manager, close=lambda: None)
    kafka = {"bootstrap.servers": "a:1"}
    return TransactionClient(kafka, 1.0, lambda _kafka, _timeout_s: ClientChannel(admin), clock), manager


def ended(code: int) -> Any:
    return SimpleNamespace(error_code=code)


def coordinated_by(node: int, code: int = 0) -> Any:
    return SimpleNamespace(coordinators=[SimpleNamespace(node_id=node, error_code=code, key=PREPARED.transactional_id)])


def led_by(node: int, epoch: int = 0) -> Any:
    partition = SimpleNamespace(partition_index=0, leader_id=node, leader_epoch=epoch)
    topic = SimpleNamespace(name="out", error_code=0, topic_id="of out", partitions=[partition])
    return described(topic)


def described(*topics: Any) -> Any:
    """An answer to Metadata."""
    return SimpleNamespace(brokers=[SimpleNamespace(node_id=1)], topics=list(topics))


def open_since(*offsets: int) -> Any:
    """An answer to DescribeProducers."""
    producers = [
        SimpleNamespace(
            producer_id=9, producer_epoch=5, last_sequence=0, coordinator_epoch=-1, current_txn_start_offset=offset
        )
        for offset in offsets
    ]
    partition = SimpleNamespace(partition_index=0, error_code=0, active_producers=producers)
    return SimpleNamespace(topics=[SimpleNamespace(name="out", partitions=[partition])])


def stable_at(offset: int, code: int = 0) -> Any:
    partition = SimpleNamespace(partition_index=0, error_code=code, offset=offset)
    return SimpleNamespace(topics=[SimpleNamespace(name="out", partitions=[partition])])


def in_turn(**answers: list[Any]) -> Answer:
    """The answers to requests by their names, in turn."""
    left: dict[str, Iterator[Any]] = {name: iter(each) for name, each in answers.items()}
    return lambda request, _node: next(left[type(request).__name__.removesuffix("Request")])


@pytest.mark.parametrize("code", PASSING.values(), ids=PASSING)
def test_what_passes_when_leaders_move_is_asked_again(code: int) -> None:
    assert is_passing(code)


@pytest.mark.parametrize("code", FINAL.values(), ids=FINAL)
def test_what_does_not_pass_is_final(code: int) -> None:
    assert not is_passing(code)


@pytest.mark.parametrize(
    "trouble",
    [ended(15), ended(16), errors.KafkaConnectionError("it was killed"), errors.NodeNotReadyError(1)],
    ids=["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "dead", "not connected"],
)
def test_a_coordinator_that_has_moved_is_looked_up_again(trouble: Any) -> None:
    client, manager = scripted(
        in_turn(FindCoordinator=[coordinated_by(1), coordinated_by(2)], EndTxn=[trouble, ended(0)])
    )
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED
    assert [node for name, node in manager.asked if name == "EndTxn"] == [1, 2]


@pytest.mark.parametrize("code", [14, 51], ids=["COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"])
def test_a_coordinator_that_is_busy_is_asked_again(code: int) -> None:
    client, manager = scripted(
        in_turn(FindCoordinator=[coordinated_by(1)], EndTxn=[ended(code), ended(code), ended(0)])
    )
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED
    assert [node for name, node in manager.asked if name == "EndTxn"] == [1, 1, 1]


def test_a_coordinator_that_nobody_knows_yet_is_asked_for_again() -> None:
    found = [coordinated_by(-1, 15), errors.KafkaConnectionError("the asked one died"), coordinated_by(3)]
    client, manager = scripted(in_turn(FindCoordinator=found, EndTxn=[ended(0)]))
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED
    assert manager.asked[-1] == ("EndTxn", 3)


def test_a_coordinator_that_the_client_has_not_heard_of_makes_it_look_at_the_cluster() -> None:
    answers = in_turn(
        FindCoordinator=[coordinated_by(4), coordinated_by(4)], EndTxn=[errors.UnknownBrokerIdError(4), ended(0)]
    )
    client, manager = scripted(answers)
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED
    assert manager.refreshed == 1


def test_without_a_final_answer_in_time_a_transaction_counts_as_open() -> None:
    client, _ = scripted(lambda request, _: coordinated_by(1) if "Find" in type(request).__name__ else ended(51))
    assert client.end_transaction(PREPARED, timeout_s=0.1) is EndAnswer.NO_ANSWER


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.fence(PREPARED.transactional_id, timeout_s=5.0),
        lambda client: client.mirror_offsets("lag", {PARTITION: 41}, timeout_s=5.0),
    ],
    ids=["fence", "mirror"],
)
def test_a_coordinator_that_stays_busy_is_asked_for_as_long_as_it_may_take(
    ask: Callable[[TransactionClient], object],
) -> None:
    busy = SimpleNamespace(error_code=14, topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=14)])])
    clock = SleptClock()
    client, _ = scripted(lambda request, _: coordinated_by(1) if "Find" in type(request).__name__ else busy, clock)
    with pytest.raises(BrokerUnavailable, match="CoordinatorLoadInProgress"):
        ask(client)
    assert 1004.0 < clock.now_s <= 1005.0


@pytest.mark.parametrize(
    "trouble",
    [stable_at(-1, 6), stable_at(-1, 78), errors.KafkaConnectionError("it was killed")],
    ids=["NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE", "dead"],
)
def test_a_leader_that_has_moved_is_looked_up_again(trouble: Any) -> None:
    client, manager = scripted(in_turn(Metadata=[led_by(1), led_by(2)], ListOffsets=[trouble, stable_at(9)]))
    assert client.stable_offsets([PARTITION]) == {PARTITION: 9}
    assert [node for name, node in manager.asked if name == "ListOffsets"] == [1, 2]


@pytest.mark.parametrize("code", [6, 74, 75])
def test_X08_open_transactions_of_a_broker_that_does_not_lead_are_thrown_away(code: int) -> None:
    """NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH."""
    epochs: list[int] = []
    answers = in_turn(
        Metadata=[led_by(1, 4), led_by(2, 5)],
        DescribeProducers=[open_since(120), open_since()],
        ListOffsets=[stable_at(-1, code), stable_at(130)],
    )

    def answer(request: Any, node: int | None) -> Any:
        if type(request).__name__ == "ListOffsetsRequest":
            epochs.append(request.topics[0].partitions[0].current_leader_epoch)
        return answers(request, node)

    client, manager = scripted(answer)
    assert client.open_transactions([PARTITION]) == [], "the leader has its marker already"
    assert epochs == [4, 5]
    assert [node for name, node in manager.asked if name == "DescribeProducers"] == [1, 2]


def test_a_partition_without_a_leader_is_waited_for_and_named() -> None:
    client, _ = scripted(lambda _request, _node: led_by(-1))
    with pytest.raises(BrokerUnavailable, match=r"out\[0\] has no leader"):
        client.stable_offsets([PARTITION], timeout_s=0.1)


def test_transactions_are_listed_by_the_brokers_that_are_there_now() -> None:
    brokers = [SimpleNamespace(brokers=[SimpleNamespace(node_id=node) for node in nodes]) for nodes in ([1, 2], [1, 3])]
    empty = SimpleNamespace(error_code=0, transaction_states=[])
    loading = SimpleNamespace(error_code=14, transaction_states=[])
    client, manager = scripted(in_turn(Metadata=brokers, ListTransactions=[empty, loading, empty, empty]))
    assert client.list_transactions("p.") == []
    assert [node for name, node in manager.asked if name == "ListTransactions"] == [1, 2, 1, 3]


def test_a_topic_that_the_user_may_not_see_is_not_called_missing() -> None:
    hidden = SimpleNamespace(name="out", error_code=29, partitions=[])
    client, _ = scripted(lambda _request, _node: described(hidden))
    with pytest.raises(KafkaRefused, match=r"topic out at a:1: not authorized .*; grant READ on the topic"):
        client.topics(["out"])


def test_positions_are_mirrored_by_the_groups_own_coordinator_also_when_it_moves() -> None:
    def committed(code: int) -> Any:
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=code)])])

    sent: list[Any] = []
    turns = in_turn(
        FindCoordinator=[coordinated_by(1), coordinated_by(2)],
        OffsetCommit=[committed(16), committed(0), committed(30)],
    )

    def answer(request: Any, node: int | None) -> Any:
        sent.append(request)
        return turns(request, node)

    client, manager = scripted(answer)
    client.mirror_offsets("lag", {PARTITION: 41})
    assert manager.asked == [
        ("FindCoordinator", None),
        ("OffsetCommit", 1),
        ("FindCoordinator", None),
        ("OffsetCommit", 2),
    ]
    assert (sent[0].key_type, sent[0].coordinator_keys) == (0, ["lag"])
    (topic,) = sent[-1].topics
    assert (topic.name, [(part.partition_index, part.committed_offset) for part in topic.partitions]) == (
        "out",
        [(0, 41)],
    )
    with pytest.raises(KafkaRefused, match="grant READ on that group"):
        client.mirror_offsets("lag", {PARTITION: 42})


def test_a_group_that_somebody_reads_in_is_named_and_no_reason_to_stop() -> None:
    """A start could not get past it; whoever mirrors goes on without a record, as without the permission."""
    refused = SimpleNamespace(topics=[SimpleNamespace(partitions=[SimpleNamespace(error_code=25)])])
    client, _ = scripted(in_turn(FindCoordinator=[coordinated_by(1)], OffsetCommit=[refused]))
    with pytest.raises(KafkaRefused, match=r"consumer group shop has members.*another name"):
        client.mirror_offsets("shop", {PARTITION: 41})


def test_transactions_of_all_brokers_are_listed_and_only_those_of_the_prefix() -> None:
    def holds(*ids: str) -> Any:
        states = [SimpleNamespace(transactional_id=one, producer_id=1, transaction_state="Ongoing") for one in ids]
        return SimpleNamespace(error_code=0, transaction_states=states)

    brokers = SimpleNamespace(brokers=[SimpleNamespace(node_id=node) for node in (1, 2)])
    client, _ = scripted(in_turn(Metadata=[brokers], ListTransactions=[holds("p.a", "other"), holds("p.b")]))
    assert [one.transactional_id for one in client.list_transactions("p.")] == ["p.a", "p.b"]


def test_a_transaction_that_begins_at_the_first_offset_is_open_and_a_broker_may_have_the_number_0() -> None:
    """-1 is what DescribeProducers says of a producer without one."""
    answers = in_turn(Metadata=[led_by(0)], DescribeProducers=[open_since(-1, 0)], ListOffsets=[stable_at(9)])
    client, manager = scripted(answers)
    assert [one.start_offset for one in client.open_transactions([PARTITION])] == [0]
    assert ("DescribeProducers", 0) in manager.asked


@pytest.mark.parametrize(
    "trouble",
    [ended(51), errors.KafkaConnectionError("it was killed"), errors.UnknownBrokerIdError("1")],
    ids=["asked again", "dead", "unknown"],
)
def test_X08_every_interruption_counts(trouble: Any) -> None:
    """The mender waits again after each: it may have been the restart of a coordinator."""
    finding, turns = [coordinated_by(1)] * 9, [trouble, ended(0)] * 2
    client, _ = scripted(in_turn(FindCoordinator=finding, EndTxn=turns))
    seen = []
    for _ in range(2):
        client.end_transaction(PREPARED)
        seen.append(client.interruptions)
    assert seen == [1, 2]


def test_an_id_is_coordinated_as_one_of_transactions() -> None:
    sent: list[Any] = []
    turns = in_turn(FindCoordinator=[coordinated_by(1)], EndTxn=[ended(0)])

    def answer(request: Any, node: int | None) -> Any:
        sent.append(request)
        return turns(request, node)

    client, _ = scripted(answer)
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED
    assert (sent[0].key_type, sent[0].coordinator_keys) == (1, [PREPARED.transactional_id])
    assert sent[1].committed is True


def test_a_coordinator_that_cannot_be_asked_for_is_asked_for_again() -> None:
    trouble = errors.KafkaConnectionError("it was killed")
    client, _ = scripted(in_turn(FindCoordinator=[trouble, coordinated_by(1)], EndTxn=[ended(0)]))
    assert client.end_transaction(PREPARED) is EndAnswer.ENDED


@pytest.mark.parametrize(("name", "refused"), [("out", True), ("__transaction_state", False)])
def test_only_the_transaction_log_may_be_hidden(name: str, refused: bool) -> None:
    client, _ = scripted(lambda _request, _node: described(SimpleNamespace(name=name, error_code=29, partitions=[])))
    if not refused:
        assert client.leaders([name]) == {}
        return
    with pytest.raises(KafkaRefused, match="not authorized"):
        client.leaders([name])


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda client: client.topics(["out", "in", "out"]), ["in", "out"]),
        (lambda client: client.topics(None), None),
        (lambda client: client.leaders(["out"]), ["__transaction_state", "out"]),
        (lambda client: client.cluster_id(), []),
        (lambda client: client.list_transactions("p."), []),
    ],
    ids=["topics", "all topics", "leaders", "cluster", "brokers"],
)
def test_metadata_are_asked_for_of_what_is_named_only_and_create_no_topic(
    ask: Callable[[TransactionClient], object], named: list[str] | None
) -> None:
    """A cluster may have thousands of topics, and create those that somebody asks for."""
    brokers = SimpleNamespace(cluster_id="c", brokers=[SimpleNamespace(node_id=1)], topics=[])
    listed = SimpleNamespace(error_code=0, transaction_states=[])
    client, manager = scripted(in_turn(Metadata=[brokers], ListTransactions=[listed]))
    ask(client)
    request = manager.sent[0]
    assert (None if request.topics is None else [topic.name for topic in request.topics]) == named
    assert request.allow_auto_topic_creation is False


def test_topics_that_exist_have_ids_and_partitions() -> None:
    there = SimpleNamespace(name="out", error_code=0, topic_id="id-1", partitions=[1, 2])
    gone = SimpleNamespace(name="gone", error_code=3, topic_id="id-2", partitions=[])
    client, _ = scripted(lambda _request, _node: described(there, gone))
    found = client.topics(["out", "gone"])
    assert {name: (facts.topic_id, facts.partitions) for name, facts in found.items()} == {"out": ("id-1", 2)}


def test_a_cluster_is_known_by_its_id() -> None:
    client, _ = scripted(in_turn(Metadata=[SimpleNamespace(cluster_id="c", brokers=[1], topics=[])]))
    assert client.cluster_id() == "c"


def read_from(end: int, records: bytes = b"") -> Any:
    """An answer to Fetch."""
    partition = SimpleNamespace(partition_index=0, error_code=0, high_watermark=end, records=records)
    return SimpleNamespace(error_code=0, throttle_time_ms=0, responses=[SimpleNamespace(partitions=[partition])])


HELD_BACK = SimpleNamespace(error_code=0, throttle_time_ms=250, responses=[])
"""What a broker answers to a Fetch of a user beyond its quota: nothing of what was asked for."""


def test_a_fetch_that_a_quota_holds_back_is_asked_again() -> None:
    client, manager = scripted(in_turn(Metadata=[led_by(1)], Fetch=[HELD_BACK, HELD_BACK, read_from(0)]))
    assert client.first_sequence(PARTITION, 0, PREPARED.producer) is None
    assert [name for name, _ in manager.asked] == ["Metadata", "Fetch", "Fetch", "Fetch"]


def test_a_fetch_that_a_quota_holds_back_for_too_long_says_so() -> None:
    client, _ = scripted(lambda request, _node: led_by(1) if "Metadata" in type(request).__name__ else HELD_BACK)
    with pytest.raises(BrokerUnavailable, match=r"out\[0\]: .*quota.* 250 ms"):
        client.first_sequence(PARTITION, 0, PREPARED.producer, timeout_s=0.1)


def test_a_transaction_whose_first_record_was_removed_meanwhile_has_no_first_sequence() -> None:
    """Retention goes by the records' timestamps, which a sink may set, and removes what is in an open transaction."""
    gone = SimpleNamespace(partition_index=0, error_code=1, high_watermark=-1, records=None)
    answer = SimpleNamespace(error_code=0, throttle_time_ms=0, responses=[SimpleNamespace(partitions=[gone])])
    client, _ = scripted(in_turn(Metadata=[led_by(1)], Fetch=[answer]))
    assert client.first_sequence(PARTITION, 5, PREPARED.producer) is None


def test_a_broker_that_knows_of_nothing_yet_is_asked_again() -> None:
    unknown = SimpleNamespace(name="out", error_code=3, topic_id="", partitions=[])
    client, _ = scripted(in_turn(Metadata=[SimpleNamespace(brokers=[], topics=[unknown]), led_by(1)]))
    assert client.topics(["out"]) == {"out": TopicFacts("of out", 1)}
    starting, started = SimpleNamespace(brokers=[]), SimpleNamespace(brokers=[SimpleNamespace(node_id=1)])
    listed = SimpleNamespace(error_code=0, transaction_states=[])
    client, manager = scripted(in_turn(Metadata=[starting, started], ListTransactions=[listed]))
    assert client.list_transactions("p.") == []
    assert [name for name, _ in manager.asked] == ["Metadata", "Metadata", "ListTransactions"]


def test_an_id_is_fenced_also_where_the_brokers_take_no_timeout_of_a_minute() -> None:
    asked: list[int] = []

    def answer(request: Any, _node: int | None) -> Any:
        if "FindCoordinator" in type(request).__name__:
            return coordinated_by(1)
        asked.append(request.transaction_timeout_ms)
        return SimpleNamespace(error_code=0 if asked[-1] <= 1000 else 50, producer_id=7, producer_epoch=2)

    client, _ = scripted(answer)
    assert client.fence(PREPARED.transactional_id) == ProducerId(7, 2)
    assert asked == [60_000, 1000]


def test_positions_of_many_partitions_are_mirrored_in_parts() -> None:
    """A coordinator writes what one request has as one batch, and its topic takes 1 MiB."""
    sizes: list[int] = []

    def answer(request: Any, _node: int | None) -> Any:
        if "FindCoordinator" in type(request).__name__:
            return coordinated_by(1)
        sizes.append(sum(len(topic.partitions) for topic in request.topics))
        return SimpleNamespace(topics=[])

    client, _ = scripted(answer)
    positions = {TopicPartition(f"in{number % 3}", number): number for number in range(2001)}
    client.mirror_offsets("p", positions, "x" * 200)
    assert sum(sizes) == 2001
    assert max(sizes) <= 500


def test_only_partitions_with_an_offset_have_a_text() -> None:
    parts = [
        SimpleNamespace(partition_index=number, committed_offset=offset, metadata=text)
        for number, offset, text in ((0, 0, "ours"), (1, -1, ""), (2, 5, None))
    ]
    answer = SimpleNamespace(error_code=0, topics=[SimpleNamespace(name="in", partitions=parts)])
    client, manager = scripted(in_turn(FindCoordinator=[coordinated_by(1)], OffsetFetch=[answer]))
    assert client.mirrored_texts("p") == {TopicPartition("in", 0): "ours", TopicPartition("in", 2): ""}
    assert manager.sent[0].key_type == 0, "the coordinator of a group, not of a transaction"
