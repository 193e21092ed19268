"""Scenarios: how a transactional id lives - ends, new epochs, time-outs, what brokers say about it."""

from __future__ import annotations

import msgspec

from tests.simulation.broker.scenario import (
    ABORTED,
    COMMITTED,
    EMPTY,
    ENDED,
    FENCED,
    INVALID,
    ONGOING,
    UNKNOWN,
    Value,
    markers,
    refused,
    scenario,
    short,
    state,
    timed_out,
)
from tests.simulation.broker.stages import Stage
from tidegate.committable import Committable
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import EndAnswer, Marker
from tidegate.kafka.writer import TransactionWriter

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
        producer_id=writer.producer.id, producer_epoch=writer.producer.epoch, written=(), opened_at_ms=0, timeout_ms=0,
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
    epoch = stage.client.fence(stage.tid("a")).epoch
    stage.settled(topic)
    return epoch, stage.client.end_transaction(one), state(stage, "a"), markers(stage, one), stage.visible(topic)


@scenario((1, FENCED, (EMPTY, 1), [Marker.COMMIT], {0: [1]}))
def fence_behind_a_commit_looks_like_a_loss(stage: Stage) -> Value:
    topic = stage.topic()
    one = stage.prepared("a", topic, [1])
    stage.client.end_transaction(one)
    stage.settled(topic)
    epoch = stage.client.fence(stage.tid("a")).epoch
    return epoch, stage.client.end_transaction(one), state(stage, "a"), markers(stage, one), stage.visible(topic)


@scenario((0, [1, 2, 3]))
def idle_fences_raise_the_epoch_by_one(stage: Stage) -> Value:
    first = stage.client.fence(stage.tid("a"))
    more = [stage.client.fence(stage.tid("a")) for _ in range(3)]
    assert {one.id for one in more} == {first.id}
    return first.epoch, [one.epoch for one in more]


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
        stage.client.first_sequence(one.written[0].partition, one.written[0].start_offset, one.producer)
        for one in (first, second)
    ]
    epochs = (first.producer_epoch, second.producer_epoch)
    return epochs, sequences, stage.visible(topic), markers(stage, first), markers(stage, second)


# -- time-outs -------------------------------------------------------------------------------------------------------


def _prepare_two(stage: Stage, name: str, topic: str, timeout_ms: int) -> Committable:
    return stage.prepared(name, topic, [1, 2], timeout_ms)


def _write_one(stage: Stage, name: str, topic: str, timeout_ms: int) -> TransactionWriter:
    writer = stage.writer(name, topic, timeout_ms)
    stage.write(writer, [1])
    return writer


def _look_behind(stage: Stage, name: str, topic: str, timeout_ms: int) -> tuple[EndAnswer, dict[int, list[int]]]:
    """What is seen of a commit after an open transaction. Raises SinkFailed when that may have been over."""
    stage.prepared(name, topic, [1], timeout_ms)
    other = stage.prepared(f"after-{name}", topic, [2])
    answer = stage.client.end_transaction(other)
    stage.until(lambda: markers(stage, other) == [Marker.COMMIT], f"after-{name} committed")
    seen = stage.visible(topic)
    if state(stage, name) != (ONGOING, 0):
        raise SinkFailed(f"{name} was over")
    return answer, seen


@scenario(((ABORTED, 1), FENCED, FENCED, [Marker.ABORT], {}, (0, 3, 3), 2))
def a_transaction_times_out(stage: Stage) -> Value:
    name, topic, one = short(stage, _prepare_two)
    timed_out(stage, name)
    stage.settled(topic)
    answers = stage.client.end_transaction(one), stage.client.end_transaction(one, commit=False)
    (part,) = stage.parts(topic)
    found = (state(stage, name), *answers, markers(stage, one), stage.visible(topic), stage.offsets(part))
    return (*found, stage.client.fence(stage.tid(name)).epoch)


@scenario(("sink-failed", {0: [1]}))
def a_producer_that_timed_out_adds_nothing(stage: Stage) -> Value:
    name, topic, writer = short(stage, _write_one)
    timed_out(stage, name)
    stage.settled(topic)
    code = refused(lambda: stage.write(writer, [2]))
    return code, stage.visible(topic, committed=False)


@scenario(("sink-failed", (ABORTED, 1)))
def a_transaction_that_timed_out_is_not_prepared(stage: Stage) -> Value:
    name, _, writer = short(stage, _write_one)
    timed_out(stage, name)
    return refused(lambda: stage.committable(writer)), state(stage, name)


@scenario((ENDED, {}, {0: [2]}))
def a_time_out_frees_the_others(stage: Stage) -> Value:
    name, topic, (answer, before) = short(stage, _look_behind)
    timed_out(stage, name)
    stage.settled(topic)
    return answer, before, stage.visible(topic)


@scenario("sink-refused")
def a_timeout_above_the_brokers_maximum_is_refused(stage: Stage) -> Value:
    return refused(lambda: stage.writer("a", stage.topic(), 900_001))


# -- what is said----------------------------------------------------------------------------------------------------


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
        found = stage.client.producer_state([part], one.producer).get(part)
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
