"""Fetches records from a client: as its message objects, or in place, where C can read them (ADR 67)."""

from __future__ import annotations

import ctypes
import logging
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol

import confluent_kafka as ck
from typing_extensions import override

from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceUnavailable
from tidegate.native.library import Library, find_library
from tidegate.native.librdkafka import Librdkafka, Message, find_librdkafka
from tidegate.sources.messages import KafkaMessages, Records
from tidegate.sources.native_messages import Columns, Loans, NativeMessages, address_of, room_of

_LOG = logging.getLogger("tidegate.sources")

_EVENTS_AT_ONCE: Final = 100
NO_OFFSET: Final = ck.OFFSET_INVALID
_FATAL: Final = ck.KafkaError._FATAL  # noqa: SLF001  # the client's own codes begin with an underscore; they are public


class FetchEvent(NamedTuple):
    """The end of a partition, or an error."""

    partition: TopicPartition
    offset: int
    """Negative if there is none."""
    error: ck.KafkaError


class Fetched(NamedTuple):
    """Fetched records and events, each in order."""

    records: Records
    events: Sequence[FetchEvent]

    def before_events(self) -> Records:
        """Returns the records up to the first one that is not before every event of its partition.

        In front of that record, the client may have skipped others.
        """
        places: dict[TopicPartition, int] = {}
        for part, offset, _ in self.events:
            places[part] = min(offset, places.get(part, offset))
        parts = map(TopicPartition, self.records.topics, self.records.partitions)
        rows = enumerate(zip(parts, self.records.offsets, strict=True))
        found = (row for row, (part, offset) in rows if offset >= places.get(part, offset + 1))
        return self.records.part(0, next(found, len(self.records)))


class FetchClient(Protocol):
    """The part of a consumer used here."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Works like confluent_kafka.Consumer.consume."""


class Fetcher(Protocol):
    """A fetcher for one client, on the thread that owns it."""

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Announces the partitions that are assigned next."""

    wakes: bool
    """Whether `wake` has an effect."""

    def wait(self, seconds: float) -> bool:
        """Waits, and returns whether anything arrived; `take` includes it."""

    def wake(self) -> None:
        """Ends a wait in progress, or else the next one. Safe from any thread until `close`."""

    def take(self, room: int) -> Fetched:
        """Takes up to `room` records and events, including what `wait` has seen."""

    def close(self) -> None:
        """Ends fetching, before the client is closed. Fetched records can no longer be read."""


class MessageFetcher(Fetcher):
    """A fetcher of message objects."""

    wakes = False

    def __init__(self, client: FetchClient) -> None:
        self._client = client
        self._first: list[ck.Message] = []

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Does nothing."""

    @override
    def wait(self, seconds: float) -> bool:
        self._first = self._client.consume(1, seconds)
        return bool(self._first)

    @override
    def take(self, room: int) -> Fetched:
        messages, self._first = self._first, []
        if room > len(messages):
            messages += self._client.consume(room - len(messages), 0)
        if not any(map(ck.Message.error, messages)):  # `== None` leaks an exception in the client: never by `==`
            return Fetched(KafkaMessages(messages), ())
        records = [message for message in messages if message.error() is None]
        return Fetched(KafkaMessages(records), _events_of(messages))

    def wake(self) -> None:
        """Does nothing: the client has no means for it."""

    def close(self) -> None:
        """Does nothing: message objects outlive their client."""


class NativeFetcher(Fetcher):
    """A fetcher that reads records in place.

    Partitions are redirected to our own queue, which C reads. The client's queue keeps the events that invoke its
    callbacks, which only its own functions may invoke. However, the event that a topic has become unknown comes through
    a partition's queue and also has a callback. Therefore this class reports errors of both queues to `on_error`.
    """

    wakes = True

    def __init__(
        self,
        library: Library,
        client: Librdkafka,
        consumer: ck.Consumer,
        handle: int,
        on_error: Callable[[ck.KafkaError], None],
    ) -> None:
        self._library, self._lib = library, client
        self._consumer, self._handle = consumer, handle
        self._queue = client.queue_new(handle)
        self._loans = Loans(library, client)
        self._messages = array("Q")
        """Addresses; the first `_waiting` ones are of messages not taken yet."""
        self._waiting = 0
        self._events: list[FetchEvent] = []
        self._reporting = client.report_errors(handle, lambda code, text: on_error(ck.KafkaError(code, text)))
        """Must outlive the client."""

    @override
    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Redirects the partitions; an assignment keeps the redirection."""
        for part in partitions:
            queue = self._lib.queue_get_partition(self._handle, part.topic.encode(), part.partition)
            self._lib.queue_forward(queue, self._queue)
            self._lib.queue_destroy(queue)

    @override
    def wait(self, seconds: float) -> bool:
        self._take_events()
        if not (self._waiting or self._events):
            self._reserve(1)
            self._waiting = self._consume(0, 1, round(seconds * 1000))
        return bool(self._waiting or self._events)

    @override
    def wake(self) -> None:
        self._lib.queue_yield(self._queue)

    @override
    def take(self, room: int) -> Fetched:
        self._reserve(max(room, 1))
        found, self._waiting = self._waiting, 0
        if room > found:
            found += self._consume(found, room - found, 0)
        columns, others, counts = Columns.of(found), room_of("Q", found), room_of("q", 3)
        columns.messages = self._messages[:found]
        arrays = (others, columns.values, columns.lengths, columns.partitions, columns.offsets, columns.topics, counts)
        self._library.free.tg_scan(address_of(columns.messages), found, *map(address_of, arrays))
        records, events, size_bytes = counts
        columns = columns[:records] if events else columns
        loan = self._loans.add(columns.messages)
        messages = NativeMessages(self._loans, frozenset({loan}), columns, size_bytes)
        told, self._events = self._events, []
        told += [self._event_of(others[place]) for place in range(events)]
        return Fetched(messages, told)

    @override
    def close(self) -> None:
        self._loans.end()
        for place in range(self._waiting):
            self._lib.message_destroy(self._messages[place])
        self._waiting = 0
        self._lib.queue_destroy(self._queue)

    def _consume(self, start: int, count: int, timeout_ms: int) -> int:
        at = address_of(self._messages) + start * self._messages.itemsize
        found: int = self._lib.consume_batch_queue(self._queue, timeout_ms, at, count)
        return max(0, found)

    def _reserve(self, capacity: int) -> None:
        """Makes room for `capacity` messages; keeps those that wait."""
        self._messages.extend(room_of("Q", max(0, capacity - len(self._messages))))

    def _take_events(self) -> None:
        """Takes the events that invoke callbacks, and errors of the client as a whole."""
        messages = self._consumer.consume(_EVENTS_AT_ONCE, 0)
        for message in messages:
            if message.error() is None:
                raise SourceUnavailable(
                    f"a record of {message.topic()} came by another way than its partition was sent"
                )
        self._events += _events_of(messages)

    def _event_of(self, at: int) -> FetchEvent:
        one = Message.from_address(at)
        text = ctypes.string_at(one.value, one.value_size).decode(errors="replace") if one.value else None
        topic = self._lib.topic_name(one.topic).decode() if one.topic else ""
        event = FetchEvent(
            TopicPartition(topic, one.partition), one.offset, ck.KafkaError(one.err, text, one.err == _FATAL)
        )
        self._lib.message_destroy(at)
        return event


def _events_of(messages: Sequence[ck.Message]) -> list[FetchEvent]:
    found = ((message, message.error()) for message in messages)
    return [
        FetchEvent(TopicPartition(one.topic() or "", one.partition() or 0), _offset_of(one), error)
        for one, error in found
        if error is not None
    ]


def _offset_of(message: ck.Message) -> int:
    """Returns the offset, or NO_OFFSET, since the Python client hides librdkafka's negative ones."""
    offset = message.offset()
    return NO_OFFSET if offset is None else offset


def open_fetcher(client: FetchClient, on_error: Callable[[ck.KafkaError], None]) -> Fetcher:
    """Returns an in-place fetcher if possible, which requires a client of the library itself; errors go to
    `on_error`.
    """
    if not isinstance(client, ck.Consumer):
        return MessageFetcher(client)
    library, lib = find_library(), find_librdkafka()
    if not isinstance(library, Library) or not isinstance(lib, Librdkafka):
        _report("; ".join(reason for reason in (library, lib) if isinstance(reason, str)))
        return MessageFetcher(client)
    handle = lib.handle_of(client)
    if not handle:
        _report("the client's handle was not found")
        return MessageFetcher(client)
    return NativeFetcher(library, lib, client, handle, on_error)


@cache
def _report(reason: str) -> None:
    """Logs the reason once per process: not a defect, but it explains the CPU time."""
    _LOG.info("records are read as message objects, which takes more CPU time: %s", reason)
