"""Fills topics for the tests of the source: plain records, transactions, markers, aborted records."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Iterable
from typing import Any, Self

import polars as pl

from tests.support import clients
from tests.waiting import wait_until
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import ROWS_MAX
from tidegate.sources.kafka import KafkaSource, SourceBatch
from tidegate.sources.start_offsets import read_beginning

SCHEMA = (("id", BIGINT), ("name", STRING))


def produce(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0, **record: Any) -> None:
    """Plain records, acknowledged."""
    producer = clients.producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "message.max.bytes": 20_000_000})
    for value in values:
        producer.produce(topic, value=value, partition=partition, **record)
    assert producer.flush(60) == 0


def produce_transaction(
    bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0, *, commit: bool = True
) -> None:
    """One transaction, ended, with its marker in the log."""
    producer = clients.producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    producer.flush(60)
    (producer.commit_transaction if commit else producer.abort_transaction)(60)
    client = TransactionClient({"bootstrap.servers": bootstrap})
    try:
        where = [TopicPartition(topic, partition)]
        wait_until(lambda: not client.open_transactions(where), "the marker is written")
    finally:
        client.close()


def source_operator(bootstrap: str, topic: str, **changes: Any) -> SourceOperator:
    """A JSON source of `id` and `name`; keyword arguments replace fields."""
    fields: dict[str, Any] = {
        "name": OperatorName("orders"),
        "topics": (topic,),
        "format": "json",
        "schema": SCHEMA,
        "output": SCHEMA,
        "start": "earliest",
        "until": "latest",
        "bad_records": BadRecordPolicy.SKIP,
        "kafka": {"bootstrap.servers": bootstrap},
    }
    return SourceOperator(**{**fields, **changes})


def begin(operator: SourceOperator, partitions: Iterable[TopicPartition]) -> SourcePositions:
    """What the daemon fixes before anybody reads."""
    client = TransactionClient(operator.kafka)
    try:
        return read_beginning(
            client, operator, UnassignedSource(operator.name, tuple(partitions)), dt.datetime.now(dt.UTC)
        )
    finally:
        client.close()


NEW = SourcePositions(OperatorName("orders"), ())
"""All partitions have come since the checkpoint."""


class Reading:
    """A source driven as the loop drives it: woken up, then polled until nothing waits."""

    def __init__(
        self, operator: SourceOperator, partitions: int | Iterable[int] = 1, restored: SourcePositions | None = None
    ) -> None:
        """Without `restored` it begins as the daemon lets it begin."""
        numbers = range(partitions) if isinstance(partitions, int) else partitions
        parts = [TopicPartition(topic, number) for topic in operator.topics for number in numbers]
        self.woken = threading.Event()
        self.batches: list[SourceBatch] = []
        positions = begin(operator, parts) if restored is None else restored
        self.source = KafkaSource(operator, parts, positions, "tests", self.woken.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def poll(self) -> None:
        """Everything that waits now."""
        while (batch := self.source.take(ROWS_MAX)) is not None:
            self.batches.append(batch)

    def read(self, records: int | None = None) -> pl.DataFrame:
        """Until so many records came, or the bounded read is finished; all frames joined."""

        def enough() -> bool:
            self.poll()
            return self.source.finished if records is None else sum(b.records for b in self.batches) >= records

        wait_until(enough, f"records {records}, got {[b.records for b in self.batches]}")
        return pl.concat([b.frame for b in self.batches]) if self.batches else pl.DataFrame()


def orders(ids: Iterable[int]) -> list[bytes]:
    """JSON orders."""
    return [b'{"id":%d,"name":"n%d","more":[1,{"x":null}]}' % (i, i) for i in ids]
