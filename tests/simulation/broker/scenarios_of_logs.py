"""Scenarios: several producers in a log, deleted records, hurt requests, a broker that dies."""

from __future__ import annotations

from tests.simulation.broker.scenario import (
    ENDED,
    FENCED,
    INVALID,
    LONG_MS,
    ONGOING,
    Value,
    markers,
    ranges,
    scenario,
    state,
)
from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import SMALL_BATCHES, Stage
from tidegate.committable import Committable, WrittenRange
from tidegate.errors import TidegateError
from tidegate.ids import TransactionalId
from tidegate.kafka.facts import LoggedRange, Marker
from tidegate.sinks.proof import Flushed, decide_first_sequences

# -- several producers -----------------------------------------------------------------------------------------------


def _interleaved(stage: Stage, topic: str) -> tuple[Committable, Committable]:
    """a: 1 2, b: 3, a: 4, b: 5 6."""
    a, b = stage.writer("a", topic), stage.writer("b", topic)
    for writer, numbers in ((a, [1, 2]), (b, [3]), (a, [4]), (b, [5, 6])):
        stage.write(writer, numbers)
    return stage.committable(a), stage.committable(b)


@scenario((
    [[LoggedRange(0, 2, 2), LoggedRange(3, 4, 1)]], [[LoggedRange(2, 3, 1), LoggedRange(4, 6, 2)]],
    {}, {0: [1, 2, 3, 4, 5, 6]},
))  # fmt: skip
def two_producers_in_one_partition(stage: Stage) -> Value:
    topic = stage.topic()
    a, b = _interleaved(stage, topic)
    stage.client.end_transaction(b)
    stage.until(lambda: markers(stage, b) == [Marker.COMMIT], "b committed")
    held_back = stage.visible(topic)
    stage.client.end_transaction(a)
    stage.settled(topic)
    return ranges(stage, a), ranges(stage, b), held_back, stage.visible(topic)


@scenario(({0: [3, 5, 6]}, [[LoggedRange(0, 2, 2), LoggedRange(3, 4, 1)]], [Marker.ABORT], [Marker.COMMIT]))
def one_of_two_interleaved_is_aborted(stage: Stage) -> Value:
    topic = stage.topic()
    a, b = _interleaved(stage, topic)
    stage.client.end_transaction(b)
    stage.client.end_transaction(a, commit=False)
    stage.settled(topic)
    return stage.visible(topic), ranges(stage, a), markers(stage, a), markers(stage, b)


@scenario(({0: [1, 2]}, (0, 3, 5), {0: [1, 2, 4]}))
def a_later_transaction_holds_back_what_is_behind_its_first_record(stage: Stage) -> Value:
    topic = stage.topic()
    first = stage.prepared("a", topic, [1, 2])
    later = stage.prepared("b", topic, [3])
    (part,) = stage.parts(topic)
    stage.client.end_transaction(first)
    stage.until(lambda: stage.offsets(part)[1] > 0, "a is stable")
    behind = stage.prepared("c", topic, [4])
    stage.client.end_transaction(behind)
    stage.until(lambda: markers(stage, behind) == [Marker.COMMIT], "c committed")
    seen, (start, stable, _) = stage.visible(topic), stage.offsets(part)
    stage.client.fence(later.transactional_id)
    stage.settled(topic)
    return seen, (start, stable + 1, 5), stage.visible(topic)


@scenario(({0: [1, 9, 2]}, [[LoggedRange(0, 1, 1), LoggedRange(2, 3, 1)]]))
def a_plain_producer_between(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.write(writer, [1])
    plain = stage.make_writer(topic, plain_properties())
    plain.open(None, lambda: False)
    stage.write(plain, [9])
    plain.discard()
    stage.write(writer, [2])
    one = stage.committable(writer)
    stage.client.end_transaction(one)
    stage.settled(topic)
    return stage.visible(topic), ranges(stage, one)


def plain_properties() -> dict[str, str]:
    """Of a producer without a transaction."""
    from tidegate.kafka.properties import derive_producer_properties

    return derive_producer_properties({}, None, 60_000)


# -- the log ---------------------------------------------------------------------------------------------------------


@scenario((0, [[0, 1], [3, 4]], [(0, 3, 3), (0, 6, 6)]))
def offsets_count_markers(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    start = stage.offsets(part)[1]
    bounds = []
    for numbers in ([1, 2], [3, 4]):
        stage.client.end_transaction(stage.prepared("a", topic, numbers))
        stage.settled(topic)
        bounds.append(stage.offsets(part))
    offsets = [message.offset() for message in stage.messages(topic)]
    return start, [offsets[:2], offsets[2:]], bounds


@scenario(([Marker.GONE], [[]], (3, 3, 3), {}))
def deleted_records_are_gone(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    one = stage.prepared("a", topic, [1, 2])
    stage.client.end_transaction(one)
    stage.settled(topic)
    stage.delete_records(part, 3)
    return markers(stage, one), ranges(stage, one), stage.offsets(part), stage.visible(topic)


@scenario(([Marker.COMMIT], [[LoggedRange(1, 3, 2)]], [LoggedRange(1, 3, 2)], (1, 4, 4), {0: [2, 3]}))
def a_transaction_of_which_a_part_was_deleted(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    writer = stage.writer("a", topic)
    for number in (1, 2, 3):
        stage.write(writer, [number])
    one = stage.committable(writer)
    stage.client.end_transaction(one)
    stage.settled(topic)
    stage.delete_records(part, 1)
    rest = stage.client.data_ranges(WrittenRange(part, 1, 3, 2), one.producer)
    return markers(stage, one), ranges(stage, one), rest, stage.offsets(part), stage.visible(topic)


@scenario(([Marker.GONE], [[]], ENDED))
def a_deleted_topic(stage: Stage) -> Value:
    topic, other = stage.topic(), stage.topic()
    one = stage.prepared("a", topic, [1])
    stage.delete_topic(topic)
    assert stage.client.topics([topic, other]).keys() == {other}
    found = markers(stage, one), ranges(stage, one)
    return (*found, stage.client.end_transaction(one))


@scenario((False, 1, {}))
def a_topic_made_anew_has_another_id(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, [1]))
    stage.settled(topic)
    old = stage.client.topics([topic])[topic]
    stage.delete_topic(topic)
    stage.make_topic(topic, 1)
    new = stage.client.topics([topic])[topic]
    return old.topic_id == new.topic_id, new.partitions, stage.visible(topic)


@scenario(({0: [1, 2], 1: []}, [(b"0", 1_600_000_000_000, [("h", b"x"), ("n", None)])], [[LoggedRange(3, 5, 2)]]))
def messages_are_written_again(stage: Stage) -> Value:
    topic = stage.topic(1)
    first = stage.prepared("a", topic, [1, 2])
    stage.client.fence(stage.tid("a"))
    stage.settled(topic)
    writer = stage.writer("b", topic)
    for message in stage.messages(topic, committed=False):
        writer.repeat(message)
    second = stage.committable(writer)
    stage.client.end_transaction(second)
    stage.settled(topic)
    assert ranges(stage, first) == [[LoggedRange(0, 2, 2)]]
    return _with_headers(stage, topic), _told(stage), ranges(stage, second)


def _with_headers(stage: Stage, topic: str) -> dict[int, list[int]]:
    return {0: stage.visible(topic)[0], 1: stage.visible(topic).get(1, [])}


def _told(stage: Stage) -> list[tuple[object, object, object]]:
    """Key, timestamp and headers of a message that was read and written again."""
    import confluent_kafka as ck

    topic = stage.topic()
    writer = stage.writer("h", topic)
    writer.repeat(
        ck.Message(
            topic=topic, partition=0, offset=7, key=b"0", value=b"5", headers=[("h", b"x"), ("n", None)], error=None,
            timestamp=(ck.TIMESTAMP_CREATE_TIME, 1_600_000_000_000),
        )
    )  # fmt: skip
    stage.client.end_transaction(stage.committable(writer))
    stage.settled(topic)
    return [(found.key(), found.timestamp()[1], found.headers()) for found in stage.messages(topic)]


# -- requests that are hurt ------------------------------------------------------------------------------------------


def _hurt(stage: Stage, fates: list[Fate], before: bool = False) -> Value:
    """Many small batches of a new producer, some requests hurt: all there and in order, or refused by the proof.

    Which of the two depends on what is in flight; never both wrong.
    """
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka=SMALL_BATCHES)
    numbers = list(range(200))
    if before:
        stage.write(writer, [1000])
        numbers = [1000, *numbers]
    hurt = stage.hurt
    stage.hurt_requests("produce", fates)
    try:
        stage.write(writer, list(range(200)), size=1000)
        one = stage.committable(writer)
        owner = one.producer
        first = stage.client.first_sequence(one.written[0].partition, one.written[0].start_offset, owner)
        decide_first_sequences(_flushed(one), {one.written[0].partition: first})
        stage.client.end_transaction(one)
        stage.settled(topic)
        exact = stage.visible(topic) == {0: numbers}
    except TidegateError as error:
        exact = error.code == "sink-failed"
    finally:
        stage.hurt_requests("produce", [])
    return exact, stage.hurt > hurt


def _flushed(one: Committable) -> Flushed:
    return Flushed(
        one.sink, one.subtask, one.attempt, one.checkpoint, TransactionalId(one.transactional_id), one.producer,
        one.records, 0, 0, "", False,
    )  # fmt: skip


@scenario((True, True))
def the_first_request_is_refused(stage: Stage) -> Value:
    return _hurt(stage, [Fate.REFUSE])


@scenario((True, True))
def a_later_request_is_refused(stage: Stage) -> Value:
    return _hurt(stage, [Fate.ARRIVE, Fate.REFUSE, Fate.REFUSE])


@scenario((True, True))
def a_request_is_lost(stage: Stage) -> Value:
    return _hurt(stage, [Fate.LOSE_REQUEST], before=True)


@scenario((True, True))
def an_answer_is_lost(stage: Stage) -> Value:
    return _hurt(stage, [Fate.ARRIVE, Fate.LOSE_ANSWER], before=True)


# -- a broker that dies ----------------------------------------------------------------------------------------------


@scenario(((ONGOING, 0), [(0, 2)], [ENDED, ENDED, FENCED, INVALID], {0: [1, 2, 3, 4]}, 2))
def a_broker_dies_and_remembers(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    prepared = stage.prepared("a", topic, [1, 2], LONG_MS)
    committed = stage.prepared("b", topic, [3, 4], LONG_MS)
    fenced = stage.prepared("c", topic, [5], LONG_MS)
    stage.client.fence(stage.tid("c"))
    aborted = stage.prepared("d", topic, [6], LONG_MS)
    stage.client.end_transaction(aborted, commit=False)
    stage.client.end_transaction(committed)
    # Kafka 4.3.1 may forget markers that are missing when it dies: while it reads its metadata again, a topic that was
    # made a moment before looks deleted, the marker is skipped, and the transaction holds readers for ever.
    for name in "bcd":
        state(stage, name)
    stage.restart()
    progress = stage.client.producer_state([part], prepared.producer)[part]
    before = state(stage, "a"), [(progress.start_offset, progress.records)]
    answers = [stage.client.end_transaction(one) for one in (prepared, committed, fenced, aborted)]
    stage.settled(topic)
    return (*before, answers, stage.visible(topic), stage.client.describe(stage.tid("c")).producer.epoch)  # type: ignore[union-attr]  # it was described before
