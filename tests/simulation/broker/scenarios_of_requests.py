"""Scenarios: requests of our own that are hurt on the way, and what leaders report next to transactions."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.broker.scenario import ENDED, FENCED, Value, markers, refused, scenario
from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import Stage
from tidegate.ids import ProducerId, TopicPartition
from tidegate.kafka.facts import Marker

HOUR_MS = 3_600_000
EARLY_MS, LATE_MS = 1_600_000_000_000, 1_700_000_000_000

# -- hurt requests -----------------------------------------------------------------------------------------------------


def _hurting(stage: Stage, name: str, outcome: Fate, call: Callable[[], Value]) -> Value:
    """What a call gives when a request of this name is hurt, which happens."""
    before = stage.hurt
    stage.hurt_requests(name, [outcome])
    try:
        found = call()
    finally:
        stage.hurt_requests(name, [])
    assert stage.hurt == before + 1, f"no request {name} was sent"
    return found


@scenario((ENDED, ENDED, {0: [1, 2]}))
def an_end_is_hurt_on_the_way(stage: Stage) -> Value:
    topic = stage.topic()
    answers = []
    for number, outcome in enumerate((Fate.LOSE_REQUEST, Fate.LOSE_ANSWER), 1):
        one = stage.prepared(f"a{number}", topic, [number])
        answers.append(_hurting(stage, "end", outcome, lambda one=one: stage.client.end_transaction(one)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    stage.settled(topic)
    return (*answers, stage.visible(topic))


@scenario(([ENDED, ENDED, ENDED], {0: [1, 2, 3]}))
def one_of_several_ends_is_hurt_on_the_way(stage: Stage) -> Value:
    topic = stage.topic()
    several = [stage.prepared(f"s{number}", topic, [number]) for number in (1, 2, 3)]
    for one in several:
        stage.client.describe(one.transactional_id)  # its coordinator is known: all are ended at once
    answers = _hurting(stage, "end", Fate.LOSE_ANSWER, lambda: stage.client.end_transactions(several))
    stage.settled(topic)
    return answers, stage.visible(topic)


@scenario((1, 3, FENCED))
def a_fence_whose_answer_is_lost_is_repeated(stage: Stage) -> Value:
    one = stage.prepared("a", stage.topic(), [1])
    stage.client.end_transaction(one)
    lost_request = _hurting(stage, "fence", Fate.LOSE_REQUEST, lambda: stage.client.fence(stage.tid("a")))
    lost_answer = _hurting(stage, "fence", Fate.LOSE_ANSWER, lambda: stage.client.fence(stage.tid("a")))
    return lost_request.epoch, lost_answer.epoch, stage.client.end_transaction(one)


@scenario(((0, 2), 3, 0, [Marker.COMMIT], 1, {"a"}))
def questions_are_hurt_on_the_way(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    one = stage.prepared("q.a", topic, [1, 2])
    owner = one.producer
    lost = Fate.LOSE_ANSWER
    progress = _hurting(stage, "producers", lost, lambda: stage.client.producer_state([part], owner)[part])
    stage.client.end_transaction(one)
    stage.settled(topic)
    stable = _hurting(stage, "ends", lost, lambda: stage.client.stable_offsets([part])[part])
    ended = _hurting(stage, "describe", lost, lambda: stage.client.describe(one.transactional_id))
    marker = _hurting(stage, "headers", lost, lambda: markers(stage, one))
    known = _hurting(stage, "topics", lost, lambda: stage.client.topics([topic, f"no-{topic}"]))
    listed = _hurting(stage, "list", lost, lambda: stage.client.list_transactions(stage.tid("q.")))
    names = {each.transactional_id.rsplit(".", 1)[1] for each in listed}
    assert ended is not None
    return (progress.start_offset, progress.records), stable, ended.producer.epoch, marker, len(known), names


@scenario((ENDED, 1))
def a_coordinator_is_looked_for_in_vain_first(stage: Stage) -> Value:
    """A new client does not know it."""
    one = stage.prepared("a", stage.topic(), [1])
    client = stage.another_client()
    try:
        answer = _hurting(stage, "coordinator", Fate.LOSE_ANSWER, lambda: client.end_transaction(one))
        return answer, client.interruptions
    finally:
        client.close()


# -- what leaders say-------------------------------------------------------------------------------------------------


@scenario((0, [0, 0, 1, 2], -1))
def offsets_at_a_time(stage: Stage) -> Value:
    """Of the first record that is not older: markers have the time of their writing. What is open is not seen."""
    topic = stage.topic()
    (part,) = stage.parts(topic)
    writer = stage.writer("a", topic)
    stage.write(writer, [1, 2], times_ms=[EARLY_MS, LATE_MS])
    stage.client.end_transaction(stage.committable(writer))
    stage.settled(topic)
    moments = (EARLY_MS - 1, EARLY_MS, EARLY_MS + 1, LATE_MS + 1)
    first = stage.client.first_offsets([part])[part]
    seen = [stage.client.offsets_at([part], moment)[part] for moment in moments]
    other = stage.writer("b", topic)
    future_ms = stage.clock.now_ms() + 600_000
    stage.write(other, [3], times_ms=[future_ms])
    return first, seen, stage.client.offsets_at([part], future_ms - 1)[part]


@scenario(((1_048_588, False, "producer"), (5000, True, "producer"), (None, False, "producer")))
def what_a_topic_takes(stage: Stage) -> Value:
    usual = stage.topic()
    small = stage.topic(settings={"max.message.bytes": "5000", "cleanup.policy": "compact"})
    limits = [stage.client.topic_limits(topic) for topic in (usual, small, f"no-{usual}")]
    return tuple((one.batch_bytes, one.compacted, one.codec) for one in limits)


@scenario(([-1001], [41], [42, 7], {}, {0: "ours", 1: "ours"}))
def positions_are_mirrored_to_a_group(stage: Stage) -> Value:
    topic, group = stage.topic(2), f"{stage.prefix}-group"
    parts = stage.parts(topic)
    found = [stage.group_offsets(group, parts[:1])]
    before = stage.client.mirrored_texts(group)
    stage.client.mirror_offsets(group, {parts[0]: 41})
    found.append(stage.group_offsets(group, parts[:1]))
    stage.client.mirror_offsets(group, {parts[0]: 42, parts[1]: 7}, "ours")
    found.append(stage.group_offsets(group, parts))
    texts = {part.partition: text for part, text in stage.client.mirrored_texts(group).items()}
    return (*found, before, texts)


@scenario(7 * 24 * HOUR_MS)
def how_long_ids_are_remembered(stage: Stage) -> Value:
    return stage.client.id_lifetime_ms()


@scenario((["broker-unavailable"] * 3, "no error"))
def a_topic_that_does_not_exist(stage: Stage) -> Value:
    topic = stage.topic()
    missing = [TopicPartition(f"no-{topic}", 0)]
    codes = [
        refused(lambda: stage.client.stable_offsets(missing, timeout_s=1.0)),
        refused(lambda: stage.client.open_transactions(missing, timeout_s=1.0)),
        refused(lambda: stage.client.producer_state(missing, ProducerId(1, 0), timeout_s=1.0)),
    ]
    return codes, refused(lambda: stage.client.stable_offsets(stage.parts(topic), timeout_s=10.0))


@scenario(([(0, 0, 0, -1)], [], [Marker.ABORT], ENDED, {0: [3]}, [(0, 1, 6, 0)]))
def a_marker_is_written_in_place_of_the_coordinator(stage: Stage) -> Value:
    """Here the coordinator has decided nothing yet: its own marker comes later, and changes nothing any more."""
    topic = stage.topic()
    (part,) = stage.parts(topic)

    def opened() -> list[tuple[int, int, int, int]]:
        """The coordinator's epoch is its log's, which other tests' restarts raise: 0 stands for any."""
        return [
            (each.partition.partition, each.producer.epoch, each.start_offset, min(0, each.coordinator_epoch))
            for each in stage.client.open_transactions([part])
        ]

    one = stage.prepared("a", topic, [1, 2])
    before = opened()
    (found,) = stage.client.open_transactions([part])
    stage.client.write_marker(found, found.producer.epoch, commit=False)
    after, marker = opened(), markers(stage, one)
    answer = stage.client.end_transaction(one)
    stage.until(lambda: stage.offsets(part)[2] == 4, "the coordinator's own marker is there")
    stage.client.end_transaction(stage.prepared("b", topic, [3]))
    stage.settled(topic)
    visible = stage.visible(topic)
    stage.prepared("a", topic, [4])
    return before, after, marker, answer, visible, opened()


@scenario("marker-overtaken")
def a_marker_of_an_older_epoch_is_refused(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, [1]))
    stage.settled(topic)
    stage.prepared("a", topic, [2])
    (found,) = stage.client.open_transactions(stage.parts(topic))
    return refused(lambda: stage.client.write_marker(found, found.producer.epoch - 1, commit=True))
