"""What librdkafka says of topics, places and logs, at its own mock cluster, by both ways in which records come."""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import confluent_kafka as ck
import pytest

from tests.sources.ways import WAYS, Way
from tests.support import clients
from tests.waiting import wait_until
from tidegate.ids import TopicPartition
from tidegate.native.library import Address
from tidegate.native.librdkafka import Librdkafka, find_librdkafka
from tidegate.sources.fetching import Fetcher, FetchEvent

pytestmark = pytest.mark.slow

P0: Final = TopicPartition("orders", 0)
FETCH: Final = 1
END: Final = ck.KafkaError._PARTITION_EOF
UNKNOWN: Final = ck.KafkaError.UNKNOWN_TOPIC_OR_PART


class MockCluster:
    """One broker with the topic `orders` of one partition, in this process."""

    def __init__(self) -> None:
        lib = find_librdkafka()
        if not isinstance(lib, Librdkafka):
            pytest.fail(f"the mock cluster is out of reach: {lib}")
        self._library = ctypes.CDLL(ck.cimpl.__file__)
        self._owner = clients.producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1})
        self._cluster = self._call("handle_mock_cluster", Address, Address(lib.handle_of(self._owner)))
        self.bootstrap = self._call("mock_cluster_bootstraps", ctypes.c_char_p, Address(self._cluster)).decode()
        self._call("mock_topic_create", ctypes.c_int, Address(self._cluster), b"orders", 1, 1)
        self._producer = clients.producer({"bootstrap.servers": self.bootstrap})

    def _call(self, name: str, result: Any, *arguments: Any) -> Any:
        function = getattr(self._library, f"rd_kafka_{name}")
        function.restype = result
        return function(*arguments)

    def close(self) -> None:
        """The cluster ends with its owner."""
        self._producer.close()
        self._owner.close()

    def put(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce("orders", value)
        assert self._producer.flush(30) == 0

    def put_damaged(self, codec: int = 0, magic: int = 2) -> None:
        """A batch of three records that are none; the mock cluster takes it as it is."""
        body = struct.pack(">hiqqqhii", codec, 2, 1000, 1000, -1, -1, -1, 3) + b"garbage" * 10
        rest = struct.pack(">ibI", 0, magic, 0) + body
        batch = struct.pack(">qi", 0, len(rest)) + rest
        head = struct.pack(">hhihhhi", 0, 3, 1, -1, -1, 1, 5000)  # Produce, version 3
        asked = head + struct.pack(">ih6siii", 1, 6, b"orders", 1, 0, len(batch)) + batch
        host, port = self.bootstrap.split(":")
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(struct.pack(">i", len(asked)) + asked)
            (answer_bytes,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            answer = connection.recv(answer_bytes, socket.MSG_WAITALL)
        assert struct.unpack_from(">h", answer, 24) == (ck.KafkaError.NO_ERROR,)

    def tell(self, code: int) -> None:
        """What is said of the topic from now on."""
        self._call("mock_topic_set_error", None, Address(self._cluster), b"orders", code)

    def refuse(self, *codes: int) -> None:
        """The next fetches."""
        errors = (ctypes.c_int * len(codes))(*codes)
        arguments = ctypes.c_int16(FETCH), ctypes.c_size_t(len(codes)), errors
        self._call("mock_push_request_errors_array", None, Address(self._cluster), *arguments)


class Reading:
    """A client of it, and what came."""

    def __init__(self, cluster: MockCluster, way: str) -> None:
        self.errors: list[ck.KafkaError] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "tests",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "topic.metadata.propagation.max.ms": 0,
        }
        self.client = clients.consumer(settings, error_cb=self.errors.append)
        self.fetcher: Fetcher = Way(way).fetcher(self.client, self.errors.append)
        self.values: list[bytes | None] = []
        self.events: list[FetchEvent] = []

    def assign(self, offset: int, leader_epoch: int = -1) -> None:
        self.fetcher.expect([P0])
        self.client.assign([ck.TopicPartition("orders", 0, offset, leader_epoch=leader_epoch)])

    def look(self) -> None:
        if self.fetcher.wait(0.1):
            records, events = self.fetcher.take(100)
            self.values += records.values
            self.events += [event for event in events if event.error.code() != END]

    def read(self, *values: bytes) -> None:
        """Until it has these."""

        def has_them() -> bool:
            self.look()
            return self.values == list(values)

        wait_until(has_them, f"records: {values}")

    def wait_event(self) -> FetchEvent:
        def has_one() -> bool:
            self.look()
            return bool(self.events)

        wait_until(has_one, "an event")
        return self.events.pop(0)

    def close(self) -> None:
        self.fetcher.close()
        self.client.close()


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    made = MockCluster()
    yield made
    made.close()


@pytest.fixture(params=WAYS)
def reading(cluster: MockCluster, request: pytest.FixtureRequest) -> Iterator[Reading]:
    made = Reading(cluster, request.param)
    yield made
    made.close()


def test_a_topic_that_the_brokers_do_not_know_for_a_while_is_read_on_from_where_it_was(
    cluster: MockCluster, reading: Reading
) -> None:
    """The client calls a callback for that while a partition's queue is read: by our own call it ended the process."""
    cluster.put(b"a", b"b")
    reading.assign(0)
    reading.read(b"a", b"b")
    cluster.tell(UNKNOWN)

    def is_told() -> bool:
        reading.client.list_topics("orders", timeout=30)
        reading.look()
        return any(error.code() == UNKNOWN for error in reading.errors)

    wait_until(is_told, "the topic is unknown")
    assert "topic does not exist" in next(error.str() for error in reading.errors if error.code() == UNKNOWN)
    cluster.tell(ck.KafkaError.NO_ERROR)
    wait_until(lambda: reading.client.list_topics("orders", timeout=30).topics["orders"].error is None, "it is back")
    cluster.put(b"c")
    reading.read(b"a", b"b", b"c")
    assert reading.events == []


def test_what_cannot_be_fetched_is_told_again_at_the_same_place(cluster: MockCluster, reading: Reading) -> None:
    cluster.put(b"a", b"b")
    reading.assign(0)
    reading.read(b"a", b"b")
    cluster.refuse(*[ck.KafkaError.INVALID_MSG] * 4)  # a fetch that is under way swallows one
    for _ in range(2):
        part, offset, error = reading.wait_event()
        assert (part, offset, error.code()) == (P0, 2, ck.KafkaError.INVALID_MSG)
        assert not error.retriable(), "which says nothing of whether it is tried again"
    cluster.put(b"c")
    reading.read(b"a", b"b", b"c")


GZIP: Final = 1
NO_CODEC: Final = 6


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        ({"codec": GZIP}, ck.KafkaError._BAD_COMPRESSION),
        ({"codec": NO_CODEC}, ck.KafkaError._NOT_IMPLEMENTED),
        ({"magic": 7}, ck.KafkaError._NOT_IMPLEMENTED),
    ],
)
def test_a_batch_that_cannot_be_read_is_named_and_nothing_after_it_comes(
    cluster: MockCluster, reading: Reading, batch: dict[str, int], code: int
) -> None:
    cluster.put(b"a", b"b")
    cluster.put_damaged(**batch)
    cluster.put(b"c")
    reading.assign(0)
    part, offset, error = reading.wait_event()
    assert (part, offset, error.code()) == (P0, 2, code)
    assert reading.values == [b"a", b"b"]


def test_a_log_that_ends_before_what_was_read_is_told_without_an_offset(cluster: MockCluster, reading: Reading) -> None:
    cluster.put(b"a", b"b")
    reading.assign(700, leader_epoch=0)
    part, offset, error = reading.wait_event()
    assert (part, offset, error.code()) == (P0, ck.OFFSET_INVALID, ck.KafkaError._AUTO_OFFSET_RESET)
    assert "truncation detected at offset 700" in error.str()
    assert error.str().count(ck.KafkaError(ck.KafkaError._LOG_TRUNCATION).str()) == 1
