"""Both ways of handing records to a real client, whose brokers are never there: what it takes, and what it reports."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import SkipTest

import confluent_kafka as ck
import polars as pl
import pytest

from tests.support import clients
from tests.support.records import records_of
from tests.waiting import wait_until
from tidegate.formats.records import OutputRecords
from tidegate.kafka.producing import ClientProducing, NativeProducing, Producing, RecordNotTaken, open_producing

QUEUE = 4
PARTITIONS = 3
LARGEST = 2_000
Reported = list[tuple[str, str, int, int]]
"""Name of the error, topic, partition, and bytes of key and value."""


class Reports:
    """What a producer reports by its own callback."""

    def __init__(self) -> None:
        self._found: Reported = []

    def add(self, error: ck.KafkaError, message: ck.Message) -> None:
        size = len(message.key() or b"") + len(message.value() or b"")
        self._found.append((error.name(), message.topic() or "", message.partition() or 0, size))

    def take(self) -> Reported:
        found, self._found = self._found, []
        return found


class Outlet:
    """A producer, one of the ways into it, and what it has reported by its own callback."""

    def __init__(self, native: bool) -> None:
        self.closed = False
        self.reported = reported = Reports()
        self.producer = clients.producer(
            {
                "bootstrap.servers": "127.0.0.1:1",
                "queue.buffering.max.messages": QUEUE,
                "message.max.bytes": LARGEST,
                "delivery.report.only.error": True,
                "on_delivery": reported.add,
            }
        )
        self.way: Producing = open_producing(self.producer) if native else ClientProducing(self.producer)
        if native and not isinstance(self.way, NativeProducing):
            raise SkipTest("records are not handed over in C here")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.producer.purge()
            self.producer.poll(0)
            self.way.close()
            del self.producer

    def undelivered(self) -> tuple[int, Reported]:
        """How many there are, and those of different errors, whichever way they are reported."""
        count, found = self.way.take_undelivered()
        mine = self.reported.take()
        told = [(one.error.name(), one.topic, one.partition, one.size_bytes) for one in found]
        return count + len(mine), list({one[0]: one for one in reversed([*mine, *told])}.values())


@pytest.fixture(params=[True, False], ids=["in C", "by the client"])
def outlet(request: pytest.FixtureRequest) -> Iterator[Outlet]:
    one = Outlet(request.param)
    yield one
    one.close()


def given(*values: bytes | None, whole: bool = True) -> OutputRecords:
    """Records of these values; with all parts, or without any other."""
    if not whole:
        return records_of(values)
    count = range(len(values))
    headers = [None, [], [("a", None), ("a", b""), ("ü", b"\0")]]
    return records_of(
        values,
        [b"k" * number if number else None for number in count],
        [None if number == 1 else number for number in count],
        [headers[number % 3] for number in count],
        [None if number == 2 else number for number in count],
    )


@pytest.mark.parametrize("whole", [True, False], ids=["all parts", "values"])
def test_records_are_taken_in_order_until_the_queue_is_full(outlet: Outlet, whole: bool) -> None:
    records = given(*(b"%d" % number for number in range(9)), whole=whole)
    assert outlet.way.produce("t", records, 0, 3, PARTITIONS) == 3
    assert outlet.way.produce("t", records, 3, 9, PARTITIONS) == QUEUE
    assert outlet.way.produce("t", records, QUEUE, 9, PARTITIONS) == QUEUE


@pytest.mark.parametrize("whole", [True, False], ids=["all parts", "values"])
def test_a_record_that_the_client_refuses_is_named(outlet: Outlet, whole: bool) -> None:
    records = given(b"a", None, b"c" * (LARGEST + 1), b"d", whole=whole)
    with pytest.raises(RecordNotTaken) as raised:
        outlet.way.produce("t", records, 0, 4, 0)
    reason = raised.value.reason
    assert isinstance(reason, ck.KafkaError)
    assert (reason.name(), raised.value.row) == ("MSG_SIZE_TOO_LARGE", 2)


def test_records_that_are_not_delivered_are_counted_and_the_first_of_each_error_is_kept(outlet: Outlet) -> None:
    assert outlet.undelivered() == (0, [])
    records = given(b"value", b"", None)
    assert outlet.way.produce("t", records, 0, 2, PARTITIONS) == 2
    outlet.producer.purge()
    wait_until(lambda: outlet.producer.poll(0.01) == 0 and not len(outlet.producer), "all are given up")
    assert outlet.undelivered() == (2, [("_PURGE_QUEUE", "t", 0, 5)])
    assert outlet.undelivered() == (0, [])


def test_nothing_is_handed_to_a_producer_that_was_given_up(outlet: Outlet) -> None:
    outlet.close()
    with pytest.raises((RuntimeError, AttributeError)):
        outlet.way.produce("t", given(b"a"), 0, 1, PARTITIONS)


def test_what_is_no_bytes_is_an_error_of_python(outlet: Outlet) -> None:
    records = OutputRecords(pl.Series([b"a", b"b"]), partitions=pl.Series([0.5, 1.5]))
    with pytest.raises((TypeError, SystemError)):
        outlet.way.produce("t", records, 0, 2, PARTITIONS)
