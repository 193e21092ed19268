"""The plain client loop that other engines are measured against: `python raw.py SETTINGS`.

One process, one thread: confluent-kafka with the records typed by msgspec. Input offsets and output are committed in
one transaction per interval. The state of W2, W3 and `lookup` (bench/joins.py) is a dict and is not durable, and W3
needs no exchange, because the process reads all partitions: a limit for an engine in Python, not an engine.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import msgspec

POLLED = 1000
END = ck.KafkaError._PARTITION_EOF  # noqa: SLF001  # the client's own codes begin so, and are public
BEHIND = 200_000
"""Records that wait in the producer."""
TIMEOUT_S = 30

Record = dict[str, Any]
Step = Callable[[Sequence[ck.Message]], list[Record]]
encode = msgspec.json.Encoder().encode


class Order(msgspec.Struct):
    """The fields of W1."""

    id: int
    ts: int
    customer: str
    sku: str
    qty: int
    price: int
    status: str


class Paid(msgspec.Struct):
    """A result of W1."""

    id: int
    ts: int
    customer: str
    sku: str
    total: int


class Sale(msgspec.Struct):
    """The fields of W2."""

    ts: int
    customer: str
    price: int


class Total(msgspec.Struct):
    """A result of W2."""

    customer: str
    count: int
    sum: int
    ts: int


class Item(msgspec.Struct):
    """The fields of W3."""

    ts: int
    sku: str
    price: int


class Window(msgspec.Struct):
    """A result of W3."""

    sku: str
    window_start: int
    count: int
    sum: int


class Customer(msgspec.Struct):
    """A row of the table of `lookup`."""

    segment: str
    country: str


class Bought(msgspec.Struct):
    """The fields of `lookup`."""

    id: int
    customer: str


class Enriched(msgspec.Struct):
    """A result of `lookup`."""

    id: int
    customer: str
    segment: str | None
    country: str | None


def select_paid() -> Step:
    """W1: filter and select."""
    decode = msgspec.json.Decoder(Order).decode

    def step(messages: Sequence[ck.Message]) -> list[Record]:
        results: list[Record] = []
        for message in messages:
            order = decode(message.value() or b"")
            if order.status == "paid":
                paid = Paid(order.id, order.ts, order.customer, order.sku, order.qty * order.price)
                results.append({"key": message.key(), "value": encode(paid)})
        return results

    return step


def running_totals() -> Step:
    """W2: count and sum of each customer, after each order."""
    decode = msgspec.json.Decoder(Sale).decode
    totals: dict[str, tuple[int, int]] = {}

    def step(messages: Sequence[ck.Message]) -> list[Record]:
        results: list[Record] = []
        for message in messages:
            order = decode(message.value() or b"")
            count, total = totals.get(order.customer, (0, 0))
            count, total = count + 1, total + order.price
            totals[order.customer] = count, total
            results.append({"key": message.key(), "value": encode(Total(order.customer, count, total, order.ts))})
        return results

    return step


def windows(size: int, lateness: int, partitions: int) -> Step:
    """W3: count and sum of each sku in tumbling windows, which the slowest partition closes."""
    decode = msgspec.json.Decoder(Item).decode
    times = [0] * partitions
    opened: dict[int, dict[str, list[int]]] = {}

    def step(messages: Sequence[ck.Message]) -> list[Record]:
        for message in messages:
            order, partition = decode(message.value() or b""), message.partition() or 0
            if order.ts > times[partition]:
                times[partition] = order.ts
            start = order.ts - order.ts % size
            window = opened.get(start)
            if window is None:
                window = opened[start] = {}
            sums = window.get(order.sku)
            if sums is None:
                window[order.sku] = [1, order.price]
            else:
                sums[0] += 1
                sums[1] += order.price
        watermark = min(times) - lateness
        return [
            {"key": sku.encode(), "value": encode(Window(sku, start, count, total))}
            for start in sorted(start for start in opened if start + size <= watermark)
            for sku, (count, total) in opened.pop(start).items()
        ]

    return step


def lookup(bootstrap: str, topic: str) -> Step:
    """Adds two columns of a table to each order. The table is read to its end first, and then does not change."""
    decode = msgspec.json.Decoder(Bought).decode
    table = read_table(bootstrap, topic)
    unknown = (None, None)

    def step(messages: Sequence[ck.Message]) -> list[Record]:
        results: list[Record] = []
        for message in messages:
            order = decode(message.value() or b"")
            row = Enriched(order.id, order.customer, *table.get(order.customer, unknown))
            results.append({"key": message.key(), "value": encode(row)})
        return results

    return step


def read_table(bootstrap: str, topic: str) -> dict[str, tuple[str, str]]:
    """Reads the rows of a topic up to its end, by the key of their record."""
    decode = msgspec.json.Decoder(Customer).decode
    table: dict[str, tuple[str, str]] = {}
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = ck.Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    ahead = set(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in ahead])
    while ahead:
        for message in consumer.consume(POLLED, 1.0):
            error = message.error()
            if error is not None:
                if error.code() != END:
                    raise ck.KafkaException(error)
                ahead.discard(message.partition() or 0)
            else:
                row = decode(message.value() or b"")
                table[(message.key() or b"").decode()] = row.segment, row.country
    consumer.close()
    return table


def read_settings(path: str) -> dict[str, str]:
    """Reads `key=value` lines."""
    return dict(line.split("=", 1) for line in Path(path).read_text().splitlines())


def run(settings: dict[str, str]) -> None:
    """Runs until SIGTERM."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    bootstrap, name = {"bootstrap.servers": settings["bootstrap"]}, settings["id"]
    consumer = ck.Consumer(
        {
            **bootstrap,
            "group.id": name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": False,
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 5,  # by default a partition whose queue is full pauses for a second
        }
    )
    producer = ck.Producer(
        {
            **bootstrap,
            "transactional.id": name,
            "linger.ms": 5,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
            "partitioner": "murmur2_random",
        }
    )
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([settings["input"]])
    steps: dict[str, Callable[[], Step]] = {
        "W1": select_paid,
        "W2": running_totals,
        "W3": lambda: windows(int(settings["window.ms"]), int(settings["lateness.ms"]), int(settings["partitions"])),
        "lookup": lambda: lookup(settings["bootstrap"], settings["table"]),
    }
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    loop(settings, consumer, producer, steps[settings["workload"]](), stopped)


def loop(
    settings: dict[str, str],
    consumer: ck.Consumer,
    producer: ck.Producer,
    step: Step,
    stopped: Sequence[int],
) -> None:
    """Reads, computes, writes and commits."""
    positions: dict[int, int] = {}
    interval_s, begun = int(settings["interval.ms"]) / 1000, 0.0
    known = False
    while not stopped:
        messages = [one for one in consumer.consume(POLLED, 0.01 if begun else 0.05) if not one.error()]
        if messages:
            if not begun:
                producer.begin_transaction()
                begun = time.monotonic()
            results = step(messages)
            if results and not known:  # records may change their order while the client does not know the topic
                producer.produce_batch(settings["output"], results[:1])
                known = producer.flush(TIMEOUT_S) == 0
                del results[:1]
            if results:
                producer.produce_batch(settings["output"], results)
            positions.update((message.partition() or 0, message.offset() or 0) for message in messages)
            while len(producer) > BEHIND:
                producer.poll(0.005)
        if begun and time.monotonic() - begun >= interval_s:
            read = [ck.TopicPartition(settings["input"], number, last + 1) for number, last in positions.items()]
            producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            begun = 0.0
    consumer.close()


if __name__ == "__main__":
    run(read_settings(sys.argv[1]))
