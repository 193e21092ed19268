"""Event time against a real broker: what it says of ends and of last stable offsets, and what a restart keeps."""

from __future__ import annotations

import uuid
from typing import Any, Self

import polars as pl
import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.operators.driven import Collected
from tests.sources.kafka_topics import begin, orders, produce, source_operator
from tests.support import clients
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX
from tidegate.operators.spec import Planned, Requirement
from tidegate.sources.runtime import SourceRuntime
from tidegate.task.elements import CatchUpMarker, StreamStatus, Watermark

pytestmark = pytest.mark.slow


class Subtask:
    """A source that is polled until something is seen. Use as a context."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, restored: SourcePositions | None = None, **changes: Any
    ) -> None:
        timed = {"planned": Planned(carries=(Requirement.EVENT_TIME,))}
        operator = source_operator(bootstrap, topic, **{**timed, **changes})
        self.parts = [TopicPartition(topic, number) for number in range(partitions)]
        positions = begin(operator, self.parts) if restored is None else restored
        self.out = Collected()
        self.source = SourceRuntime(operator, self.parts, positions, "tests", lambda: None, lambda *_: None)

    def __enter__(self) -> Self:
        self.source.wait_ready(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def seen(self, element: object) -> bool:
        self.source.poll(ROWS_MAX, self.out)
        return element in [one for one in self.out.order if not isinstance(one, pl.DataFrame)]

    def until_watermark(self, time_ms: int) -> None:
        wait_until(lambda: self.seen(Watermark(time_ms)), f"the watermark {time_ms}")

    def until_rows(self, count: int) -> list[tuple[int, int, int, int]]:
        """Id, partition, time, `__tidegate_behind`."""

        def enough() -> bool:
            self.source.poll(ROWS_MAX, self.out)
            return sum(batch.height for batch in self.out.batches) >= count

        wait_until(enough, f"{count} rows")
        return (
            pl.concat(self.out.batches)
            .select("id", "__tidegate_partition", "__tidegate_time", "__tidegate_behind")
            .rows()
        )

    @property
    def watermarks(self) -> dict[int, int]:
        return {part.partition: at_ms for part, at_ms in self.source.positions().watermarks}


def test_empty_partitions_hold_nothing_back_open_transactions_do_and_a_restart_keeps_watermarks(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics("orders", 3)
    produce(broker.bootstrap, topic, orders([1]), 0, timestamp=100_000)
    producer = clients.producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in orders([2]):
        producer.produce(topic, value=value, partition=2, timestamp=70_000)
    producer.flush(60)
    with Subtask(broker.bootstrap, topic, 3, until="never") as one:
        wait_until(
            lambda: one.seen(None) or one.source.held_back_by == one.parts[2], "only the transaction is waited for"
        )
        assert one.watermarks == {0: 99_999}
        producer.commit_transaction(60)
        assert one.until_rows(2) == [(1, 0, 100_000, 0), (2, 2, 70_000, 0)]
        assert one.watermarks == {0: 99_999, 2: 69_999}
        positions = one.source.positions()
    produce(broker.bootstrap, topic, orders([3]), 0, timestamp=90_000)
    with Subtask(broker.bootstrap, topic, 3, positions, until="never") as again:
        assert again.until_rows(1) == [(3, 0, 90_000, 10_000)]
        again.until_watermark(99_999)
        assert again.watermarks == {0: 99_999, 2: 69_999}


def test_an_idle_partition_is_passed_after_the_broker_was_asked_also_after_what_was_aborted_in_it(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics("orders", 2)
    for partition in (0, 1):
        produce(broker.bootstrap, topic, orders([partition]), partition, timestamp=100_000)
    with Subtask(broker.bootstrap, topic, 2, until="never") as one:
        wait_until(lambda: one.seen(StreamStatus(idle=True)), "both are idle")
        producer = clients.producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, value=orders([2])[0], partition=1, timestamp=70_000)
        producer.flush(60)
        producer.abort_transaction(60)
        produce(broker.bootstrap, topic, orders([3]), 0, timestamp=200_000)
        one.until_watermark(199_999)
        assert one.source.held_back_by == one.parts[0]
        one.source.ask_still_idle()
        wait_until(lambda: one.seen(StreamStatus(idle=True)) and one.source.take_still_idle(), "all is still idle")


def test_a_source_has_caught_up_at_the_last_stable_offsets_of_its_start_whatever_is_open(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    """The end of a partition may be that of a marker. What is undecided is not waited for."""
    topic = topics("orders", 3)
    produce(broker.bootstrap, topic, orders([1]), 0)
    producer = clients.producer({"bootstrap.servers": broker.bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    for partition, number in ((1, 2), (2, 3)):
        producer.begin_transaction()
        producer.produce(topic, value=orders([number])[0], partition=partition)
        producer.flush(60)
        if partition == 1:
            producer.commit_transaction(60)
    with Subtask(broker.bootstrap, topic, 3, planned=Planned(catches_up=True), until="never") as one:
        wait_until(lambda: one.seen(CatchUpMarker()), "it has caught up")
        assert one.out.order[-1] == CatchUpMarker()
        assert sorted(pl.concat(one.out.batches)["id"]) == [1, 2]
        producer.commit_transaction(60)
        wait_until(lambda: one.seen(None) or sum(each.height for each in one.out.batches) == 3, "what was open")


def test_W02_a_bounded_read_ends_event_time_and_one_that_starts_again_continues_where_it_was(
    broker: SessionBroker, topics: TopicMaker
) -> None:
    topic = topics("orders", 2)
    produce(broker.bootstrap, topic, orders([1]), 0, timestamp=100_000)
    with Subtask(broker.bootstrap, topic, 2) as one:
        one.until_watermark(END_OF_TIME)
        assert one.source.finished
        assert one.watermarks == {0: 99_999}
        positions = one.source.positions()
    produce(broker.bootstrap, topic, orders([2]), 0, timestamp=60_000)
    ends = tuple((part, 2 if part.partition == 0 else 0) for part in one.parts)
    restored = SourcePositions(
        positions.source, positions.next_offsets, ends, positions.watermarks, positions.event_time
    )
    with Subtask(broker.bootstrap, topic, 2, restored) as again:
        assert again.until_rows(1) == [(2, 0, 60_000, 40_000)]
        again.until_watermark(END_OF_TIME)
        assert again.watermarks == {0: 99_999}
