"""CPU time of a JSON source with metadata columns compared with one without: from the brokers to frames.

    python bench/metadata.py [--records 200000] [--runs 7]

Starts a broker of its own and fills two topics with records of 200 bytes and a key: one of records without headers,
and one of records with three, one of them different in each record. Each run reads the whole of a topic once for each
set of columns, in turn, as a slot does: the client's threads, the reader's thread and the decoding, all by
`time.process_time`. Prints medians of the runs: CPU seconds per million records, and the ratio within a run to the same
topic without metadata columns; the last number is the ratio of the least of all runs, which other work on the machine
changes least. `headers, by the client alone` makes no column: the client is only asked for the headers
of each message, which is what they cost at least.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import statistics
import threading
import time

import confluent_kafka as ck
import msgspec

from bench.support import open_broker
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.datatypes import BIGINT, DOUBLE, STRING
from tidegate.dev.broker.server import create_topics
from tidegate.formats.contract import WaitingForSchema
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_source import PARTS, MetadataColumn, SourceOperator
from tidegate.operators.runtime import ROWS_MAX
from tidegate.sources.kafka import KafkaSource, SourceBatch
from tidegate.sources.positions import Positions
from tidegate.sources.reader import Pending
from tidegate.sources.start_offsets import read_beginning

PLAIN, HEADED = "plain", "headed"
PARTITIONS = 4
PATIENCE_S = 120.0
GARBAGE = (100_000, 50, 100)
"""As in a slot."""
SCHEMA = (("id", BIGINT), ("customer", STRING), ("amount", DOUBLE), ("at", STRING), ("note", STRING))
NAMES = {**PARTS, "key": STRING}
PLACE = ("key", "partition", "offset", "topic")
ALL = (*PLACE, "timestamp", "headers")
ASKED = "headers, by the client alone"
SETS: dict[tuple[str, str], tuple[str, ...]] = {
    (PLAIN, "none"): (),
    (PLAIN, "none again"): (),
    (PLAIN, "key"): ("key",),
    (PLAIN, "partition, offset, topic"): PLACE[1:],
    (PLAIN, "timestamp"): ("timestamp",),
    (PLAIN, "all"): ALL,
    (HEADED, "none"): (),
    (HEADED, "all but headers"): ALL[:-1],
    (HEADED, ASKED): (),
    (HEADED, "headers"): ("headers",),
    (HEADED, "headers, not read"): ("headers",),
    (HEADED, "all"): ALL,
}


class Asking(KafkaSource):
    """Asks for headers, and makes nothing of them."""

    def _decode(self, pending: Pending, positions: Positions) -> SourceBatch | WaitingForSchema | None:
        _ = pending.records.flat_headers or pending.records.headers
        return super()._decode(pending, positions)


def fill(bootstrap: str, records: int) -> None:
    """The topics, with the same records in each run of the program."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for row in range(records):
        value = b'{"id":%d,"customer":"customer-%d","amount":%d.25,"at":"2026-01-01T00:00:00Z","note":"%s"}' % (
            row,
            row % 10_000,
            row % 1000,
            b"x" * 80,
        )
        trace = b"00-%032x-%016x-01" % (row * 7919, row)
        headers: list[tuple[str, str | bytes | None]] = [
            ("content-type", b"application/json"),
            ("traceparent", trace),
            ("source", b"web"),
        ]
        key = b"customer-%d" % (row % 10_000)
        producer.produce(PLAIN, value, key, row % PARTITIONS)
        producer.produce(HEADED, value, key, row % PARTITIONS, headers=headers)
        if row % 10_000 == 0:
            producer.poll(0)
    if producer.flush(PATIENCE_S):
        raise SystemExit("the broker did not take all records in time")


def source_of(bootstrap: str, topic: str, name: str, parts: tuple[str, ...]) -> SourceOperator:
    """A bounded source with these metadata columns."""
    operator = SourceOperator(
        OperatorName(topic),
        (topic,),
        "json",
        SCHEMA,
        (),
        "earliest",
        "latest",
        BadRecordPolicy.FAIL,
        {"bootstrap.servers": bootstrap},
    )
    metadata = tuple(MetadataColumn(part, f"m_{part}", NAMES[part]) for part in parts)
    operator = msgspec.structs.replace(operator, metadata=metadata)
    output = operator.schema if name.endswith("not read") else tuple(operator.columns)
    return msgspec.structs.replace(operator, output=output)


def read_all(operator: SourceOperator, made: type[KafkaSource]) -> float:
    """CPU seconds per million records of the whole topic."""
    partitions = [TopicPartition(operator.topics[0], number) for number in range(PARTITIONS)]
    client = TransactionClient(operator.kafka)
    try:
        begin = read_beginning(
            client, operator, UnassignedSource(operator.name, tuple(partitions)), dt.datetime.now(dt.UTC)
        )
    finally:
        client.close()
    woken = threading.Event()
    rows, deadline = 0, time.monotonic() + PATIENCE_S
    before = time.process_time()
    source = made(operator, partitions, begin, "bench", woken.set)
    try:
        while not source.finished:
            batch = source.take(ROWS_MAX)
            if batch is not None:
                assert not batch.failures
                assert batch.frame.width == len(operator.output) + 2
                rows += batch.frame.height
            elif time.monotonic() > deadline:
                raise SystemExit("the topic was not read in time")
            else:
                woken.wait(0.05)
                woken.clear()
    finally:
        source.close()
    return (time.process_time() - before) / rows * 1e6


def measure(bootstrap: str, runs: int) -> None:
    """All sets in turn, so that what else the machine does meets all of them."""
    operators = {one: source_of(bootstrap, *one, parts) for one, parts in SETS.items()}
    found: dict[tuple[str, str], list[float]] = {one: [] for one in SETS}
    for run in range(runs + 1):
        for one, operator in operators.items():
            spent = read_all(operator, Asking if one[1] == ASKED else KafkaSource)
            if run:  # the first is for the caches
                found[one].append(spent)
    for (topic, name), all_runs in found.items():
        ratios = [mine / base for mine, base in zip(all_runs, found[topic, "none"], strict=True)]
        seconds, ratio = statistics.median(all_runs), statistics.median(ratios)
        print(f"{topic:8} {name:28} {seconds:6.2f} CPU s/M   {ratio:5.3f} times none", end=" ")
        print(f"({min(ratios):.3f} to {max(ratios):.3f}; of the least {min(all_runs) / min(found[topic, 'none']):.3f})")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    with open_broker() as (broker, _):
        create_topics(broker.bootstrap, {PLAIN: PARTITIONS, HEADED: PARTITIONS})
        fill(broker.bootstrap, options.records)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        measure(broker.bootstrap, options.runs)


if __name__ == "__main__":
    main()
