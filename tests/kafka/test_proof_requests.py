"""Round trips of the proof of a transaction and of the commits of a checkpoint, at a broker that counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from kafka import errors

from tests.kafka.test_connection import SleptClock
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
from tidegate.kafka.channel import RequestChannel
from tidegate.kafka.facts import EndAnswer, PreparedView
from tidegate.kafka.transactions import TransactionClient
from tidegate.simulation.model_broker.answers import answer_bytes
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.model_broker.placement import NODES

PARTITIONS = 200
ID = TransactionalId("p.out.0.1-j.0")
OTHER = TransactionalId("p.out.1.1-j.0")


class CountingChannel(RequestChannel):
    """A channel to the model that notes what is sent together. `trouble` fails the next request of a kind."""

    def __init__(self, broker: ModelBroker) -> None:
        self.broker = broker
        self.trips: list[list[str]] = []
        self.trouble: set[str] = set()

    def send(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
        assert 0 < timeout_s <= 30
        names = [type(request).__name__.removesuffix("Request") for request, _ in requests]
        self.trips.append(names)
        return [self._answer(*each) for each in zip(names, requests, strict=True)]

    def _answer(self, name: str, asked: tuple[Any, int | None]) -> Any:
        if name in self.trouble:
            self.trouble.discard(name)
            return errors.KafkaConnectionError("the connection broke")
        request, node = asked
        return answer_bytes(self.broker, 0, NODES[0] if node is None else node, request)

    def learn(self, coordinator: Any, kind: Any) -> None: ...

    def look_again(self) -> None: ...

    def close(self) -> None: ...


class Stage:
    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.broker = ModelBroker()
        self.broker.create_topic("out", partitions)
        self.channel = CountingChannel(self.broker)
        kafka = {"bootstrap.servers": "a:1"}
        self.client = TransactionClient(kafka, 1.0, lambda _kafka, _timeout_s: self.channel, SleptClock())
        self.parts = [TopicPartition("out", number) for number in range(partitions)]

    def begin(self, transactional_id: TransactionalId = ID) -> ProducerId:
        """Initialise an id; its coordinator is known afterwards, as after the opening of a producer."""
        owner = ProducerId(*self.broker.init_producer(0, transactional_id, 60_000))
        self.client.describe(transactional_id)
        return owner

    def write(self, owner: ProducerId, parts: Sequence[TopicPartition], first: int = 0, of: str = ID) -> None:
        self.broker.add_partitions(0, TransactionalId(of), owner.id, owner.epoch, parts)
        for part in parts:
            stamp = Stamp(owner.id, owner.epoch, first, transactional=True)
            self.broker.produce(0, part, [Record(b"k", b"v", 0)] * 3, stamp, TransactionalId(of))

    def view(self, owner: ProducerId, expected: Sequence[TopicPartition]) -> PreparedView:
        self.client.leaders(["out"])
        self.channel.trips.clear()
        return self.client.prepared_view(ID, owner, expected)


def test_a_transaction_in_expected_partitions_is_read_in_one_round_trip() -> None:
    stage = Stage()
    owner = stage.begin()
    stage.write(owner, stage.parts)
    at_once, first = stage.view(owner, stage.parts), list(stage.channel.trips)
    in_steps, second = stage.view(owner, ()), list(stage.channel.trips)
    assert at_once == in_steps
    assert sum(one.records for one in at_once.progress.values()) == 3 * PARTITIONS
    assert len(first) == 1
    assert "DescribeTransactions" in first[0]
    assert len(second) == 2


def test_partitions_that_were_not_expected_are_read_afterwards_and_others_left_out() -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts[2:6])
    view = stage.view(owner, stage.parts[:4])
    assert len(stage.channel.trips) == 2
    assert view.progress.keys() == view.end_offsets.keys() == set(stage.parts[2:6])
    assert view == stage.view(owner, ())


@pytest.mark.parametrize("kind", ["DescribeTransactions", "DescribeProducers", "ListOffsets"])
def test_a_request_that_fails_costs_another_round_trip_and_no_record(kind: str) -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts)
    whole = stage.view(owner, ())
    stage.channel.trouble = {kind}
    assert stage.view(owner, stage.parts) == whole
    assert not stage.channel.trouble


@pytest.mark.parametrize("moved", ["leader", "coordinator"])
def test_what_has_moved_is_looked_up_again(moved: str) -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts)
    whole = stage.view(owner, ())
    if moved == "leader":
        stage.broker.leader_away(0, stage.parts[3], 0)
    else:
        stage.broker.coordinator_away(0, 0)
    stage.channel.trips.clear()
    assert stage.client.prepared_view(ID, owner, stage.parts) == whole
    assert len(stage.channel.trips) > 1


def test_a_transaction_of_another_producer_is_seen_at_once_too() -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts)
    thief = stage.client.fence(ID)
    view = stage.view(owner, stage.parts)
    assert view.description is not None
    assert view.description.producer == thief
    assert not view.progress


def test_first_sequences_of_200_partitions_take_one_request_for_each_leader() -> None:
    stage = Stage()
    owner = stage.begin()
    stage.write(owner, stage.parts)
    stage.client.leaders(["out"])
    stage.channel.trips.clear()
    firsts = stage.client.first_sequences(dict.fromkeys(stage.parts, 0), owner)
    assert firsts == dict.fromkeys(stage.parts, 0)
    assert stage.channel.trips == [["Fetch"] * len(NODES)]


def test_a_first_batch_that_is_missing_is_seen_among_many() -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts[:7])
    stage.write(owner, stage.parts[7:], first=5)
    firsts = stage.client.first_sequences(dict.fromkeys(stage.parts, 0), owner)
    assert firsts == {**dict.fromkeys(stage.parts, 0), stage.parts[7]: 5}


def test_partitions_that_an_answer_lacks_are_asked_for_one_by_one() -> None:
    stage = Stage(8)
    owner = stage.begin()
    stage.write(owner, stage.parts[:6])
    stage.channel.trouble = {"Fetch"}
    firsts = stage.client.first_sequences(dict.fromkeys(stage.parts, 0), owner)
    assert firsts == {**dict.fromkeys(stage.parts[:6], 0), stage.parts[6]: None, stage.parts[7]: None}
    stage.broker.delete_records(0, stage.parts[0], 3)
    assert stage.client.first_sequences({stage.parts[0]: 0, stage.parts[1]: 0}, owner) == {
        stage.parts[0]: None,
        stage.parts[1]: 0,
    }


def test_commits_of_a_checkpoint_look_their_coordinators_up_together() -> None:
    stage = Stage(8)
    committables = []
    for transactional_id in (ID, OTHER):
        owner = ProducerId(*stage.broker.init_producer(0, transactional_id, 60_000))
        stage.write(owner, stage.parts[:2], of=transactional_id)
        committables.append(
            Committable(
                sink=OperatorName("out"),
                subtask=SlotIndex(0),
                attempt=Attempt(1),
                checkpoint=CheckpointId(1),
                transactional_id=transactional_id,
                producer_id=owner.id,
                producer_epoch=owner.epoch,
                written=(),
                opened_at_ms=0,
                timeout_ms=60_000,
            )
        )
    assert stage.client.end_transactions(committables) == [EndAnswer.ENDED] * 2
    assert stage.channel.trips == [["FindCoordinator"], ["EndTxn", "EndTxn"]]
    stage.channel.trips.clear()
    assert stage.client.end_transactions(committables) == [EndAnswer.ENDED] * 2
    assert stage.channel.trips == [["EndTxn", "EndTxn"]]


def test_a_coordinator_that_was_not_found_with_others_is_looked_up_alone() -> None:
    stage = Stage(8)
    owner = stage.begin(ID)
    stage.write(owner, stage.parts[:2])
    lost = {"FindCoordinator"}
    fresh = TransactionClient({"bootstrap.servers": "a:1"}, 1.0, lambda _kafka, _timeout_s: stage.channel, SleptClock())
    stage.channel.trouble = lost
    fresh._broker.find_coordinators([ID, OTHER], 5.0)
    assert fresh.known_coordinator(ID) is None
    assert fresh.describe(ID) is not None
