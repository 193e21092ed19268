"""Load on a pipeline and observation of its output: a thread writes orders, another reads what is committed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Self

import msgspec

from tests.support import clients
from tests.waiting import wait_until
from tidegate.dev.demo.verify import Order, make_orders

TICK_S = 0.2


class OrderWriter:
    """Produces orders 0, 1, 2 ... at a steady rate until stopped; delivery survives broker restarts."""

    def __init__(self, bootstrap: str, topic: str, seed: int, rate: float) -> None:
        self.orders: list[Order] = []
        """All orders handed over; complete only after `stop` has returned."""
        self.change: Callable[[Order], Order] = lambda order: order
        """Applied to each order before it is written."""
        self._bootstrap, self._topic, self._seed, self._rate = bootstrap, topic, seed, rate
        self._stop = threading.Event()
        self._pause = threading.Event()
        self._paused = threading.Event()
        self._errors: list[Exception] = []
        self._thread = threading.Thread(target=self._write, name="orders", daemon=True)

    def start(self) -> Self:
        """Starts writing."""
        self._thread.start()
        return self

    @property
    def idle(self) -> bool:
        """True if not started yet."""
        return self._thread.ident is None

    def abandon(self) -> None:
        """Stops without checking for errors, because the test is over."""
        self._stop.set()
        if not self.idle:
            self._thread.join(10)

    def pause(self, timeout_s: float = 150) -> int:
        """Pauses the load; returns the number of orders so far, all of them delivered."""
        self._paused.clear()
        self._pause.set()
        assert self._paused.wait(timeout_s), f"the writer did not pause: {self._errors}"
        return len(self.orders)

    @property
    def paused(self) -> bool:
        """True if all orders so far are delivered and no further one is written."""
        return self._pause.is_set() and self._paused.is_set()

    def resume(self) -> None:
        """Continues after a pause, with the partitions that the topic has by now."""
        self._pause.clear()

    def stop(self, timeout_s: float = 150) -> list[Order]:
        """Ends the load and returns all orders written. Raises the error that ended the writer."""
        self._stop.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the writer hangs"
        if self._errors:
            raise self._errors[0]
        return self.orders

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                if self._pause.is_set():
                    self._paused.set()
                    self._stop.wait(TICK_S)
                else:
                    self._write_until_paused()
        except Exception as error:  # noqa: BLE001 - reported by stop()
            self._errors.append(error)

    def _write_until_paused(self) -> None:

        failures: list[object] = []
        settings = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
            "message.timeout.ms": 900_000,
            "on_delivery": lambda error, _message: failures.append(error) if error is not None else None,
        }
        encode = msgspec.json.encode
        per_tick = max(1, int(self._rate * TICK_S))
        producer = clients.producer(dict(settings))
        while not self._stop.is_set() and not self._pause.is_set():
            due = time.monotonic() + TICK_S
            for order in map(self.change, make_orders(per_tick, self._seed, first=len(self.orders))):
                producer.produce(self._topic, encode(order), order.customer.encode())
                self.orders.append(order)
            producer.poll(0)
            self._stop.wait(due - time.monotonic())
        left = producer.flush(120)
        assert not (left or failures), f"{left + len(failures)} orders were not delivered: {failures[:1]}"


class _Row(msgspec.Struct):
    id: int = -1
    last_id: int = -1


class OutputReader:
    """A read-committed reader of several topics that lives as long as the test and counts the orders seen in each."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self._bootstrap, self._topics = bootstrap, topics
        self._stop = threading.Event()
        self._seen: dict[str, set[int]] = {topic: set() for topic in topics}
        self._errors: list[Exception] = []
        self.errors: deque[str] = deque(maxlen=10)
        """The last ignored errors, for the message of a failure."""
        self._thread = threading.Thread(target=self._read, name="outputs", daemon=True)

    def start(self) -> Self:
        """Starts reading."""
        self._thread.start()
        return self

    @property
    def idle(self) -> bool:
        """True if not started yet."""
        return self._thread.ident is None

    def count(self, topic: str) -> int:
        """Returns the number of distinct orders in the topic's committed records."""
        if self._errors:
            raise self._errors[0]
        return len(self._seen[topic])

    def wait_more(self, topic: str, count: int = 1, timeout_s: float = 120) -> None:
        """Waits until `count` more orders are visible."""
        target = self.count(topic) + count
        wait_until(lambda: self.count(topic) >= target, f"{count} more orders in {topic}", timeout_s)

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(30)

    def _read(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "tidegate-test-outputs",
            "auto.offset.reset": "earliest",  # if a log was truncated, no record may be skipped
            "socket.timeout.ms": 15_000,  # 60 s by default, for which a hanging broker would block the reader
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
        }
        decode = msgspec.json.Decoder(_Row).decode
        consumer = clients.consumer(dict(settings))
        try:
            parts = [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in self._topics
                for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions
            ]
            consumer.assign(parts)
            while not self._stop.is_set():
                for message in consumer.consume(2000, 0.1):
                    if message.error() is not None:
                        self.errors.append(str(message.error()))
                    else:
                        row = decode(message.value() or b"{}")
                        self._seen[message.topic() or ""].add(max(row.id, row.last_id))
        except Exception as error:  # noqa: BLE001 - reported by count()
            self._errors.append(error)
        finally:
            consumer.close()
