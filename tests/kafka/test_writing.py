"""How records are handed to the client, and what is made of its reports: a client that plays its part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from tests.kafka.test_writer import ID, Tools, never
from tests.support.records import records_of
from tidegate.formats.records import OutputRecords
from tidegate.ids import TransactionalId
from tidegate.kafka.errors import SinkFailed, SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.writer import ROOM_TIMEOUT_S, TransactionWriter

PURGED = ck.KafkaError._PURGE_QUEUE
ROOM = 5
"""Records that the queue takes by number."""


def error(code: int) -> ck.KafkaError:
    return ck.KafkaError(code, "so it is")


class Client(Tools):
    """Takes records while there is room, and reports what it is given, a list for each poll."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[dict[str, Any]] = []
        self.size_max = 99
        """Records that it takes at all: its queue is full by size then."""
        self.bad: dict[bytes, ck.KafkaError] = {}
        """Values that it refuses."""
        self.reports: list[list[ck.KafkaError]] = []
        self.spoilt: ck.KafkaError | None = None
        """Why the transaction cannot be used any more."""
        self.polled: list[float] = []

    def __len__(self) -> int:
        return len(self.taken) + self.queued

    def produce(self, topic: str, **record: Any) -> None:
        if (found := self.bad.get(record["value"])) is not None:
            raise ck.KafkaException(found)
        if len(self.taken) >= self.size_max:
            raise BufferError
        self.taken.append({"topic": topic, **record})

    def produce_batch(self, topic: str, batch: list[dict[str, Any]]) -> int:
        count = 0
        for record in batch:
            refused = self.bad.get(record["value"])
            if refused is None and len(self.taken) >= self.size_max:
                refused = error(ck.KafkaError._QUEUE_FULL)
            if refused is None:
                self.taken.append({"topic": topic, **record})
                count += 1
            else:
                record["_error"] = refused
        return count

    def poll(self, timeout: float) -> int:
        self.polled.append(timeout)
        self.now += timeout
        for one in self.reports.pop(0) if self.reports else ():
            message = SimpleNamespace(
                topic=lambda: "orders", partition=lambda: 3, key=lambda: b"key", value=lambda: b"value"
            )
            self.made[-1]["on_delivery"](one, message)
        return 0

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self)

    def begin_transaction(self) -> None:
        super().begin_transaction()
        if self.spoilt is not None:
            raise ck.KafkaException(self.spoilt)


def writing(client: Client, identity: TransactionalId | None = None, **more: TopicLimits) -> TransactionWriter:
    """Opened; the sink's one topic is `orders`, unless there are more."""
    user = {"queue.buffering.max.messages": str(ROOM), "message.max.bytes": "5000"}
    properties = derive_producer_properties(user, identity, 60_000)
    topics = {"orders": TopicLimits(batch_bytes=2000), **more}
    writer = TransactionWriter("out", topics, properties, client)
    writer.open(None, never)
    return writer


def rows(*values: bytes | None, **columns: Any) -> OutputRecords:
    return records_of(values, **columns)


@pytest.mark.parametrize("keys", [None, [b"k", None, b"l"]])
def test_keys_and_values_are_handed_over_from_a_row_on(keys: list[bytes | None] | None) -> None:
    client = Client()
    writer = writing(client)
    assert writer.write(rows(b"a", b"b", b"c", keys=keys), 1) == 3
    began = writer.first_record_at
    assert began == client.monotonic()
    sent: list[dict[str, bytes | None]] = [{"value": b"b"}, {"value": b"c"}]
    if keys is not None:
        sent = [{"key": None, "value": b"b"}, {"key": b"l", "value": b"c"}]
    assert client.taken == [{"topic": "orders", **record} for record in sent]
    client.now += 1.0
    writer.write(rows(b"d", topic="others"), 0)
    assert (writer.produced, writer.first_record_at, client.taken[-1]["topic"]) == (3, began, "others")


@pytest.mark.parametrize("columns", [{}, {"partitions": [None] * 9}], ids=["together", "one by one"])
def test_rows_that_find_no_room_are_left_for_later(columns: dict[str, Any]) -> None:
    """By number before the client is asked, by size where it says so."""
    client, batch = Client(), rows(*(bytes([65 + at]) for at in range(9)), **columns)
    writer = writing(client)
    assert (writer.write(batch, 1), writer.room, writer.queued) == (1 + ROOM, 0, ROOM)
    assert writer.write(batch, 1 + ROOM) == 1 + ROOM
    assert [record["value"] for record in client.taken] == [b"B", b"C", b"D", b"E", b"F"]
    client = Client()
    client.size_max = 2
    writer = writing(client)
    assert (writer.write(batch, 1), writer.produced) == (3, 2)
    assert writer.first_record_at is not None


def test_nothing_is_begun_where_there_is_no_room() -> None:
    """The age of a transaction counts from its first record."""
    client = Client()
    client.queued = ROOM
    writer = writing(client)
    assert (writer.write(rows(b"a"), 0), writer.first_record_at, client.taken) == (0, None, [])


def test_a_queue_that_was_full_for_one_row_and_not_for_a_later_one_fails_the_transaction() -> None:
    """Sent again, it would come after the other one."""
    client = Client()
    client.bad[b"a"] = error(ck.KafkaError._QUEUE_FULL)
    with pytest.raises(SinkFailed, match="out of order"):
        writing(client).write(rows(b"a", b"b"), 0)


@pytest.mark.parametrize("columns", [{}, {"headers": [None] * 3}], ids=["together", "one by one"])
@pytest.mark.parametrize("keys", [None, [b"key"] * 3])
def test_a_record_that_the_client_refuses_is_told_with_its_size(columns: dict[str, Any], keys: Any) -> None:
    client = Client()
    client.bad[b"too large"] = error(ck.KafkaError.MSG_SIZE_TOO_LARGE)
    size = 9 if keys is None else 12
    told = rf"key and value have {size} bytes; max\.message\.bytes of topic orders is 2000, .* is 5000"
    with pytest.raises(SinkRefused, match=told) as refused:
        writing(client).write(rows(b"a", b"too large", b"b", keys=keys, **columns), 0)
    assert refused.value.fields == {"sink": "out", "topic": "orders"}
    with pytest.raises(SinkRefused, match=r"max\.message\.bytes of topic others is not visible to this user"):
        batch = rows(b"too large", b"a", b"b", topic="others", **columns)
        writing(client, others=TopicLimits()).write(batch, 0)


def test_all_that_a_row_may_set_is_set() -> None:
    """0 is the client's word for the time of sending, -1 for a partition by the key."""
    client = Client()
    batch = rows(
        b"a", None, keys=[None, b"k"], timestamps_ms=[7, None], headers=[[("h", b"1")], None], partitions=[2, None]
    )
    assert writing(client).write(batch, 0) == 2
    assert client.taken == [
        {"topic": "orders", "value": b"a", "key": None, "partition": 2, "timestamp": 7, "headers": [("h", b"1")]},
        {"topic": "orders", "value": None, "key": b"k", "partition": -1, "timestamp": 0, "headers": None},
    ]
    client = Client()
    assert writing(client, others=TopicLimits()).write(rows(b"a", partitions=[0], topic="others"), 0) == 1
    assert client.taken == [
        {"topic": "others", "value": b"a", "key": None, "partition": 0, "timestamp": 0, "headers": None}
    ]


def read(timestamp_ms: int, headers: Any) -> Any:
    return SimpleNamespace(
        timestamp=lambda: (1, timestamp_ms),
        value=lambda: b"v",
        key=lambda: b"k",
        partition=lambda: 4,
        headers=lambda: headers,
    )


def test_a_message_is_repeated_with_all_it_has_and_waits_for_room() -> None:
    client = Client()
    client.size_max = 0
    writer = writing(client)
    make_room = client.poll

    def poll(timeout: float) -> int:
        if client.now > 50.0:
            client.size_max = 9
        return make_room(timeout)

    client.poll = poll  # type: ignore[method-assign]  # there is room later
    writer.repeat(read(7, [("h", b"1")]))
    writer.repeat(read(-1, None))
    one = {"topic": "orders", "value": b"v", "key": b"k", "partition": 4, "timestamp": 7, "headers": [("h", b"1")]}
    assert client.taken == [one, {**one, "timestamp": 0, "headers": None}]
    assert writer.produced == 2
    assert 50.0 < client.now < 51.0


def test_a_message_that_finds_no_room_or_is_refused_is_told() -> None:
    client = Client()
    client.size_max = 0
    with pytest.raises(SinkFailed, match="the client's queue stays full"):
        writing(client).repeat(read(7, None))
    assert ROOM_TIMEOUT_S < client.now < ROOM_TIMEOUT_S + 1.0
    client.bad[b"v"] = error(ck.KafkaError.INVALID_RECORD)
    with pytest.raises(SinkRefused, match=r"so it is.*a record without a key in a compacted topic"):
        writing(client).repeat(read(7, None))


def test_the_first_record_that_is_not_delivered_is_told_and_all_are_counted() -> None:
    client = Client()
    client.reports = [[], [error(ck.KafkaError._MSG_TIMED_OUT), error(ck.KafkaError.INVALID_RECORD)]]
    writer = writing(client)
    writer.poll()
    told = r"not delivered: orders\[3\]: so it is \(_MSG_TIMED_OUT\); it waited .*quota.*queue\.buffering\.max\.kbytes"
    with pytest.raises(SinkFailed, match=told):
        writer.poll()
    assert (writer.delivery_errors, writer.refused) == (2, False)
    assert client.polled == [0, 0], "nothing more is waited for"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ck.KafkaError.INVALID_RECORD, r"orders\[3\]: .*a record without a key in a compacted topic"),
        (ck.KafkaError.MSG_SIZE_TOO_LARGE, r"orders\[3\]: .*key and value have 8 bytes"),
    ],
)
def test_a_record_that_a_broker_refuses_is_told_also_where_others_are_given_up_before(code: int, told: str) -> None:
    client = Client()
    client.reports = [[error(PURGED)], [], [error(PURGED), error(code)]]
    with pytest.raises(SinkRefused, match=told):
        writing(client).poll()


@pytest.mark.parametrize(
    ("code", "stamps"),
    [
        (ck.KafkaError.INVALID_TIMESTAMP, True),
        (ck.KafkaError.INVALID_RECORD, True),  # of several in a batch
        (ck.KafkaError.MSG_SIZE_TOO_LARGE, False),
    ],
)
def test_it_is_known_whether_timestamps_may_be_what_a_broker_refuses(code: int, stamps: bool) -> None:
    client = Client()
    client.reports = [[error(PURGED), error(code), error(ck.KafkaError._MSG_TIMED_OUT)]]
    writer = writing(client)
    assert not writer.stamps_refused
    with pytest.raises(SinkRefused):
        writer.poll()
    assert writer.stamps_refused == stamps


def test_a_reason_that_does_not_come_is_not_waited_for_long() -> None:
    client = Client()
    client.reports = [[error(PURGED)]]
    with pytest.raises(SinkFailed, match="_PURGE_QUEUE"):
        writing(client).poll()
    assert 1.0 <= client.now < 1.2


@pytest.mark.parametrize("at_edge", [False, True])
def test_a_timestamp_that_is_refused_near_a_limit_is_tried_again(at_edge: bool) -> None:
    """By then the time has gone on; one that was not near at a limit would be refused again."""
    client = Client()
    client.reports = [[error(ck.KafkaError.INVALID_TIMESTAMP)]]
    writer = writing(client)
    writer.write(rows(b"a", at_edge=at_edge), 0)
    writer.write(rows(b"b"), 0)
    with pytest.raises(SinkFailed if at_edge else SinkRefused, match="INVALID_TIMESTAMP"):
        writer.poll()


def test_a_transaction_that_is_the_reason_itself_is_asked_for_it() -> None:
    """All its records were given up, and none of them was the reason: it takes no partition, say."""
    client = Client()
    client.reports = [[error(PURGED)]]
    client.spoilt = ck.KafkaError(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, "it may not", False, False, True)
    writer = writing(client, ID)
    for _ in range(2):
        with pytest.raises(
            SinkRefused, match=r"orders: it may not \(TOPIC_AUTHORIZATION_FAILED\); grant WRITE and READ"
        ):
            writer.poll()
    assert client.begun == 1, "then it is known"
    client.reports, client.begun = [[error(PURGED)]], 0
    with pytest.raises(SinkFailed, match="_PURGE_QUEUE"):
        writing(client).poll()
    assert client.begun == 0, "there is no transaction"
    client.reports = [[error(PURGED)]]
    client.spoilt = error(ck.KafkaError._STATE)
    with pytest.raises(SinkFailed, match="_PURGE_QUEUE"):
        writing(client, ID).poll()


def test_a_flush_ends_when_all_is_delivered_or_its_time_is_over_or_it_is_stopped() -> None:
    client = Client()
    writer = writing(client, ID)
    assert (writer.flush(10.0, never), client.begun) == (0, 0)
    writer.write(rows(b"a", b"b"), 0)
    client.now = 0.0
    assert writer.flush(10.0, never) == 2
    assert 10.0 < client.now <= 11.0
    client.now = 0.0
    assert writer.flush(10.0, lambda: client.now > 3.0) == 2
    assert 3.0 < client.now <= 4.0
    client.taken.clear()
    client.reports, client.spoilt = [[error(PURGED)]], ck.KafkaError(ck.KafkaError.POLICY_VIOLATION, "no", True)
    assert writer.flush(10.0, never) == 0
    assert (writer.refused, writer.first_error) == (True, "orders: no (POLICY_VIOLATION)")


@pytest.mark.parametrize("delivered_s", [0.003, 0.02, 1.5])
def test_a_flush_ends_soon_after_the_last_delivery_of_which_nothing_tells(delivered_s: float) -> None:
    """A call of the client's `flush` notices it only when its own time is over."""
    client = Client()
    writer = writing(client, ID)
    writer.write(rows(b"a", b"b"), 0)
    client.now = 0.0

    def flush(timeout: float) -> int:
        client.now += timeout
        if client.now >= delivered_s:
            client.taken.clear()
        return len(client)

    client.flush = flush  # type: ignore[method-assign]  # of this client only
    assert writer.flush(10.0, never) == 0
    assert client.now <= delivered_s * 1.13 + 0.001


RAISED = [ck.KafkaException(error(ck.KafkaError._FATAL)), SystemError("a pending callback"), SystemError()]


@pytest.mark.parametrize("raised", RAISED)
def test_whatever_the_client_raises_is_an_error_of_the_sink_with_the_first_delivery_error(raised: Exception) -> None:
    client = Client()
    writer = writing(client)
    client.reports = [[error(ck.KafkaError._MSG_TIMED_OUT)]]
    with pytest.raises(SinkFailed):
        writer.poll()

    def fail(timeout: float) -> int:
        raise raised

    client.flush = fail  # type: ignore[method-assign]  # from now on
    told = r"sink out, topic orders: .*(_FATAL|a pending callback|SystemError\(\)).*; first delivery error: orders"
    with pytest.raises(SinkFailed, match=told) as failed:
        writer.flush(10.0, never)
    assert failed.value.fields == {"sink": "out", "topic": "orders"}


@pytest.mark.parametrize("raised", RAISED)
def test_whatever_the_client_raises_hides_no_reason(raised: Exception) -> None:
    client = Client()
    client.reports = [[error(PURGED)]]
    poll = client.poll

    def fail(timeout: float) -> int:
        if not client.reports:
            raise raised
        return poll(timeout)

    client.poll = fail  # type: ignore[method-assign]  # after the first report
    with pytest.raises(SinkFailed, match=r"a record was not delivered: .*_PURGE_QUEUE"):
        writing(client).poll()


def test_a_client_that_is_broken_takes_no_record() -> None:
    client = Client()

    def fail(topic: str, **record: Any) -> None:
        raise SystemError

    client.produce = fail  # type: ignore[method-assign]  # whatever it is
    with pytest.raises(SinkFailed, match=r"topic orders: SystemError\(\)"):
        writing(client).write(rows(b"a", partitions=[0]), 0)
    with pytest.raises(SinkFailed, match=r"topic orders: SystemError\(\)"):
        writing(client).repeat(read(7, None))


def test_what_follows_a_refused_record_fails_with_the_reason_of_the_first() -> None:
    """The client says only that its state is wrong; its report of the record comes later."""
    client = Client()
    client.bad[b"b"] = error(ck.KafkaError._STATE)
    client.reports = [[], [error(ck.KafkaError.INVALID_RECORD)]]
    with pytest.raises(SinkRefused, match=r"the broker refuses a record: .*without a key in a compacted topic"):
        writing(client).write(rows(b"b"), 0)
