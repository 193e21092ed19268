"""Records that are copied from a real topic into another keep everything that they have, byte for byte."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition

from tests.operators.driven import drive
from tests.plan.test_build import HEAD
from tests.sinks.driving import Cluster, DrivenSink, permit
from tests.sources.kafka_topics import Reading
from tests.support import clients
from tests.waiting import wait_until
from tidegate.config.load import parse_pipeline
from tidegate.formats.records import RecordEncoder
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.projection import SelectOperator
from tidegate.plan.build import build_plan

pytestmark = pytest.mark.slow

PARTITIONS = 3
Headers = Sequence[tuple[str, bytes | None]]
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]
"""Partition, key, value, headers, timestamp."""

GIVEN: Sequence[Record] = [
    (0, b"a", b'{"id":1}', [("t", b"1"), ("s", b"\xff\x00"), ("t", None), ("t", b""), ("", b"x")], 1_000),
    (2, b"b", b'{"id":2}', [], 1_700_000_000_123),
    (1, None, b'{"id":3}', [("é", b"2"), ("é", b"2")], 17),
    (0, b"a", None, [("t", None)], 999),
    (1, b"", b'{"id":4}', [("drop", b"")], 1_000),
    (2, b"b", None, [], 5),
]
COPY = """\
sources:
  in: {topic: IN, format: raw, until: latest}
sinks:
  out:
    from: in
    topic: OUT
    format: raw
    headers: {pass: all}
    timestamp: timestamp
    partition: partition
"""
TYPED = """\
sources:
  in:
    topic: IN
    schema: {id: bigint}
    until: latest
    on_null: tombstone
    metadata: {key: k, timestamp: at, partition: p}
    bad_records: skip
sinks:
  out:
    from: in
    topic: OUT
    key: k
    headers: {pass: all, drop: [drop], rename: {s: r}, add: {by: "concat('p', p)"}}
    timestamp: at
    partition: p
    on_null: {column: _deleted}
"""


def produce(bootstrap: str, topic: str) -> None:
    producer = clients.producer({"bootstrap.servers": bootstrap})
    for partition, key, value, headers, at_ms in GIVEN:
        producer.produce(topic, value, key, partition, timestamp=at_ms, headers=list(headers))
    assert producer.flush(60) == 0


def run(cluster: Cluster, text: str) -> list[Record]:
    """What a pipeline of one source and one sink makes of `GIVEN`, as a read-committed reader finds it."""
    source_topic, topic = cluster.topic(PARTITIONS), cluster.topic(PARTITIONS)
    produce(cluster.bootstrap, source_topic)
    process(cluster, text, source_topic, topic)
    return read(cluster.bootstrap, topic, len(GIVEN))


def process(cluster: Cluster, text: str, source_topic: str, topic: str) -> None:
    """Runs a pipeline of one source and one sink, until its transaction is committed."""
    head = HEAD.replace("localhost:9092", f'"{cluster.bootstrap}"')
    loaded = parse_pipeline(head + text.replace("IN", source_topic).replace("OUT", topic), "p.yaml", {})
    assert loaded.problems == ()
    plan = build_plan(loaded)
    (source,), (sink,) = plan.operators(SourceOperator), plan.operators(SinkOperator)
    partitions = cluster.client.topics([source_topic])[source_topic].partitions
    with Reading(source, partitions) as reading:
        frame = reading.read()
    for node in plan.nodes:  # what computes added headers, if there is any
        if isinstance(node.operator, SelectOperator):
            made = drive(node.operator).process(frame)
            assert made is not None
            frame = made
    driven = DrivenSink(sink, cluster.pipeline)
    try:
        driven.turn_until(lambda: driven.sink.room > 0, "room in the sink")
        encoded = RecordEncoder(sink.format, sink.columns, sink.parts).encode(
            frame, driven.sink.record_limits(sink.topics[0])
        )
        assert encoded.failures == ()
        driven.write(encoded)
        driven.written()
        cluster.committer.commit(permit(driven.prepared(1).committables))
    finally:
        driven.sink.close()


def read(bootstrap: str, topic: str, count: int) -> list[Record]:
    """In the order of their partitions and offsets."""
    consumer = clients.consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    )
    found: list[Message] = []
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

        def complete() -> bool:
            found.extend(consumer.consume(100, 0.1))
            return len(found) >= count

        wait_until(complete, f"{count} records in {topic}")
    finally:
        consumer.close()
    assert {message.timestamp()[0] for message in found} == {TIMESTAMP_CREATE_TIME}
    found.sort(key=lambda message: (message.partition(), message.offset()))
    return [(one.partition() or 0, one.key(), one.value(), headers_of(one), one.timestamp()[1]) for one in found]


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    return list(message.headers() or [])  # type: ignore[arg-type]  # a list, as it was read


def in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record[0])


def test_a_raw_copy_keeps_keys_headers_timestamps_partitions_and_tombstones_byte_for_byte(cluster_tv2: Cluster) -> None:
    assert run(cluster_tv2, COPY) == in_order(GIVEN)


def test_tombstones_and_headers_of_a_typed_topic_pass_through(cluster_tv2: Cluster) -> None:
    def value_of(record: Record) -> bytes | None:
        partition, key, value, _, at_ms = record
        if value is None:
            return None
        at = dt.datetime.fromtimestamp(at_ms // 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        fields = {"k": None if key is None else key.decode(), "at": f"{at}.{at_ms % 1000:03}Z", "p": partition}
        return json.dumps({**json.loads(value), **fields}, separators=(",", ":")).replace(".000Z", "Z").encode()

    def headers_of(record: Record) -> list[tuple[str, bytes | None]]:
        passed = [("r" if name == "s" else name, value) for name, value in record[3] if name != "drop"]
        return [*passed, ("by", b"p%d" % record[0])]

    assert run(cluster_tv2, TYPED) == [
        (one[0], one[1], value_of(one), headers_of(one), one[4]) for one in in_order(GIVEN)
    ]
