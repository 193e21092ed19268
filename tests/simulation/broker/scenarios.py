"""What clients meet at a broker, told once: each scenario gives a value, the same at the model and at Kafka.

Producer ids are left out of the values (they differ), epochs are in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from tests.simulation.broker.scripted_link import Fate
from tests.simulation.broker.stages import SMALL_BATCHES, Stage
from tidegate.coordinator.types import Committable, WrittenRange
from tidegate.errors import TidegateError
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.sinks.facts import CoordinatorState, EndAnswer, LoggedRange, Marker
from tidegate.sinks.proof import Flushed, decide_first_sequences

Value = Any
SHORT_MS: Final = 1000
"""A transaction timeout that a scenario waits for."""

SCENARIOS: dict[str, tuple[Callable[[Stage], Value], Value]] = {}
ENDED, FENCED, INVALID, UNKNOWN = (
    EndAnswer.ENDED,
    EndAnswer.FENCED,
    EndAnswer.INVALID_STATE,
    EndAnswer.UNKNOWN_PRODUCER,
)
COMMITTED, ABORTED, EMPTY, ONGOING = (
    CoordinatorState.COMPLETE_COMMIT,
    CoordinatorState.COMPLETE_ABORT,
    CoordinatorState.EMPTY,
    CoordinatorState.ONGOING,
)


def scenario(expected: Value) -> Callable[[Callable[[Stage], Value]], Callable[[Stage], Value]]:
    """Register a scenario with the value that both brokers must give."""

    def register(run: Callable[[Stage], Value]) -> Callable[[Stage], Value]:
        SCENARIOS[run.__name__] = (run, expected)
        return run

    return register


def state(stage: Stage, name: str) -> tuple[CoordinatorState, int] | None:
    """State and epoch of an id, once it is no longer being ended."""
    final = (COMMITTED, ABORTED, EMPTY, ONGOING)

    def settled() -> bool:
        described = stage.client.describe(stage.tid(name))
        return described is None or described.state in final

    stage.until(settled, f"{name} settled")
    described = stage.client.describe(stage.tid(name))
    return None if described is None else (described.state, described.producer_epoch)


def markers(stage: Stage, committable: Committable) -> list[Marker]:
    """How it ended in each of its partitions."""
    owner = (committable.producer_id, committable.producer_epoch)
    return [stage.client.outcome(part, *owner) for part in committable.written]


def ranges(stage: Stage, committable: Committable) -> list[list[LoggedRange]]:
    """Where its records lie in each of its partitions."""
    owner = (committable.producer_id, committable.producer_epoch)
    return [stage.client.data_ranges(part, *owner) for part in committable.written]


def timed_out(stage: Stage, name: str) -> None:
    """Wait until the broker has aborted an open transaction."""
    stage.until(lambda: state(stage, name) != (ONGOING, 0), f"{name} timed out")


def refused(call: Callable[[], object]) -> str:
    """The code of the error that a call raises."""
    try:
        call()
    except TidegateError as error:
        return error.code
    return "no error"


# -- ends ------------------------------------------------------------------------------------------------------------


@scenario(((0, 0, 3), {}, {0: [1, 2, 3]}, ENDED, {0: [1, 2, 3]}, (0, 4, 4), (COMMITTED, 0)))
def commit_makes_records_visible(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1, 2, 3])
    (part,) = stage.parts(topic)
    before = (stage.offsets(part), stage.visible(topic), stage.visible(topic, committed=False))
    answer = stage.client.end_transaction(one)
    stage.settled(topic)
    return (*before, answer, stage.visible(topic), stage.offsets(part), state(stage, "a"))


@scenario((ENDED, {}, {0: [1, 2]}, (ABORTED, 0), [Marker.ABORT]))
def abort_hides_records(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1, 2])
    answer = stage.client.end_transaction(one, commit=False)
    stage.settled(topic)
    return answer, stage.visible(topic), stage.visible(topic, committed=False), state(stage, "a"), markers(stage, one)


@scenario(([Marker.OPEN], [ENDED, ENDED, ENDED], [Marker.COMMIT], {0: [1]}))
def commit_is_idempotent(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    before = markers(stage, one)
    answers = [stage.client.end_transaction(one) for _ in range(3)]
    stage.settled(topic)
    return before, answers, markers(stage, one), stage.visible(topic)


@scenario((ENDED, INVALID, (COMMITTED, 0)))
def abort_after_commit(stage: Stage) -> Value:
    one = stage.prepared("a", stage.topic(), [1])
    return stage.client.end_transaction(one), stage.client.end_transaction(one, commit=False), state(stage, "a")


@scenario((ENDED, INVALID, ENDED, (ABORTED, 0)))
def commit_after_abort(stage: Stage) -> Value:
    one = stage.prepared("a", stage.topic(), [1])
    answers = [stage.client.end_transaction(one, commit=commit) for commit in (False, True, False)]
    return (*answers, state(stage, "a"))


@scenario(([FENCED, FENCED, UNKNOWN, UNKNOWN], (ONGOING, 0), ENDED))
def wrong_owners_end_nothing(stage: Stage) -> Value:
    one = msgspec.structs.replace(stage.prepared("a", stage.topic(), [1]))
    wrong = [
        msgspec.structs.replace(one, producer_epoch=1),
        msgspec.structs.replace(one, producer_epoch=-1),
        msgspec.structs.replace(one, producer_id=one.producer_id + 1),
        msgspec.structs.replace(one, transactional_id=stage.tid("never-used")),
    ]
    answers = [stage.client.end_transaction(other) for other in wrong]
    return answers, state(stage, "a"), stage.client.end_transaction(one)


@scenario((INVALID, (EMPTY, 0), 0, True))
def empty_transaction_has_no_end(stage: Stage) -> Value:
    writer = stage.writer("a", stage.topic())
    empty = Committable(
        sink="out", subtask=0, attempt=1, checkpoint=1, transactional_id=writer.transactional_id,  # type: ignore[arg-type]  # plain names are enough here
        producer_id=writer.producer_id, producer_epoch=writer.producer_epoch, written=(), opened_at_ms=0, timeout_ms=0,
    )  # fmt: skip
    answer = stage.client.end_transaction(empty)
    described = stage.client.describe(writer.transactional_id)
    assert described is not None
    return answer, state(stage, "a"), len(described.partitions), described.opened_at_ms == -1


@scenario(([ENDED, ENDED], {0: [1, 2, 3, 4]}))
def several_at_once(stage: Stage) -> Value:
    topic = stage.topic()
    both = [stage.prepared(name, topic, numbers) for name, numbers in (("a", [1, 2]), ("b", [3, 4]))]
    answers = stage.client.end_transactions(both)
    stage.settled(topic)
    return answers, stage.visible(topic)


# -- initialised again -----------------------------------------------------------------------------------------------


@scenario((2, FENCED, (EMPTY, 2), [Marker.ABORT], {}))
def fence_aborts_what_is_open(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    _, epoch = stage.client.fence(stage.tid("a"))
    stage.settled(topic)
    return epoch, stage.client.end_transaction(one), state(stage, "a"), markers(stage, one), stage.visible(topic)


@scenario((1, FENCED, (EMPTY, 1), [Marker.COMMIT], {0: [1]}))
def fence_behind_a_commit_looks_like_a_loss(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    stage.client.end_transaction(one)
    stage.settled(topic)
    _, epoch = stage.client.fence(stage.tid("a"))
    return epoch, stage.client.end_transaction(one), state(stage, "a"), markers(stage, one), stage.visible(topic)


@scenario((0, [1, 2, 3]))
def idle_fences_raise_the_epoch_by_one(stage: Stage) -> Value:
    first = stage.client.fence(stage.tid("a"))
    more = [stage.client.fence(stage.tid("a")) for _ in range(3)]
    assert {producer_id for producer_id, _ in more} == {first[0]}
    return first[1], [epoch for _, epoch in more]


@scenario(("sink-failed", {}, 0))
def a_fenced_producer_writes_nothing(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.client.fence(stage.tid("a"))
    code = refused(lambda: stage.write(writer, [1, 2]))
    (part,) = stage.parts(topic)
    return code, stage.visible(topic, committed=False), stage.offsets(part)[2]


@scenario(("sink-failed", {0: [1]}, {}))
def a_producer_that_is_fenced_in_the_middle_adds_nothing(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.write(writer, [1])
    stage.client.fence(stage.tid("a"))
    stage.settled(topic)
    code = refused(lambda: stage.write(writer, [2]))
    return code, stage.visible(topic, committed=False), stage.visible(topic)


@scenario(("sink-failed", {0: [1]}))
def a_producer_whose_transaction_was_ended_outside_adds_nothing(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic)
    stage.write(writer, [1])
    stage.client.end_transaction(stage.committable(writer))
    stage.settled(topic)
    code = refused(lambda: stage.write(writer, [2]))
    return code, stage.visible(topic, committed=False)


@scenario(((0, 1), [0, 0], {0: [1, 2, 3]}, [Marker.COMMIT], [Marker.COMMIT]))
def an_id_is_used_again(stage: Stage) -> Value:
    topic = stage.topic()
    first = stage.prepared("a", topic, [1, 2])
    stage.client.end_transaction(first)
    second = stage.prepared("a", topic, [3])
    stage.client.end_transaction(second)
    stage.settled(topic)
    sequences = [
        stage.client.first_sequence(
            one.written[0].partition, one.written[0].start_offset, one.producer_id, one.producer_epoch
        )
        for one in (first, second)
    ]
    epochs = (first.producer_epoch, second.producer_epoch)
    return epochs, sequences, stage.visible(topic), markers(stage, first), markers(stage, second)


# -- time-outs -------------------------------------------------------------------------------------------------------


@scenario(((ABORTED, 1), FENCED, FENCED, [Marker.ABORT], {}, (0, 3, 3), 2))
def a_transaction_times_out(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1, 2], timeout_ms=SHORT_MS)
    timed_out(stage, "a")
    stage.settled(topic)
    answers = stage.client.end_transaction(one), stage.client.end_transaction(one, commit=False)
    (part,) = stage.parts(topic)
    found = (state(stage, "a"), *answers, markers(stage, one), stage.visible(topic), stage.offsets(part))
    return (*found, stage.client.fence(stage.tid("a"))[1])


@scenario(("sink-failed", {0: [1]}))
def a_producer_that_timed_out_adds_nothing(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic, SHORT_MS)
    stage.write(writer, [1])
    timed_out(stage, "a")
    stage.settled(topic)
    code = refused(lambda: stage.write(writer, [2]))
    return code, stage.visible(topic, committed=False)


@scenario(("sink-failed", (ABORTED, 1)))
def a_transaction_that_timed_out_is_not_prepared(stage: Stage) -> Value:
    writer = stage.writer("a", stage.topic(), SHORT_MS)
    stage.write(writer, [1])
    timed_out(stage, "a")
    return refused(lambda: stage.committable(writer)), state(stage, "a")


@scenario((ENDED, {0: [1]}, {0: [2]}))
def a_time_out_frees_the_others(stage: Stage) -> Value:
    topic = stage.topic()
    stage.prepared("a", topic, [1], timeout_ms=SHORT_MS)
    other = stage.prepared("b", topic, [2])
    answer = stage.client.end_transaction(other)
    before = {0: [1]} if stage.visible(topic) == {} else stage.visible(topic)
    timed_out(stage, "a")
    stage.settled(topic)
    return answer, before, stage.visible(topic)


@scenario("sink-refused")
def a_timeout_above_the_brokers_maximum_is_refused(stage: Stage) -> Value:
    return refused(lambda: stage.writer("a", stage.topic(), 900_001))


# -- what is told ----------------------------------------------------------------------------------------------------


@scenario((None, [], UNKNOWN))
def an_unknown_id(stage: Stage) -> Value:
    topic = stage.topic()
    one = msgspec.structs.replace(stage.prepared("a", topic, [1]), transactional_id=stage.tid("unknown"))
    listed = stage.client.list_transactions(stage.tid("unknown"))
    return stage.client.describe(stage.tid("unknown")), listed, stage.client.end_transaction(one)


@scenario((ONGOING, 60_000, [0, 1, 2], True, [0, 1, 2], 40))
def an_open_transaction_is_described(stage: Stage) -> Value:
    topic = stage.topic(3)
    before_ms = stage.clock.now_ms()
    one = stage.prepared("a", topic, range(40))
    described = stage.client.describe(stage.tid("a"))
    assert described is not None
    told = sorted(part.partition for part in described.partitions)
    recent = before_ms <= described.opened_at_ms <= stage.clock.now_ms()
    written = [part.partition.partition for part in one.written]
    return described.state, described.timeout_ms, told, recent, written, one.records


@scenario({"a": ONGOING, "b": COMMITTED, "c": ABORTED, "d": EMPTY})
def listed_states(stage: Stage) -> Value:
    topic = stage.topic()
    stage.prepared("l.a", topic, [1])
    stage.client.end_transaction(stage.prepared("l.b", topic, [2]))
    stage.client.end_transaction(stage.prepared("l.c", topic, [3]), commit=False)
    stage.writer("l.d", topic)
    for name in "bc":
        state(stage, f"l.{name}")
    return {
        listed.transactional_id.rsplit(".", 1)[1]: listed.state
        for listed in stage.client.list_transactions(stage.tid("l."))
    }


@scenario(([(0, 3)], [(-1, 3)], [(-1, 3), None], [(4, 2)]))
def producers_are_counted(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)

    def progress(one: Committable) -> tuple[int, int] | None:
        found = stage.client.producer_state([part], one.producer_id, one.producer_epoch).get(part)
        return None if found is None else (found.start_offset, found.records)

    first = stage.prepared("a", topic, [1, 2, 3])
    opened = [progress(first)]
    stage.client.end_transaction(first)
    stage.settled(topic)
    ended = [progress(first)]
    second = stage.prepared("b", topic, [4, 5])
    open_again = [progress(second)]
    stage.client.fence(stage.tid("b"))
    stage.settled(topic)
    return opened, ended, [progress(first), progress(second)], open_again


@scenario({b"alpha": 1, b"beta": 1, b"": 2, b"a-longer-key-of-28-characters": 1, b"key7": 2, b"\x00\xff": 4})
def keys_find_their_partitions(stage: Stage) -> Value:
    topic = stage.topic(7)
    writer = stage.writer("a", topic)
    keys = [b"alpha", b"beta", b"", b"a-longer-key-of-28-characters", b"key7", b"\x00\xff"]
    for number, key in enumerate(keys):
        stage.write(writer, [number], key)
    found = stage.visible(topic, committed=False)
    where = {number: partition for partition, numbers in found.items() for number in numbers}
    return {key: where[number] for number, key in enumerate(keys)}


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
    from tidegate.sinks.producer_properties import derive_producer_properties

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


@scenario(([Marker.GONE], [[]], [LoggedRange(1, 3, 2)], (1, 4, 4), {0: [2, 3]}))
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
    rest = stage.client.data_ranges(WrittenRange(part, 1, 3, 2), one.producer_id, one.producer_epoch)
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
    stage.hurt_produce(fates)
    try:
        stage.write(writer, list(range(200)), size=1000)
        one = stage.committable(writer)
        owner = (one.producer_id, one.producer_epoch)
        first = stage.client.first_sequence(one.written[0].partition, one.written[0].start_offset, *owner)
        decide_first_sequences(_flushed(one), {one.written[0].partition: first})
        stage.client.end_transaction(one)
        stage.settled(topic)
        exact = stage.visible(topic) == {0: numbers}
    except TidegateError as error:
        exact = error.code == "sink-failed"
    finally:
        stage.hurt_produce([])
    return exact, stage.hurt > hurt


def _flushed(one: Committable) -> Flushed:
    return Flushed(
        one.sink, one.subtask, one.attempt, one.checkpoint, TransactionalId(one.transactional_id), one.producer_id,
        one.producer_epoch, one.records, 0, 0, "", False,
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
    prepared = stage.prepared("a", topic, [1, 2])
    committed = stage.prepared("b", topic, [3, 4])
    fenced = stage.prepared("c", topic, [5])
    stage.client.fence(stage.tid("c"))
    aborted = stage.prepared("d", topic, [6])
    stage.client.end_transaction(aborted, commit=False)
    stage.client.end_transaction(committed)
    # Kafka 4.3.1 may forget markers that are missing when it dies: while it reads its metadata again, a topic that was
    # made a moment before looks deleted, the marker is skipped, and the transaction holds readers for ever.
    for name in "bcd":
        state(stage, name)
    stage.restart()
    progress = stage.client.producer_state([part], prepared.producer_id, prepared.producer_epoch)[part]
    before = state(stage, "a"), [(progress.start_offset, progress.records)]
    answers = [stage.client.end_transaction(one) for one in (prepared, committed, fenced, aborted)]
    stage.settled(topic)
    return (*before, answers, stage.visible(topic), stage.client.describe(stage.tid("c")).producer_epoch)  # type: ignore[union-attr]  # it was described before


def partition(topic: str, index: int = 0) -> TopicPartition:
    """Short for tests."""
    return TopicPartition(topic, index)
