"""A copy of a topic as it is in practice: any codec, headers, tombstones, transactions, aborted records and gaps."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # not in their __all__

from tests.conftest import BrokerMaker
from tests.depth import DEPTH
from tests.sinks.driving import Cluster
from tests.sinks.test_record_parts import COPY, Headers, headers_of, process
from tests.sources.kafka_topics import produce_transaction
from tests.support import clients
from tests.waiting import wait_until
from tidegate.kafka import writer
from tidegate.kafka.producing import ClientProducing, open_producing

pytestmark = pytest.mark.slow

PARTITIONS = 3
SEED = 20_261_129
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 150 * DEPTH
Row = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp."""


def draw(rnd: random.Random) -> dict[str, Any]:
    """A record, with NULL and empty parts, and headers that repeat."""
    names = ("trace", "é", "", "x" * 300)
    headers = [
        (rnd.choice(names), rnd.choice((None, b"", b"\xff\x00", rnd.randbytes(40))))
        for _ in range(rnd.choice((0, 0, 1, 2, 7)))
    ]
    return {
        "key": rnd.choice((None, b"", b"key", rnd.randbytes(rnd.randrange(1, 60)))),
        "value": rnd.choice((None, b"", b"value" * 50, rnd.randbytes(rnd.randrange(1, 2_000)))),
        "headers": headers,
        "timestamp": rnd.choice((1, 999, 1_700_000_000_123, 253_402_300_799_999)),
        "partition": rnd.randrange(PARTITIONS),
    }


def produce(producer: ck.Producer, topic: str, rnd: random.Random) -> None:
    for _ in range(PER_CODEC // 3):
        producer.produce(topic, **draw(rnd))
    assert producer.flush(60) == 0


def fill(cluster: Cluster, topic: str, rnd: random.Random) -> None:
    """Plain records of each codec, transactions of both ends around them, and a first record that retention removed."""
    for codec in CODECS:
        settings = {"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 20}
        plain = clients.producer(settings)
        produce(plain, topic, rnd)
        transactional = clients.producer({**settings, "transactional.id": uuid.uuid4().hex})
        transactional.list_topics(timeout=60)
        transactional.init_transactions(60)
        for end in (transactional.commit_transaction, transactional.abort_transaction):
            transactional.begin_transaction()
            produce(transactional, topic, rnd)
            end(60)
    produce_transaction(cluster.bootstrap, topic, [b"the last one is aborted"], commit=False)
    clients.delete_records(cluster.bootstrap, [ck.TopicPartition(topic, 0, 7)])


def read(bootstrap: str, topic: str) -> list[list[Row]]:
    """All that a read-committed reader finds, by partition, in order."""
    consumer = clients.consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    left = set(range(PARTITIONS))

    def complete() -> bool:
        for message in consumer.consume(1000, 0.1):
            if message.error() is not None:
                left.discard(message.partition() or 0)
                continue
            row = message.key(), message.value(), headers_of(message), message.timestamp()[1]
            found[message.partition() or 0].append(row)
        return not left

    try:
        start = ck.OFFSET_BEGINNING
        consumer.assign([ck.TopicPartition(topic, number, start) for number in range(PARTITIONS)])
        wait_until(complete, f"{topic} is read")
    finally:
        consumer.close()
    return found


def test_a_copy_is_what_a_plain_reader_finds_in_the_original(
    cluster_tv2: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether records get into the producer in C or by calls of the client."""
    print(f"seed {SEED}")
    config = {"message.timestamp.after.max.ms": str(2**62)}
    source = cluster_tv2.topic(PARTITIONS, config)
    fill(cluster_tv2, source, random.Random(SEED))
    original = read(cluster_tv2.bootstrap, source)
    assert sum(map(len, original)) > PER_CODEC * len(CODECS) // 2
    for by in (open_producing, ClientProducing):
        monkeypatch.setattr(writer, "open_producing", by)
        copy = cluster_tv2.topic(PARTITIONS, config)
        process(cluster_tv2, COPY, source, copy)
        assert read(cluster_tv2.bootstrap, copy) == original


@pytest.mark.deep
def test_a_copy_of_a_compacted_topic_is_what_a_plain_reader_finds(
    own_broker: BrokerMaker, unique_name: Callable[[str], str]
) -> None:
    """Compaction leaves gaps within batches and transactions."""
    print(f"seed {SEED}")
    rnd = random.Random(SEED)
    broker = own_broker(properties={"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100"})
    cluster = Cluster(broker.bootstrap, unique_name)
    try:
        compacts = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}
        source, copy = cluster.topic(PARTITIONS, compacts), cluster.topic(PARTITIONS)
        compact(broker.bootstrap, source, rnd)
        process(cluster, COPY, source, copy)
        assert read(broker.bootstrap, copy) == read(broker.bootstrap, source)
    finally:
        cluster.close()


def compact(bootstrap: str, topic: str, rnd: random.Random) -> None:
    """Writes records of few keys until most of them are gone, and then ends compaction."""
    plain = clients.producer({"bootstrap.servers": bootstrap})
    transactional = clients.producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    transactional.init_transactions(60)
    written = 0

    def write(producer: ck.Producer) -> None:
        nonlocal written
        for _ in range(100):
            key = b"%d" % rnd.randrange(20)
            producer.produce(topic, **{**draw(rnd), "key": key, "timestamp": rnd.randrange(1, 10**12)})
        assert producer.flush(60) == 0
        written += 100

    def is_compacted() -> bool:
        write(plain)  # a segment that is old enough ends with the next record, and only then it is compacted
        transactional.begin_transaction()
        write(transactional)
        transactional.commit_transaction(60)
        return sum(map(len, read(bootstrap, topic))) < written // 2

    wait_until(is_compacted, "most records are gone")
    admin = clients.admin({"bootstrap.servers": bootstrap})
    ends = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[ends])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)
