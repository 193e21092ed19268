"""The demo's input: orders that are a pure function of (seed, number), so that every output can be recomputed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

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
