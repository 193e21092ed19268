"""A sink subtask against real brokers."""

from __future__ import annotations

import time

import msgspec
import polars as pl
import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # not in their __all__

from tests.sinks.driving import NO_IDS, Cluster, assert_order_per_key, permit, rows
from tests.support import clients
from tests.support.records import records_of
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.formats.records import OutputRecords
from tidegate.ids import CheckpointId, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed, SinkRefused
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.writer import TransactionWriter
from tidegate.operators.builtin.kafka_sink import TopicChoice
from tidegate.sinks.outcome import CommitOutcome

pytestmark = pytest.mark.slow


def stamped(records: OutputRecords, timestamps_ms: list[int | None]) -> OutputRecords:
    return msgspec.structs.replace(records, timestamps_ms=pl.Series(timestamps_ms, dtype=pl.Int64))


def test_prepared_records_become_visible_only_by_the_commit(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(1000)))
    prepared = driven.prepared(1)
    assert cluster.values(topic, settled=False) == []
    assert cluster.committer.commit(permit(prepared.committables)) == [CommitOutcome.ENDED_NOW]
    visible = cluster.visible(topic)
    assert sorted(n for part in visible.values() for n in part) == list(range(1000))
    assert_order_per_key(visible)


def test_C36_a_committable_tells_what_was_written_where(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(2)
    driven = cluster_tv2.sink(topic, timeout_ms=45_000)
    driven.write(rows(range(500)))
    (committable,) = driven.prepared(3).committables
    assert committable.records == 500
    assert {part.partition for part in committable.written} == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert all(part.start_offset == 0 and part.end_offset == part.records for part in committable.written)
    assert committable.transactional_id == f"{cluster_tv2.pipeline}.out.0.1-j.0"
    assert committable.timeout_ms == 45_000
    assert committable.checkpoint == 3


def test_twenty_checkpoints_in_a_row_are_exact_and_use_four_ids(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    driven = cluster.sink(topic)
    ended = NO_IDS
    ids: set[TransactionalId] = set()
    for checkpoint in range(1, 21):
        driven.write(rows(range(checkpoint * 100, checkpoint * 100 + 100)))
        committables = driven.prepared(checkpoint).committables
        cluster.committer.commit(permit(driven.sink.unconfirmed(), checkpoint))
        driven.sink.completed(CheckpointId(checkpoint), ended)
        ended = frozenset(committable.transactional_id for committable in committables)
        ids |= ended
    visible = cluster.visible(topic)
    assert sorted(n for part in visible.values() for n in part) == list(range(100, 2100))
    assert_order_per_key(visible)
    assert len(ids) == 4


def test_an_empty_interval_has_no_committable_and_keeps_its_producer(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic()
    driven = cluster_tv2.sink(topic)
    assert driven.prepared(1).committables == ()
    driven.write(rows(range(10)))
    driven.written()
    assert len(driven.prepared(2).committables) == 1
    assert driven.prepared(3).committables == ()


def test_B13_an_empty_interval_is_answered_behind_the_prepare_before_it(cluster_tv2: Cluster) -> None:
    """A final checkpoint can follow at once: its ack must carry the transaction that is still being proven.

    Otherwise it completes without it, and the next recovery aborts records that the state has counted.
    """
    topic = cluster_tv2.topic()
    driven = cluster_tv2.sink(topic)
    driven.write(rows(range(5000)))
    driven.written()
    driven.sink.prepare(CheckpointId(1))
    driven.sink.prepare(CheckpointId(2))
    first = driven.poll(1).committables
    assert len(first) == 1
    assert driven.poll(2).committables == ()
    assert list(driven.sink.unconfirmed()) == list(first)


def test_committables_are_repeated_until_a_checkpoint_completes(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic()
    driven = cluster_tv2.sink(topic)
    driven.write(rows(range(10)))
    first = driven.prepared(1).committables
    driven.sink.aborted(CheckpointId(1))
    driven.write(rows(range(10, 20)))
    second = driven.prepared(2).committables
    assert driven.sink.unconfirmed() == [*first, *second]
    cluster_tv2.committer.commit(permit(driven.sink.unconfirmed(), 2))
    driven.sink.completed(CheckpointId(2), NO_IDS)
    assert driven.sink.unconfirmed() == []
    assert cluster_tv2.values(topic) == list(range(20))


def test_an_ack_never_carries_a_transaction_behind_its_own_barrier(cluster_tv2: Cluster) -> None:
    driven = cluster_tv2.sink(cluster_tv2.topic())
    driven.write(rows(range(10)))
    driven.sink.prepare(CheckpointId(1))
    driven.write(rows(range(10, 20)))
    driven.sink.prepare(CheckpointId(2))
    first = driven.poll(1)
    assert driven.sink.unconfirmed() == list(first.committables)
    second = driven.poll(2)
    assert driven.sink.unconfirmed() == [*first.committables, *second.committables]


def test_an_id_is_used_again_only_when_released(cluster_tv2: Cluster) -> None:
    driven = cluster_tv2.sink(cluster_tv2.topic())
    committables: list[Committable] = []
    for checkpoint in range(1, 5):
        driven.write(rows(range(10)))
        committables += driven.prepared(checkpoint).committables
    assert len({committable.transactional_id for committable in committables}) == 4
    cluster_tv2.committer.commit(permit(committables, 4))
    driven.sink.completed(CheckpointId(5), frozenset({committables[2].transactional_id}))
    driven.write(rows(range(10)))
    (again,) = driven.prepared(5).committables
    before = committables[2]
    assert again.transactional_id == before.transactional_id
    assert (again.producer_id, again.producer_epoch) == (before.producer_id, before.producer_epoch + 1)


def test_a_row_of_failed_checkpoints_is_carried_by_the_next_that_completes(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic()
    driven = cluster_tv2.sink(topic)
    for checkpoint in range(1, 11):
        driven.write(rows(range(checkpoint * 10, checkpoint * 10 + 10)))
        driven.prepared(checkpoint)
        driven.sink.aborted(CheckpointId(checkpoint))
    carried = driven.sink.unconfirmed()
    assert len({committable.transactional_id for committable in carried}) == 10
    cluster_tv2.committer.commit(permit(carried, 11))
    visible = cluster_tv2.visible(topic)
    assert sorted(number for part in visible.values() for number in part) == list(range(10, 110))
    assert_order_per_key(visible)


def test_close_leaves_a_prepared_transaction_committable(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(100)))
    prepared = driven.prepared(1)
    driven.sink.close()
    assert cluster.committer.commit(permit(prepared.committables)) == [CommitOutcome.ENDED_NOW]
    assert cluster.values(topic) == list(range(100))


def test_committing_twice_changes_nothing(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(100)))
    prepared = driven.prepared(1)
    for _ in range(2):
        assert cluster.committer.commit(permit(prepared.committables)) == [CommitOutcome.ENDED_NOW]
    assert cluster.values(topic) == list(range(100))


def assert_all_in_order(visible: dict[int, list[int]], count: int) -> None:
    """All numbers are there, and rise in each of several partitions."""
    assert sorted(number for part in visible.values() for number in part) == list(range(count))
    assert len(visible) > 1
    assert all(part == sorted(part) for part in visible.values())


def test_a_full_client_queue_holds_rows_back_in_order(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(3)
    driven = cluster_tv2.sink(topic, kafka={"queue.buffering.max.messages": "300"})
    for start in range(0, 10_000, 1000):
        driven.write(rows(range(start, start + 1000)))
    prepared = driven.prepared(1)
    cluster_tv2.committer.commit(permit(prepared.committables))
    assert_all_in_order(cluster_tv2.visible(topic), 10_000)


def test_a_sink_takes_no_more_than_its_client_has_room_for(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(1)
    driven = cluster_tv2.sink(topic, kafka={"queue.buffering.max.messages": "300", "linger.ms": "30000"})
    assert driven.sink.room == 0, "what the topic takes is not known yet"
    driven.turn_until(lambda: driven.sink.room > 0, "the topic's limits are known")
    rooms = [driven.sink.room]
    driven.write(rows(range(200)))
    driven.written()
    assert driven.sink._writer is not None
    driven.sink._writer._producer.poll(0)  # what it logs has a place until then: a coordinator that is loading
    rooms.append(driven.sink.room)
    driven.sink.write(rows(range(200, 230)))
    driven.written()
    rooms.append(driven.sink.room)
    assert rooms == [300, 100, 0]  # a quarter is not free any more
    assert driven.sink._writer.flush(60, lambda: False) == 0
    driven.write(rows(range(230, 330)))  # waits for room
    prepared = driven.prepared(1)
    cluster_tv2.committer.commit(permit(prepared.committables))
    assert cluster_tv2.visible(topic) == {0: list(range(330))}


def test_a_queue_full_by_size_holds_rows_back_in_order(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(3)
    driven = cluster_tv2.sink(topic, kafka={"queue.buffering.max.kbytes": "1024"})
    for start in range(0, 200, 20):
        driven.write(rows(range(start, start + 20), size=100_000))
    prepared = driven.prepared(1)
    cluster_tv2.committer.commit(permit(prepared.committables))
    assert_all_in_order(cluster_tv2.visible(topic), 200)


def test_record_timestamps_are_written(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(1)
    driven = cluster_tv2.sink(topic)
    driven.write(stamped(rows(range(3)), [1_000, None, 3_000]))
    cluster_tv2.committer.commit(permit(driven.prepared(1).committables))
    from confluent_kafka import TopicPartition as Position

    reader = clients.consumer({"bootstrap.servers": cluster_tv2.bootstrap, "group.id": "timestamps"})
    try:
        reader.assign([Position(topic, 0, 0)])
        stamps = [message.timestamp()[1] for message in reader.consume(3, 60)]
    finally:
        reader.close()
    assert (stamps[0], stamps[2]) == (1_000, 3_000)
    assert stamps[1] > 1_600_000_000_000


def test_headers_partitions_and_topics_of_single_records_are_written_and_committed_together(
    cluster_tv2: Cluster,
) -> None:
    own, other = cluster_tv2.topic(3), cluster_tv2.topic(1)
    driven = cluster_tv2.sink(TopicChoice("topic", (own, other), "topic"))
    headers = [[("h", b"1"), ("h", None)], None]
    driven.write(records_of([b"a", b"b"], [b"k"] * 2, None, headers, partitions=[2, 1], topic=own))
    driven.write(records_of([None], [b"k"], topic=other))
    prepared = driven.prepared(1)
    places = {part.partition for one in prepared.committables for part in one.written}
    assert places == {TopicPartition(own, 2), TopicPartition(own, 1), TopicPartition(other, 0)}
    cluster_tv2.committer.commit(permit(prepared.committables))
    from confluent_kafka import TopicPartition as Position

    reader = clients.consumer(
        {"bootstrap.servers": cluster_tv2.bootstrap, "group.id": "routed", "isolation.level": "read_committed"}
    )
    try:
        reader.assign([Position(own, 2, 0), Position(own, 1, 0), Position(other, 0, 0)])
        found = {message.value(): message for message in reader.consume(3, 60)}
    finally:
        reader.close()
    assert (found[b"a"].topic(), found[b"a"].partition(), found[b"a"].headers()) == (own, 2, headers[0])
    assert (found[b"b"].partition(), found[b"b"].headers()) == (1, None)
    assert (found[None].topic(), found[None].key()) == (other, b"k")


@pytest.mark.parametrize("exactly_once", [True, False])
def test_X12_a_partition_that_the_topic_was_given_meanwhile_is_written_to(
    cluster_tv2: Cluster, *, exactly_once: bool
) -> None:
    """By a producer that was opened before, whose client does not know of it."""
    topic = cluster_tv2.topic(1)
    driven = cluster_tv2.sink(topic, exactly_once=exactly_once)
    driven.turn_until(lambda: driven.sink.room > 0, "room in the sink")
    admin = clients.admin({"bootstrap.servers": cluster_tv2.bootstrap})
    for future in admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result(30)
    wait_until(lambda: cluster_tv2.client.topics([topic])[topic].partitions == 2, "the topic has two partitions")
    driven.write(records_of([b"1"], [b"k"], partitions=[1]))
    prepared = driven.prepared(1)
    if exactly_once:
        cluster_tv2.committer.commit(permit(prepared.committables))
    assert cluster_tv2.visible(topic)[1] == [1]


def test_a_timestamp_that_the_topic_refuses_is_told_although_other_records_of_its_batch_fail_before(
    cluster_tv2: Cluster,
) -> None:
    topic = cluster_tv2.topic(1)
    now_ms = time.time_ns() // 1_000_000
    stamps: list[int | None] = [*[now_ms] * 99, now_ms + 48 * 3_600_000]
    driven = cluster_tv2.sink(topic)
    with pytest.raises(SinkRefused, match=r"INVALID_TIMESTAMP.*message\.timestamp\.after\.max\.ms"):
        driven.write(stamped(rows(range(100)), stamps))
        driven.prepared(1)
    assert cluster_tv2.values(topic, settled=False) == []


def test_a_record_that_the_client_refuses_stops_the_pipeline(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(1)
    driven = cluster_tv2.sink(topic)
    with pytest.raises(
        SinkRefused, match=r"MSG_SIZE.*: key and value have 3000001 bytes; .* is 1048588, .* is 1048588;"
    ):
        driven.write(rows([1, 2], size=3_000_000))
        driven.prepared(1)
    assert cluster_tv2.values(topic, settled=False) == []


def test_a_record_that_the_broker_refuses_stops_the_pipeline(
    cluster_tv2: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = cluster_tv2.topic(1, {"max.message.bytes": "20000"})
    driven = cluster_tv2.sink(topic)
    with pytest.raises(SinkRefused, match=r"MSG_SIZE.*: key and value have 100001 bytes; .* is 20000, .* is 1048588;"):
        driven.write(rows(range(10), size=100_000))
        driven.prepared(1)
    assert cluster_tv2.values(topic, settled=False) == []
    assert not [record for record in caplog.records if "TXNERR" in record.getMessage()], "reported twice"


@pytest.mark.parametrize("exactly_once", [True, False])
def test_many_small_records_go_to_a_topic_that_takes_only_small_batches(
    cluster_tv2: Cluster, exactly_once: bool
) -> None:
    topic = cluster_tv2.topic(1, {"max.message.bytes": "2000"})
    driven = cluster_tv2.sink(topic, exactly_once=exactly_once)
    driven.write(rows(range(1000), size=100))
    prepared = driven.prepared(1)
    if exactly_once:
        cluster_tv2.committer.commit(permit(prepared.committables))
    assert [int(value) for value in cluster_tv2.values(topic)] == list(range(1000))


def test_what_follows_a_refused_record_fails_with_the_reason_of_the_first(cluster_tv2: Cluster) -> None:
    """The client refuses it by the state of the transaction, maybe before it has reported the delivery error."""
    topic = cluster_tv2.topic(1, {"max.message.bytes": "20000"})
    identity = TransactionalId(f"{cluster_tv2.pipeline}.out.0.1-j.0")
    properties = derive_producer_properties({"bootstrap.servers": cluster_tv2.bootstrap}, identity, 60_000)
    writer = TransactionWriter("out", {topic: cluster_tv2.client.topic_limits(topic)}, properties)
    writer.open(cluster_tv2.client, lambda: False)
    try:
        large = rows([1], size=100_000)
        assert writer.write(large, 0) == 1

        def is_refused() -> bool:
            """Without a poll, which would report the delivery error."""
            try:
                writer.write(rows([2]), 0)
            except SinkRefused as error:
                assert "the broker refuses a record" in error.message
                assert "key and value have 100001 bytes" in error.message
                return True
            return False

        wait_until(is_refused, "the client refuses records")
    finally:
        writer.discard()


def test_an_unknown_topic_stops_the_pipeline_with_its_name(cluster_tv2: Cluster) -> None:
    driven = cluster_tv2.sink("no-such-topic")
    with pytest.raises(SinkRefused, match="no-such-topic"):
        driven.write(rows(range(10)))
        driven.prepared(1)


def test_a_deleted_topic_fails_the_prepare(cluster_tv2: Cluster) -> None:

    topic = cluster_tv2.topic(1)
    driven = cluster_tv2.sink(topic, kafka={"message.timeout.ms": "3000"})
    driven.write(rows(range(10)))
    driven.written()
    clients.delete_topics(cluster_tv2.bootstrap, [topic])
    wait_until(lambda: not cluster_tv2.client.topics([topic]), "the broker has forgotten it", 60)
    writer = driven.sink._writer
    with pytest.raises((SinkFailed, SinkRefused)):
        driven.write(rows(range(10, 20)))
        driven.prepared(1)
    driven.sink.close()
    assert writer is not None
    assert not hasattr(writer, "_producer"), "its producer is gone, too"


def test_a_transaction_that_was_fenced_cannot_be_prepared(cluster: Cluster, client: TransactionClient) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(100)))
    driven.written()
    for index in range(4):
        client.fence(TransactionalId(f"{cluster.pipeline}.out.0.1-j.{index}"))
    with pytest.raises(SinkFailed):
        driven.prepared(1)
    assert cluster.values(topic, settled=False) == []


def test_X06_the_age_of_the_oldest_transaction_is_measured_by_the_slot_alone(cluster_tv2: Cluster) -> None:
    driven = cluster_tv2.sink(cluster_tv2.topic())
    idle = driven.sink.oldest_age_ms
    assert idle is None
    before = time.monotonic()
    driven.write(rows(range(10)))
    driven.written()
    written = driven.sink.oldest_age_ms
    driven.prepared(1)
    prepared = driven.sink.oldest_age_ms
    longest_ms = (time.monotonic() - before) * 1000
    assert written is not None
    assert prepared is not None
    assert 0 <= written <= prepared <= longest_ms
    driven.sink.completed(CheckpointId(1), NO_IDS)
    ended = driven.sink.oldest_age_ms
    assert ended is None


def test_at_least_once_delivers_before_it_is_prepared(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic()
    driven = cluster_tv2.sink(topic, exactly_once=False)
    for checkpoint in range(1, 4):
        driven.write(rows(range(checkpoint * 100, checkpoint * 100 + 100)))
        assert driven.prepared(checkpoint).committables == ()
        assert cluster_tv2.values(topic) == list(range(100, checkpoint * 100 + 100))


def test_close_ends_its_threads_with_rows_in_flight(cluster_tv2: Cluster) -> None:
    driven = cluster_tv2.sink(cluster_tv2.topic())
    driven.write(rows(range(1000)))
    driven.sink.close(timeout_s=60)
    assert not any(helper._thread.is_alive() for helper in (driven.sink._threads.open, driven.sink._threads.drop))
