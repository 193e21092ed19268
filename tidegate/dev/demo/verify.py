"""The input of the demo, and the independent check of its output.

Orders are a pure function of (seed, number), so that every output can be recomputed. The check reads the output with a
read-committed consumer and compares it with its own computation. It uses nothing of the engine. There are two outputs:
`paid` (paid orders with their total, keyed by customer) and `totals` (running count and sum per sku, one update per
order). Every order must appear exactly once in each output to which it belongs, with the right values and in order per
key.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

READ_S: Final = 60.0


class PaidOrder(msgspec.Struct, frozen=True):
    """A row of the `paid` output."""

    id: int
    customer: str
    total_cents: int


class SkuTotal(msgspec.Struct, frozen=True):
    """A row of the `totals` output: the state of the sku after order `last_id`."""

    sku: str
    orders: int
    revenue_cents: int
    last_id: int


class DemoVerdict(msgspec.Struct):
    """The findings of the check; `exact` if nothing is wrong. `examples` holds the first few problems."""

    expected: int = 0
    found: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong: int = 0
    examples: list[str] = msgspec.field(default_factory=list)

    @property
    def exact(self) -> bool:
        """True if every expected record appears once, with the right values and in order."""
        return not (self.lost or self.doubled or self.out_of_order or self.wrong) and self.found == self.expected

    def note(self, what: str) -> None:
        """Keeps an example, up to a limit."""
        if len(self.examples) < 10:
            self.examples.append(what)


def read_topic(bootstrap: str, topic: str) -> list[list[tuple[bytes | None, bytes]]]:
    """Reads everything committed as (key, value), per partition in log order. Raises TimeoutError before the end."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "tidegate-verify",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.queue.backoff.ms": 5,
        "fetch.wait.max.ms": 20,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    rows: list[list[tuple[bytes | None, bytes]]] = [[] for _ in partitions]
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S
    try:
        while len(ended) < len(partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic}: end of partitions {set(partitions) - ended} not reached: open transaction?"
                )
            for message in consumer.consume(5000, 0.05):
                error, partition = message.error(), message.partition() or 0
                if error is None:
                    rows[partition].append((message.key(), message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the library's public name for it
                    ended.add(partition)
                else:
                    raise RuntimeError(f"{topic}[{message.partition()}]: {error}")
    finally:
        consumer.close()
    return rows


def verify_paid(orders: Sequence[Order], rows: list[list[tuple[bytes | None, bytes]]]) -> DemoVerdict:
    """Checks the `paid` output. `orders` are in id order, with ids 0 .. n-1."""
    verdict = DemoVerdict(expected=sum(order.status == "paid" for order in orders))
    decode = msgspec.json.Decoder(PaidOrder).decode
    seen: set[int] = set()
    for partition in rows:
        last: dict[str, int] = {}
        for key, value in partition:
            row = decode(value)
            verdict.found += 1
            order = orders[row.id] if 0 <= row.id < len(orders) else None
            right = order is not None and order.status == "paid" and key == order.customer.encode()
            if (
                not right
                or order is None
                or row != PaidOrder(order.id, order.customer, order.quantity * order.price_cents)
            ):
                verdict.wrong += 1
                verdict.note(f"paid: unexpected {value!r}")
                continue
            if row.id in seen:
                verdict.doubled += 1
                verdict.note(f"paid: order {row.id} twice")
                continue
            seen.add(row.id)
            if last.get(row.customer, -1) > row.id:
                verdict.out_of_order += 1
                verdict.note(f"paid: order {row.id} of {row.customer} after {last[row.customer]}")
            last[row.customer] = row.id
    verdict.lost = verdict.expected - len(seen)
    return verdict


def verify_totals(orders: Sequence[Order], rows: list[list[tuple[bytes | None, bytes]]]) -> DemoVerdict:
    """Checks the `totals` output: replays each sku's updates in log order against the orders that they name."""
    verdict = DemoVerdict(expected=len(orders))
    decode = msgspec.json.Decoder(SkuTotal).decode
    seen: set[int] = set()
    for partition in rows:
        running: dict[str, tuple[int, int]] = {}
        last_of: dict[tuple[str, str], int] = {}
        for key, value in partition:
            row = decode(value)
            verdict.found += 1
            order = orders[row.last_id] if 0 <= row.last_id < len(orders) else None
            if order is None or order.sku != row.sku or key != row.sku.encode():
                verdict.wrong += 1
                verdict.note(f"totals: unexpected {value!r}")
                continue
            if row.last_id in seen:
                verdict.doubled += 1
                verdict.note(f"totals: order {row.last_id} twice")
                continue
            seen.add(row.last_id)
            count, revenue = running.get(row.sku, (0, 0))
            count, revenue = count + 1, revenue + order.quantity * order.price_cents
            running[row.sku] = count, revenue
            if (row.orders, row.revenue_cents) != (count, revenue):
                verdict.wrong += 1
                verdict.note(f"totals: {row} where count {count}, revenue {revenue} belong")
            # orders of one customer and sku come from one input partition, so their order must be kept
            lane = (row.sku, order.customer)
            if last_of.get(lane, -1) > row.last_id:
                verdict.out_of_order += 1
                verdict.note(f"totals: order {row.last_id} after {last_of[lane]} in {lane}")
            last_of[lane] = row.last_id
    verdict.lost = verdict.expected - len(seen)
    return verdict


# -- the input ---------------------------------------------------------------------------------------------------------

CUSTOMERS: Final = 2_000
SKUS: Final = 500
STATUSES: Final = ("paid", "paid", "paid", "open", "cancelled")
BATCH: Final = 5_000


class Order(msgspec.Struct, frozen=True):
    """One order. The record key is the customer, so a customer's orders stay in order in one partition."""

    id: int
    customer: str
    sku: str
    quantity: int
    price_cents: int
    status: str
    at: str


def make_orders(count: int, seed: int, first: int = 0) -> Iterator[Order]:
    """Yields orders `first` to `first + count - 1`."""
    for number in range(first, first + count):
        dice = random.Random((seed << 32) | number)  # noqa: S311 - one generator per order, so that any range can be made alone
        bits = dice.getrandbits(64)
        yield Order(
            id=number,
            customer=f"c{bits % CUSTOMERS:05d}",
            sku=f"p{(bits >> 16) % SKUS:04d}",
            quantity=1 + (bits >> 32) % 9,
            price_cents=100 + (bits >> 36) % 20_000,
            status=STATUSES[(bits >> 52) % len(STATUSES)],
            at=f"2026-01-01T{number // 3_600_000 % 24:02d}:{number // 60_000 % 60:02d}:{number // 1000 % 60:02d}Z",
        )


def write_orders(bootstrap: str, topic: str, orders: Iterator[Order], rate: float | None = None) -> int:
    """Produces orders keyed by customer (Java's partitioner), waits until all are delivered, and returns how many.

    `rate` limits records per second, so that faults occur in a pipeline under load.
    """
    import time

    from confluent_kafka import Producer

    failures: list[Any] = []
    settings: Mapping[str, Any] = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 500_000,
        "delivery.report.only.error": True,
        "message.timeout.ms": 120_000,
        "log_level": 0,
        "on_delivery": lambda error, _message: failures.append(error) if error is not None else None,
    }
    producer = Producer(dict(settings))
    producer.list_topics(topic, timeout=30)
    encode = msgspec.json.encode
    sent, started = 0, time.monotonic()
    for order in orders:
        value = encode(order)
        while True:
            try:
                producer.produce(topic, value, order.customer.encode())
                break
            except BufferError:
                producer.poll(0.05)
        sent += 1
        if rate is not None and sent % 200 == 0:
            while (ahead := sent / rate - (time.monotonic() - started)) > 0:  # poll returns at any event
                producer.poll(ahead)
    left = producer.flush(120)
    if left or failures:
        raise RuntimeError(f"{left + len(failures)} of {sent} orders were not delivered: {failures[:1]}")
    return sent
