"""What the model does where the real broker is too slow or too lucky to show it: faults at single requests, expiry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

import confluent_kafka as ck
import pytest

from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import SMALL_BATCHES, ModelStage
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, SinkFailed
from tidegate.kafka.facts import TRANSACTION_LOG, CoordinatorState, EndAnswer, Leader, Marker
from tidegate.kafka.requests import end_request, offsets_request
from tidegate.kafka.writer import CALL_TIMEOUT_S, OPEN_TIMEOUT_S
from tidegate.simulation.model_broker.answers import answer
from tidegate.simulation.model_broker.broker import ID_EXPIRY_MS
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.coordinator import EPOCH_MAX
from tidegate.simulation.model_broker.log import PartitionLog, Record, Stamp
from tidegate.simulation.model_broker.producer import ModelProducer

ALL_FATES = [Fate.REFUSE, Fate.LOSE_REQUEST, Fate.LOSE_ANSWER]


@pytest.fixture
def stage() -> Iterator[ModelStage]:
    made = ModelStage("m")
    yield made
    made.close()


def played(test: Callable[..., None]) -> Callable[..., None]:
    """On the virtual thread of its stage."""

    @wraps(test)
    def play(stage: ModelStage, **values: object) -> None:
        stage.play(lambda: test(stage, **values))

    return play


@pytest.mark.parametrize("outcome", ALL_FATES, ids=lambda outcome: outcome.value)
@pytest.mark.parametrize("place", range(4))
@played
def test_a_hurt_request_of_a_known_producer_is_repaired(stage: ModelStage, outcome: Fate, place: int) -> None:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.write(writer, [0])
    stage.hurt_requests("produce", [Fate.ARRIVE] * place + [outcome])
    stage.write(writer, range(1, 100))
    assert stage.hurt == 1
    assert stage.visible(topic, committed=False) == {0: list(range(100))}


@played
def test_a_refused_first_request_leaves_a_hole_that_only_the_first_sequence_shows(stage: ModelStage) -> None:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.hurt_requests("produce", [Fate.REFUSE])
    stage.write(writer, range(100))
    one = stage.committable(writer)
    assert one.records == 100  # the count is right, and nobody has reported an error
    assert len(stage.visible(topic, committed=False)[0]) < 100
    assert stage.client.first_sequence(one.written[0].partition, 0, one.producer) != 0


@played
def test_one_request_in_flight_leaves_no_hole(stage: ModelStage) -> None:
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka={**SMALL_BATCHES, "max.in.flight": "1"})
    stage.hurt_requests("produce", [Fate.REFUSE])
    stage.write(writer, range(100))
    assert stage.visible(topic, committed=False) == {0: list(range(100))}


@played
def test_records_that_cannot_be_delivered_in_time_fail(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    writer = stage.writer("a", topic, kafka={"message.timeout.ms": "1000"})
    stage.broker.leader_away(stage.clock.now_ms(), part, stage.clock.now_ms() + 5000)
    with pytest.raises(SinkFailed, match="_MSG_TIMED_OUT"):
        stage.write(writer, [1, 2])
    assert writer.delivery_errors == 2


@played
def test_a_leader_that_moves_loses_nothing(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    writer = stage.writer("a", topic)
    stage.broker.leader_away(stage.clock.now_ms(), part, stage.clock.now_ms() + 5000)
    stage.write(writer, [1, 2])
    assert stage.visible(topic, committed=False) == {0: [1, 2]}


@pytest.mark.parametrize("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS])
@played
def test_a_coordinator_that_moves_is_waited_for(stage: ModelStage, code: Code) -> None:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    stage.broker.coordinator_away(stage.clock.now_ms(), stage.clock.now_ms() + 5000, code)
    assert stage.client.end_transaction(one) is EndAnswer.ENDED
    assert stage.clock.monotonic() >= 5


@played
def test_a_producer_that_waits_for_its_id_in_vain_is_replaced_by_another(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = stage.topic()
    stuck: list[ModelProducer] = []
    initialise = ModelProducer.init_transactions

    def initialise_second(producer: ModelProducer, timeout: float = -1) -> None:
        if not stuck:
            stuck.append(producer)
        if producer is stuck[0]:
            stage.clock.sleep(timeout)
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "waited", False, True))
        initialise(producer, timeout)

    monkeypatch.setattr(ModelProducer, "init_transactions", initialise_second)
    began = stage.clock.monotonic()
    writer = stage.writer("a", topic)
    assert stuck, "a planned fault did not happen"
    assert OPEN_TIMEOUT_S / 2 < stage.clock.monotonic() - began < OPEN_TIMEOUT_S / 2 + 2 * CALL_TIMEOUT_S
    stage.write(writer, [1])
    assert stage.visible(topic, committed=False) == {0: [1]}


@played
def test_an_id_that_cannot_be_initialised_is_reported_with_what_its_coordinator_knows(stage: ModelStage) -> None:
    topic = stage.topic()
    stage.prepared("a", topic, [1])
    until = int(OPEN_TIMEOUT_S + CALL_TIMEOUT_S / 2) * 1000
    stage.broker.coordinator_away(stage.clock.now_ms(), stage.clock.now_ms() + until, Code.NOT_COORDINATOR)
    with pytest.raises(SinkFailed, match=r"_TIMED_OUT.* was not initialised; its coordinator reports: Empty"):
        stage.writer("a", topic)


@played
def test_a_coordinator_that_stays_away_gives_no_answer(stage: ModelStage) -> None:
    one = stage.prepared("a", stage.topic(), [1])
    stage.broker.coordinator_away(stage.clock.now_ms(), stage.clock.now_ms() + 50_000)
    assert stage.client.end_transaction(one, timeout_s=10) is EndAnswer.NO_ANSWER
    with pytest.raises(BrokerUnavailable, match="CoordinatorLoadInProgress"):
        stage.client.describe(stage.tid("a"), timeout_s=5)


@played
def test_a_coordinator_that_has_moved_is_found_although_metadata_lag(stage: ModelStage) -> None:
    stage.broker.placement.lag_ms = 700
    several = [stage.prepared(name, stage.topic(), [1]) for name in "abc"]
    stage.broker.coordinator_away(stage.clock.now_ms(), stage.clock.now_ms() + 100)
    before_s, before = stage.clock.monotonic(), stage.client.interruptions
    assert stage.client.end_transactions(several) == [EndAnswer.ENDED] * 3
    assert stage.clock.monotonic() - before_s >= 0.7
    assert stage.client.interruptions > before


@played
def test_a_leader_that_has_moved_is_found_although_metadata_lag(stage: ModelStage) -> None:
    stage.broker.placement.lag_ms = 300
    (part,) = stage.parts(stage.topic())
    assert stage.client.stable_offsets([part]) == {part: 0}
    stage.broker.leader_away(stage.clock.now_ms(), part, stage.clock.now_ms() + 1000)
    before_s = stage.clock.monotonic()
    assert stage.client.stable_offsets([part]) == {part: 0}
    assert stage.clock.monotonic() - before_s >= 1.3


@played
def test_an_end_that_would_raise_the_epoch_is_not_taken(stage: ModelStage) -> None:
    request = end_request(stage.prepared("a", stage.topic(), [1]), commit=True)
    request._max_version = None
    with pytest.raises(ValueError, match="EndTxn of version 5 raises the epoch"):
        answer(stage.broker, stage.clock.now_ms(), 1, request)


@played
def test_a_lost_answer_to_a_commit_is_asked_again(stage: ModelStage) -> None:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    stage.hurt_requests("end", [Fate.LOSE_ANSWER])
    assert stage.client.end_transaction(one) is EndAnswer.ENDED
    assert stage.hurt == 1
    assert stage.visible(topic) == {0: [1]}


@played
def test_a_commit_is_asked_again_while_its_markers_are_written(stage: ModelStage) -> None:
    stage.broker.marker_delay_ms = 200
    topic = stage.topic(3)
    one = stage.prepared("a", topic, range(20))
    assert stage.client.end_transaction(one) is EndAnswer.ENDED
    owner = one.producer
    stage.clock.sleep(0.25)
    found = [stage.client.outcome(part, owner) for part in one.written]
    assert found == [Marker.COMMIT, Marker.OPEN, Marker.OPEN]
    assert stage.client.end_transaction(one) is EndAnswer.ENDED
    assert stage.clock.monotonic() >= 0.6


@played
def test_an_epoch_that_is_used_up_gives_a_new_producer_id(stage: ModelStage) -> None:
    topic = stage.topic()
    now_ms = stage.clock.now_ms()
    epochs = [stage.broker.init_producer(now_ms, stage.tid("a"), 60_000)[1] for _ in range(EPOCH_MAX)]
    assert epochs == list(range(EPOCH_MAX))
    last = stage.prepared("a", topic, [1])
    assert last.producer.epoch == EPOCH_MAX
    again = stage.client.fence(stage.tid("a"))
    assert again.id != last.producer.id
    assert again.epoch == 0
    assert stage.client.end_transaction(last) is EndAnswer.UNKNOWN_PRODUCER
    assert stage.visible(topic) == {}


@played
def test_an_idle_id_expires(stage: ModelStage) -> None:
    one = stage.prepared("a", stage.topic(), [1])
    stage.client.end_transaction(one)
    stage.clock.sleep(ID_EXPIRY_MS / 1000 + 1)
    assert stage.client.describe(stage.tid("a")) is None
    assert stage.client.end_transaction(one) is EndAnswer.UNKNOWN_PRODUCER


@played
def test_an_end_that_a_step_of_the_clock_brings_is_as_young_as_the_step(stage: ModelStage) -> None:
    topic, broker = stage.topic(), stage.broker
    now_ms = stage.clock.now_ms()
    owner = broker.init_producer(now_ms, TransactionalId("a"), 1000)
    broker.add_partitions(now_ms, TransactionalId("a"), *owner, [TopicPartition(topic, 0)])
    broker.step_clock(now_ms, 2 * ID_EXPIRY_MS)
    assert broker.describe(now_ms, TransactionalId("a")).state is CoordinatorState.COMPLETE_ABORT


@played
def test_a_marker_is_lost_when_its_time_has_come_and_not_when_somebody_looks(stage: ModelStage) -> None:
    topic, broker = stage.topic(), stage.broker
    now_ms, place = stage.clock.now_ms(), TopicPartition(topic, 0)
    owner = broker.init_producer(now_ms, TransactionalId("a"), 1000)
    broker.add_partitions(now_ms, TransactionalId("a"), *owner, [place])
    broker.leader_away(now_ms, place, now_ms + 2000)
    assert broker.count_lost_markers(now_ms + 999) == 0
    assert broker.count_lost_markers(now_ms + 3000) == 1


@played
def test_group_offsets_are_kept(stage: ModelStage) -> None:
    part = TopicPartition("in", 0)
    stage.client.mirror_offsets("group", {part: 7}, "ours")
    assert stage.broker.group_offsets("group") == {part: (7, "ours")}
    assert stage.client.mirrored_texts("group") == {part: "ours"}
    assert stage.broker.group_offsets("other") == {}


# -- sequences and epochs at one leader --------------------------------------------------------------------------------


def _append(log: PartitionLog, epoch: int, sequence: int, records: int = 1) -> Code:
    try:
        log.append(Stamp(7, epoch, sequence, True), [Record(None, b"x", 0)] * records)
    except RequestRefused as refused:
        return refused.code
    return Code.NONE


def test_sequences_have_no_gap() -> None:
    log = PartitionLog()
    assert _append(log, 0, 0, 3) is Code.NONE
    assert _append(log, 0, 4) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _append(log, 0, 0, 3) is Code.DUPLICATE_SEQUENCE_NUMBER
    assert _append(log, 0, 3) is Code.NONE
    assert log.end_offset == 4


def test_a_duplicate_is_only_known_among_the_last_five() -> None:
    log = PartitionLog()
    for sequence in range(6):
        _append(log, 0, sequence)
    assert _append(log, 0, 1) is Code.DUPLICATE_SEQUENCE_NUMBER
    assert _append(log, 0, 0) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    log = PartitionLog()
    _append(log, 0, 0)
    assert _append(log, 1, 1) is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _append(log, 1, 0) is Code.NONE
    assert _append(log, 0, 1) is Code.INVALID_PRODUCER_EPOCH


def test_a_marker_with_a_newer_epoch_shuts_the_older_one_out() -> None:
    log = PartitionLog()
    _append(log, 0, 0)
    log.append_marker(7, 1, commits=False)
    assert log.stable_offset == 2
    assert _append(log, 0, 1) is Code.INVALID_PRODUCER_EPOCH


# -- who leads ---------------------------------------------------------------------------------------------------------


@played
def test_X08_whoever_was_away_leads_in_a_new_epoch(stage: ModelStage) -> None:
    topic = stage.topic()
    part, log = TopicPartition(topic, 0), TopicPartition(TRANSACTION_LOG, 0)
    before = stage.client.leaders([topic])
    assert {part, log} <= before.keys()
    stage.broker.leader_away(stage.clock.now_ms(), part, stage.clock.now_ms() + 1000)
    assert stage.client.leaders([topic])[part] == Leader(-1, before[part].epoch + 1)
    stage.clock.sleep(2)
    stage.broker.coordinator_away(stage.clock.now_ms(), stage.clock.now_ms())
    after = stage.client.leaders([topic])
    assert after[part].node not in (-1, before[part].node)
    assert after[part].epoch > before[part].epoch
    assert after[log].epoch == before[log].epoch + 1


@played
def test_X08_only_a_leader_of_the_epoch_that_is_asked_for_tells_offsets(stage: ModelStage) -> None:
    topic = stage.topic()
    part = TopicPartition(topic, 0)
    stage.broker.leader_away(stage.clock.now_ms(), part, stage.clock.now_ms())
    now_ms = stage.clock.now_ms()
    (leader,) = (node for one, node in stage.client.leaders([topic]).items() if one == part)
    for epoch, code in ((0, 74), (leader.epoch, 0), (leader.epoch + 1, 75)):
        request = offsets_request([part], committed=False, epochs={part: epoch})
        found = answer(stage.broker, now_ms, leader.node, request)
        assert found.topics[0].partitions[0].error_code == code
