"""What the model does where the real broker is too slow or too lucky to show it: faults at single requests, expiry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

import pytest

from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import SMALL_BATCHES, ModelStage
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.plan.graph import SourceOperator
from tidegate.simulation.model_broker.answers import answer
from tidegate.simulation.model_broker.broker import ID_EXPIRY_MS
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.coordinator import EPOCH_MAX
from tidegate.simulation.model_broker.log import PartitionLog, Record, Stamp
from tidegate.simulation.model_broker.reader import ModelReader
from tidegate.sinks.errors import BrokerUnavailable, SinkFailed
from tidegate.sinks.facts import EndAnswer, Marker
from tidegate.sinks.requests import end_request
from tidegate.sources.errors import SourceFailed
from tidegate.task.elements import ROWS_MAX

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


@pytest.mark.parametrize("fate", ALL_FATES, ids=lambda fate: fate.value)
@pytest.mark.parametrize("place", range(4))
@played
def test_a_hurt_request_of_a_known_producer_is_repaired(stage: ModelStage, fate: Fate, place: int) -> None:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.write(writer, [0])
    stage.hurt_requests("produce", [Fate.ARRIVE] * place + [fate])
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
    assert one.records == 100  # the count is right, and nobody has told an error
    assert len(stage.visible(topic, committed=False)[0]) < 100
    assert stage.client.first_sequence(one.written[0].partition, 0, one.producer_id, one.producer_epoch) != 0


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
    owner = (one.producer_id, one.producer_epoch)
    stage.clock.sleep(0.25)
    found = [stage.client.outcome(part, *owner) for part in one.written]
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
    assert last.producer_epoch == EPOCH_MAX
    again = stage.client.fence(stage.tid("a"))
    assert again[0] != last.producer_id
    assert again[1] == 0
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


# -- the reader --------------------------------------------------------------------------------------------------------


def _reader(stage: ModelStage, topic: str, next_offsets: dict[TopicPartition, int], until: str) -> ModelReader:
    operator = SourceOperator(OperatorName("in"), (topic,), "raw", (), (), "earliest", until, "fail", {})
    ends = (
        {part: stage.broker.offsets(stage.clock.now_ms(), part).stable for part in next_offsets}
        if until == "latest"
        else {}
    )
    positions = SourcePositions(operator.name, tuple(sorted(next_offsets.items())), tuple(sorted(ends.items())))
    reader = ModelReader(stage.broker, stage.port, operator, stage.parts(topic), positions, lambda: None)
    reader.start()
    return reader


def _drain(stage: ModelStage, reader: ModelReader) -> tuple[list[int], dict[TopicPartition, int]]:
    numbers: list[int] = []
    ends: dict[TopicPartition, int] = {}
    for _ in range(20):
        stage.clock.sleep(0.1)
        pending = reader.take(ROWS_MAX)
        if pending is not None:
            numbers += [int(message.value() or b"") for message in pending.messages]
            ends.update(pending.ends)
    return numbers, ends


@played
def test_a_reader_sees_what_is_committed_and_where_it_ends(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    stage.client.end_transaction(stage.prepared("a", topic, range(100)))
    stage.client.end_transaction(stage.prepared("b", topic, [777]), commit=False)
    stage.prepared("c", topic, [888])
    reader = _reader(stage, topic, {}, "never")
    assert _drain(stage, reader) == (list(range(100)), {part: 103})
    stage.client.fence(stage.tid("c"))
    stage.client.end_transaction(stage.prepared("d", topic, [5]))
    assert _drain(stage, reader) == ([5], {part: 107})


@played
def test_a_reader_goes_on_where_it_was(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    stage.client.end_transaction(stage.prepared("a", topic, range(100)))
    assert _drain(stage, _reader(stage, topic, {part: 90}, "never"))[0] == list(range(90, 100))


@played
def test_a_bounded_reader_knows_its_end(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    stage.client.end_transaction(stage.prepared("a", topic, range(10)))
    reader = _reader(stage, topic, {part: 0}, "latest")
    _drain(stage, reader)
    positions = reader.initial()
    assert positions is not None
    assert positions.end_offsets == {part: 11}


@played
def test_a_reader_stops_at_records_that_are_gone(stage: ModelStage) -> None:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    stage.client.end_transaction(stage.prepared("a", topic, range(10)))
    stage.delete_records(part, 5)
    reader = _reader(stage, topic, {part: 3}, "never")
    with pytest.raises(SourceFailed, match="offset 3 is gone"):
        _drain(stage, reader)
