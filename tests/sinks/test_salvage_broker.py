"""Lost transactions between records of others, read back and written again: nothing changed but their offsets."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import confluent_kafka as ck
import msgspec
import pytest
from confluent_kafka import admin

from tests.conftest import BrokerMaker
from tests.depth import DEPTH
from tests.sinks.driving import Cluster, assert_order_per_key, permit, rows
from tests.support import clients
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import TransactionLost, TransactionUndecidable
from tidegate.kafka.facts import CoordinatorState, Marker
from tidegate.kafka.topic_settings import UNLIMITED_MS
from tidegate.sinks.committer import Committer
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.proof import Flushed, decide_committable
from tidegate.sinks.salvage import SALVAGE_SLOT, LostTransaction, SalvageOrder
from tidegate.sinks.salvager import Salvager

pytestmark = pytest.mark.slow

PARTITIONS = 3
LARGE = 50_000 * DEPTH
OUT = OperatorName("out")


class Record(msgspec.Struct, frozen=True):
    """All that a record has."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def make_records(count: int, size: int, seed: int) -> list[Record]:
    """With nulls and empty ones of everything, timestamps that go back, and bytes that do not compress."""
    print(f"seed {seed}")
    made = random.Random(seed)
    return [
        Record(
            partition=made.randrange(PARTITIONS),
            key=made.choice([None, b"", b"key-%d" % (number % 5)]),
            value=made.choice([None, b"", b"%d" % number, b"%d " % number + made.randbytes(size), b"x" * size]),
            timestamp_ms=1_600_000_000_000 + made.randrange(1_000_000),
            headers=made.choice([(), (("a", b"1"), ("b", None), ("a", b"\xff\x00"))]),
        )
        for number in range(count)
    ]


def send(producer: ck.Producer, topic: str, records: Sequence[Record]) -> None:
    for one in records:
        producer.produce(
            topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms, headers=list(one.headers)
        )
    assert producer.flush(60) == 0


def producer_of(cluster: Cluster, identity: str | None, settings: Mapping[str, str] | None = None) -> ck.Producer:
    config = {"bootstrap.servers": cluster.bootstrap, "linger.ms": "5", **(settings or {})}
    if identity is None:
        return clients.producer(config)
    producer = clients.producer({**config, "transactional.id": identity, "transaction.timeout.ms": "60000"})
    producer.list_topics(timeout=60)
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def prepared(cluster: Cluster, identity: TransactionalId, produced: int, checkpoint: int = 4) -> Committable:
    """The committable of a transaction that a raw producer wrote and flushed."""
    found = cluster.client.describe(identity)
    assert found is not None
    owner = found.producer
    flushed = Flushed(
        OUT, SlotIndex(0), Attempt(1), CheckpointId(checkpoint), identity, owner, produced, 0, 0, "", refused=False
    )
    return decide_committable(flushed, cluster.client.prepared_view(identity, owner))


def identity_of(cluster: Cluster, attempt: int = 1, slot: int = 0) -> TransactionalId:
    return TransactionalName(cluster.pipeline, OUT, SlotIndex(0), Attempt(attempt), "j", slot).transactional_id


def lose(cluster: Cluster, one: Committable) -> None:
    """Abort it as a newer producer of the id does."""
    cluster.client.fence(one.transactional_id)
    wait_until(
        lambda: all(cluster.client.outcome(part, one.producer) is Marker.ABORT for part in one.written),
        "the abort markers",
    )


def salvager(cluster: Cluster, ones: Sequence[Committable], attempt: int = 2, checkpoint: int = 9) -> Salvager:
    settled = Committer(cluster.client).settle(permit(ones), hold=False)
    assert settled.outcomes == (CommitOutcome.LOST,) * len(ones)
    return make_salvager(cluster, settled.lost, attempt, checkpoint)


def make_salvager(
    cluster: Cluster,
    lost: tuple[LostTransaction, ...],
    attempt: int = 2,
    checkpoint: int = 9,
    *,
    accept_gone: CheckpointId | None = None,
) -> Salvager:
    order = SalvageOrder(
        cluster.pipeline, "j", Attempt(attempt), CheckpointId(checkpoint), CheckpointId(4), 60_000, lost
    )
    kafka = {"bootstrap.servers": cluster.bootstrap}
    return Salvager(cluster.client, kafka, {OUT: kafka}, order, accept_gone=accept_gone)


def committed(cluster: Cluster, topic: str) -> dict[int, list[Record]]:
    """What a read-committed reader finds, with everything, by partition."""
    ends = cluster.client.stable_offsets([TopicPartition(topic, index) for index in range(PARTITIONS)])
    consumer = clients.consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 20,
        }
    )
    found: dict[int, list[Record]] = defaultdict(list)
    waiting = {part.partition for part, end in ends.items() if end}
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in waiting])
    deadline = time.monotonic() + 60
    try:
        while waiting:
            assert time.monotonic() < deadline, f"partitions {waiting} were not read to their ends"
            for message in consumer.consume(1000, 0.1):
                partition = message.partition()
                assert partition is not None
                error = message.error()
                if error is not None:
                    assert error.code() == ck.KafkaError._PARTITION_EOF, error
                    waiting.discard(partition)
                    continue
                headers = tuple(cast("list[tuple[str, bytes | None]]", message.headers() or []))
                stamp = message.timestamp()[1]
                found[partition].append(Record(partition, message.key(), message.value(), stamp, headers))
    finally:
        consumer.close()
    return found


def settled(cluster: Cluster, topic: str, one: Committable) -> None:
    wait_until(
        lambda: all(cluster.client.outcome(part, one.producer) is Marker.COMMIT for part in one.written),
        f"{topic} settled",
    )


def by_partition(records: Sequence[Record]) -> dict[int, list[Record]]:
    return {index: [one for one in records if one.partition == index] for index in range(PARTITIONS)}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_between_those_of_others_come_back_unchanged_in_order(cluster: Cluster, codec: str) -> None:
    """Plain, committed and aborted records of others lie between the lost ones; only the lost ones are repeated."""
    topic = cluster.topic(PARTITIONS)
    ours = make_records(1500, 1500, seed=7)
    others = make_records(300, 20, seed=8)
    losing = producer_of(cluster, identity_of(cluster), {"compression.type": codec})
    plain = producer_of(cluster, None)
    good = producer_of(cluster, f"{cluster.pipeline}-good")
    bad = producer_of(cluster, f"{cluster.pipeline}-bad")
    for turn in range(10):
        send(losing, topic, ours[150 * turn : 150 * (turn + 1)])
        mixed = others[30 * turn : 30 * (turn + 1)]
        send(plain, topic, mixed[:10])
        send(good, topic, mixed[10:20])
        send(bad, topic, mixed[20:])
    good.commit_transaction(60)
    bad.abort_transaction(60)
    one = prepared(cluster, identity_of(cluster), len(ours))
    lose(cluster, one)
    parts = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    wait_until(lambda: not cluster.client.open_transactions(parts), "all markers are written")
    before = committed(cluster, topic)
    assert sum(map(len, before.values())) == 200

    (salvaged,) = salvager(cluster, [one]).prepare()
    assert (salvaged.records, salvaged.checkpoint) == (1500, 9)
    assert salvaged.transactional_id == identity_of(cluster, 2, SALVAGE_SLOT)
    assert committed(cluster, topic) == before, "something was committed without a permit"
    assert Committer(cluster.client).commit(permit([salvaged], 9)) == [CommitOutcome.ENDED_NOW]
    settled(cluster, topic, salvaged)
    after, wanted = committed(cluster, topic), by_partition(ours)
    assert after == {index: before[index] + wanted[index] for index in range(PARTITIONS)}


def test_transactions_of_several_checkpoints_and_subtasks_keep_their_order(cluster_tv2: Cluster) -> None:
    cluster = cluster_tv2
    topic = cluster.topic()
    one, two = cluster.sink(topic), cluster.sink(topic, subtask=1)
    ones: list[Committable] = []
    for checkpoint in (4, 5):
        base = 1000 * checkpoint
        one.write(rows(range(base, base + 200), keys=7))
        two.write(rows(range(base + 500, base + 700), keys=7))
        ones += one.prepared(checkpoint).committables
        ones += two.prepared(checkpoint).committables
    for lost in ones:
        lose(cluster, lost)
    (salvaged,) = salvager(cluster, list(reversed(ones))).prepare()
    assert Committer(cluster.client).commit(permit([salvaged])) == [CommitOutcome.ENDED_NOW]
    visible = cluster.visible(topic)
    assert sorted(number for part in visible.values() for number in part) == sorted(
        number for base in (4000, 4500, 5000, 5500) for number in range(base, base + 200)
    )
    for numbers in visible.values():
        for subtask in (0, 1):
            own = [number for number in numbers if (number % 1000 >= 500) == bool(subtask)]
            assert own == sorted(own)


def test_a_newer_transaction_that_is_still_open_is_aborted_and_follows_the_lost_one(cluster_tv2: Cluster) -> None:
    cluster = cluster_tv2
    topic = cluster.topic()
    driven = cluster.sink(topic)
    ones: list[Committable] = []
    for checkpoint in (4, 5):
        driven.write(rows(range(200 * checkpoint, 200 * checkpoint + 200), keys=7))
        ones += driven.prepared(checkpoint).committables
    lose(cluster, ones[0])
    committer = Committer(cluster.client)
    held = committer.settle(permit(ones))
    assert held.outcomes == (CommitOutcome.LOST, CommitOutcome.STILL_OPEN)
    make_salvager(cluster, held.losing).check()
    assert cluster.values(topic, settled=False) == []
    committer.abort_held(held)
    lost = committer.settle(permit(ones), hold=False).lost
    (salvaged,) = make_salvager(cluster, lost).prepare()
    assert committer.commit(permit([salvaged])) == [CommitOutcome.ENDED_NOW]
    visible = cluster.visible(topic)
    assert sorted(number for part in visible.values() for number in part) == list(range(800, 1200))
    assert_order_per_key(visible)


def test_a_transaction_that_timed_out_is_salvaged_and_when_lost_again_once_more(cluster_tv2: Cluster) -> None:
    cluster = cluster_tv2
    topic, one, _ = cluster.prepare_short(500, 4)

    def aborted() -> bool:
        found = cluster.client.describe(one.transactional_id)
        return found is not None and found.state is CoordinatorState.COMPLETE_ABORT

    wait_until(aborted, "the broker has timed the transaction out")
    (first,) = salvager(cluster, [one], attempt=one.attempt + 1, checkpoint=9).prepare()
    lose(cluster, first)
    (second,) = salvager(cluster, [first], attempt=one.attempt + 2, checkpoint=12).prepare()
    assert Committer(cluster.client).commit(permit([second])) == [CommitOutcome.ENDED_NOW]
    assert cluster.values(topic) == list(range(500))


def test_a_salvage_that_nobody_decided_is_fenced_and_done_again(cluster_tv2: Cluster) -> None:
    cluster = cluster_tv2
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(300)))
    (one,) = driven.prepared(4).committables
    lose(cluster, one)
    (undecided,) = salvager(cluster, [one], attempt=2).prepare()
    (again,) = salvager(cluster, [one], attempt=3).prepare()
    committer = Committer(cluster.client)
    assert committer.commit(permit([again])) == [CommitOutcome.ENDED_NOW]
    assert committer.fence_leftovers(cluster.pipeline, [], Attempt(3), "j") == [undecided.transactional_id]
    assert cluster.values(topic) == list(range(300))


def test_deleted_records_are_missed_and_what_is_left_is_written_where_somebody_accepts_that(
    cluster_tv2: Cluster,
) -> None:
    """The log is cut within a batch. Retention leaves the end of a transaction, too."""
    cluster = cluster_tv2
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(300)))
    (one,) = driven.prepared(4).committables
    lose(cluster, one)
    found = Committer(cluster.client).settle(permit([one]))
    part = one.written[-1]
    below = ck.TopicPartition(topic, part.partition.partition, part.start_offset + 1)
    clients.delete_records(cluster.bootstrap, [below])
    left = part.records - 1
    with pytest.raises(TransactionLost, match=rf"has {left} of its {part.records} records; retention, compaction"):
        make_salvager(cluster, found.lost).prepare()
    assert cluster.client.describe(identity_of(cluster, 2, SALVAGE_SLOT)) is None
    (salvaged,) = make_salvager(cluster, found.lost, accept_gone=CheckpointId(4)).prepare()
    wanted = {one.partition: one.records for one in one.written} | {part.partition: left}
    assert {one.partition: one.records for one in salvaged.written} == wanted
    assert Committer(cluster.client).commit(permit([salvaged])) == [CommitOutcome.ENDED_NOW]


def allow_age(cluster: Cluster, topic: str, before_ms: int, *, of_2020: bool) -> None:
    """Returns when the topic takes records of 2020, or does not any more."""
    change: Any = admin
    entry = change.ConfigEntry(
        "message.timestamp.before.max.ms", str(before_ms), incremental_operation=change.AlterConfigOpType.SET
    )
    wanted = change.ConfigResource(change.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    client = clients.admin({"bootstrap.servers": cluster.bootstrap})
    for future in client.incremental_alter_configs([wanted]).values():
        future.result(60)
    plain = producer_of(cluster, None)
    answers: list[bool] = []

    def is_so() -> bool:
        callback = lambda error, _message: answers.append(error is None)  # noqa: E731  # for one call
        plain.produce(topic, b"of 2020", partition=0, timestamp=1_600_000_000_000, on_delivery=callback)
        assert plain.flush(60) == 0
        return answers[-1] == of_2020

    wait_until(is_so, "the topic's leader has the limit", 60)


def test_records_that_have_become_too_old_for_their_topic_are_written_once_it_lets_them_in(
    cluster_tv2: Cluster,
) -> None:
    cluster = cluster_tv2
    topic = cluster.topic(PARTITIONS)
    ours = make_records(200, 20, seed=9)
    send(producer_of(cluster, identity_of(cluster)), topic, ours)
    one = prepared(cluster, identity_of(cluster), len(ours))
    lose(cluster, one)
    found = Committer(cluster.client).settle(permit([one]))
    allow_age(cluster, topic, 3_600_000, of_2020=False)
    with pytest.raises(TransactionLost, match=r"accepts no record older than 1h .*set it back to 3600000"):
        make_salvager(cluster, found.lost).prepare()
    allow_age(cluster, topic, UNLIMITED_MS, of_2020=True)
    before = committed(cluster, topic)
    (salvaged,) = make_salvager(cluster, found.lost).prepare()
    assert Committer(cluster.client).commit(permit([salvaged])) == [CommitOutcome.ENDED_NOW]
    settled(cluster, topic, salvaged)
    after, wanted = committed(cluster, topic), by_partition(ours)
    assert after == {index: before.get(index, []) + wanted[index] for index in range(PARTITIONS)}


def test_a_transaction_of_many_requests_is_written_again_in_order(cluster_tv2: Cluster) -> None:
    cluster = cluster_tv2
    topic = cluster.topic()
    driven = cluster.sink(topic)
    for first in range(0, LARGE, 10_000):
        driven.write(rows(range(first, first + 10_000), keys=997))
    (one,) = driven.prepared(4).committables
    lose(cluster, one)
    (salvaged,) = salvager(cluster, [one]).prepare()
    assert salvaged.records == LARGE
    assert Committer(cluster.client).commit(permit([salvaged])) == [CommitOutcome.ENDED_NOW]
    visible = cluster.visible(topic)
    assert sorted(number for part in visible.values() for number in part) == list(range(LARGE))
    assert_order_per_key(visible, 997)


def test_records_that_compaction_removed_are_missed_and_nothing_is_written(
    own_broker: BrokerMaker, unique_name: Callable[[str], str]
) -> None:
    """The cleaner of a compacted topic drops aborted records, whatever their keys."""
    cleaner = {"enable": "true", "backoff.ms": "100", "dedupe.buffer.size": f"{4 << 20}"}
    broker = own_broker(properties={f"log.cleaner.{name}": value for name, value in cleaner.items()})
    cluster = Cluster(broker.bootstrap, unique_name)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "100"}
    try:
        topic = cluster.topic(1, compacted)
        driven = cluster.sink(topic, key="k")
        driven.write(rows(range(300)))
        (one,) = driven.prepared(4).committables
        lose(cluster, one)
        found = Committer(cluster.client).settle(permit([one]))
        newer = producer_of(cluster, None)

        def cleaned() -> bool:
            # A younger record makes a new segment, so that the one before it can be cleaned.
            newer.produce(topic, b"1", b"newer")
            assert newer.flush(60) == 0
            return not cluster.client.data_ranges(one.written[0], one.producer)

        wait_until(cleaned, "the cleaner has dropped the aborted records", 60)
        with pytest.raises(TransactionLost, match="has 0 of its 300 records; retention, compaction"):
            make_salvager(cluster, found.lost).prepare()
        assert cluster.client.describe(identity_of(cluster, 2, SALVAGE_SLOT)) is None
        with pytest.raises((TransactionLost, TransactionUndecidable)):
            Committer(cluster.client).commit(permit([one]))
    finally:
        cluster.close()
