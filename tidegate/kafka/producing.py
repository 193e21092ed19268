"""Hands records to a producer: by calls of its client, or in C, where it can (ADR 82).

Both ways keep the order of the records, and stop in front of the first one that the client does not take.
"""

from __future__ import annotations

import ctypes
import logging
from array import array
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import confluent_kafka as ck
from typing_extensions import override

from tidegate.native.library import Address, Library, find_library
from tidegate.native.librdkafka import Librdkafka, find_librdkafka

if TYPE_CHECKING:
    from tidegate.formats.contract import Headers
    from tidegate.kafka.tools import KafkaProducer

_LOG = logging.getLogger("tidegate.sinks")

BY_KEY: Final = -1
"""The client chooses the partition."""
_NOW: Final = 0
"""The time of sending."""
_QUEUE_FULL: Final = ck.KafkaError._QUEUE_FULL  # noqa: SLF001  # the client's own codes begin with an underscore; they are public


class Undelivered(NamedTuple):
    """The first record that was not delivered because of an error."""

    error: ck.KafkaError
    topic: str
    partition: int
    size_bytes: int
    """Of key and value."""


class RecordColumns(Protocol):
    """Records as columns of equal length; None for parts that none of them has."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Values; None for a tombstone."""

    @property
    def keys(self) -> Sequence[bytes | None] | None:
        """Keys."""

    @property
    def timestamps_ms(self) -> Sequence[int | None] | None:
        """Milliseconds since 1970; None for the time of sending."""

    @property
    def headers(self) -> Sequence[Headers | None] | None:
        """Headers."""

    @property
    def partitions(self) -> Sequence[int | None] | None:
        """Partitions; None if the client chooses by the key."""


class OneRecord(NamedTuple):
    """A single record, as columns."""

    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps_ms: list[int | None]
    headers: list[Headers | None]
    partitions: list[int | None]


class RecordNotTaken(Exception):
    """The client does not take a record, not only because its queue is full."""

    def __init__(self, reason: object, row: int) -> None:
        self.reason = reason
        self.row = row


class Producing(Protocol):
    """The way into one producer."""

    def produce(self, topic: str, records: RecordColumns, start: int, end: int) -> int:
        """Hands over the records from row `start` on, before row `end`; never blocks.

        Returns the first row that found no room, else `end`. Raises RecordNotTaken.
        """

    def take_undelivered(self) -> tuple[int, Sequence[Undelivered]]:
        """Returns how many records were not delivered since the last call, and the first one of each new error.

        Only of records that the producer's `on_delivery` does not learn of.
        """

    def close(self) -> None:
        """Ends handing over, because the producer is being given up."""


class ClientProducing(Producing):
    """Calls of the Python client: one for each record that has more than a key and a value."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer

    @override
    def close(self) -> None:
        del self._producer  # its last reference ends it

    @override
    def take_undelivered(self) -> tuple[int, Sequence[Undelivered]]:
        return 0, ()

    @override
    def produce(self, topic: str, records: RecordColumns, start: int, end: int) -> int:
        keyed_values = records.timestamps_ms is None and records.headers is None and records.partitions is None
        return (self._produce_batch if keyed_values else self._produce_each)(topic, records, start, end)

    def _produce_batch(self, topic: str, records: RecordColumns, start: int, end: int) -> int:
        values, keys = records.values, records.keys
        batch: list[dict[str, Any]]
        if keys is None:
            batch = [{"value": value} for value in values[start:end]]
        else:
            batch = [
                {"key": key, "value": value} for key, value in zip(keys[start:end], values[start:end], strict=True)
            ]
        try:
            taken = self._producer.produce_batch(topic, batch)
        except (ck.KafkaException, SystemError) as error:
            raise RecordNotTaken(_reason_of(error), start) from error
        if taken == len(batch):
            return end
        errors = [record.pop("_error", None) for record in batch]
        first = next(index for index, error in enumerate(errors) if error is not None)
        for index, reason in enumerate(errors):
            if reason is not None and reason.code() != _QUEUE_FULL:
                raise RecordNotTaken(reason, start + index)
        if taken != first:
            # Rows after the first rejected one were accepted; sending it later would change the order.
            raise RecordNotTaken("the client took rows out of order when its queue was full", start + first)
        return start + first

    def _produce_each(self, topic: str, records: RecordColumns, start: int, end: int) -> int:
        """Produces records one by one, because `produce_batch` accepts only keys and values."""
        keys, times, headers, partitions = records.keys, records.timestamps_ms, records.headers, records.partitions
        for row in range(start, end):
            partition = None if partitions is None else partitions[row]
            try:
                self._producer.produce(
                    topic,
                    value=records.values[row],
                    key=None if keys is None else keys[row],
                    partition=BY_KEY if partition is None else partition,
                    timestamp=_NOW if times is None else times[row] or _NOW,
                    headers=None if headers is None else headers[row],
                )
            except BufferError:
                return row
            except (ck.KafkaException, SystemError) as error:
                raise RecordNotTaken(_reason_of(error), row) from error
        return end


class _Outlet(ctypes.Structure):
    """`outlet` of `produce.c`."""

    _fields_ = tuple(
        (name, Address) for name in ("produce", "make", "add", "destroy", "client", "topic", "undelivered")
    )


_PARTS: Final = ("values", "keys", "timestamps", "partitions", "header_counts", "names", "contents")
_LISTS: Final = frozenset({"values", "keys", "names", "contents"})


class _Records(ctypes.Structure):
    """`records` of `produce.c`: for lists of bytes their addresses and their lengths."""

    _fields_ = tuple(
        (name, Address) for part in _PARTS for name in ((part, f"{part}_lengths") if part in _LISTS else (part,))
    )


class _Reason(ctypes.Structure):
    """`first` of `undelivered` of `produce.c`."""

    _fields_ = (
        ("error", ctypes.c_int32),
        ("partition", ctypes.c_int32),
        ("topic", Address),
        ("size_bytes", ctypes.c_int64),
    )


class _Undelivered(ctypes.Structure):
    """`undelivered` of `produce.c`."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("reasons", ctypes.c_int64),
        ("first", _Reason * 8),
        ("busy", ctypes.c_int64),
    )


class NativeProducing(Producing):
    """A loop in C, without the interpreter lock.

    The Python client's callback does not learn of records from C that were not delivered. So it is replaced, for the
    producer's whole life: from then on records may not be handed over in the other way.
    """

    def __init__(self, library: Library, client: Librdkafka, handle: int) -> None:
        self._library, self._lib, self._handle = library, client, handle
        self._undelivered = _Undelivered()
        """Must outlive the client, which writes there, also while another thread still serves its events."""
        self._taken = self._reasons = 0
        client.report_undelivered(handle, library.report)

    @override
    def close(self) -> None:
        self._handle = 0

    @override
    def take_undelivered(self) -> tuple[int, Sequence[Undelivered]]:
        found = self._undelivered
        count, self._taken = found.count - self._taken, found.count
        new, self._reasons = range(self._reasons, found.reasons), found.reasons
        return count, [self._read(found.first[at]) for at in new]

    def _read(self, one: _Reason) -> Undelivered:
        topic = self._lib.topic_name(one.topic).decode()
        return Undelivered(ck.KafkaError(one.error), topic, one.partition, one.size_bytes)

    @override
    def produce(self, topic: str, records: RecordColumns, start: int, end: int) -> int:
        count, given = end - start, _Records()
        kept: list[object] = []

        def add(part: str, values: Sequence[bytes | None], first: int, length: int) -> None:
            listed = values if isinstance(values, list) else list(values)
            addresses, lengths = array("Q", bytes(8 * length)), array("i", bytes(4 * length))
            self._library.find_bytes(listed, first, length, _address_of(addresses), _address_of(lengths))
            setattr(given, part, _address_of(addresses))
            setattr(given, f"{part}_lengths", _address_of(lengths))
            kept.append((listed, addresses, lengths))

        def add_numbers(part: str, numbers: array[int]) -> None:
            setattr(given, part, _address_of(numbers))
            kept.append(numbers)

        add("values", records.values, start, count)
        if records.keys is not None:
            add("keys", records.keys, start, count)
        if records.timestamps_ms is not None:
            add_numbers("timestamps", array("q", [at_ms or _NOW for at_ms in records.timestamps_ms[start:end]]))
        if records.partitions is not None:
            numbers = [BY_KEY if number is None else number for number in records.partitions[start:end]]
            add_numbers("partitions", array("i", numbers))
        if records.headers is not None:
            lists = records.headers[start:end]
            pairs = [pair for one in lists if one for pair in one]
            add_numbers("header_counts", array("q", [len(one) if one else 0 for one in lists]))
            add("names", [name.encode() for name, _ in pairs], 0, len(pairs))
            add("contents", [value for _, value in pairs], 0, len(pairs))
        return start + self._hand_over(topic, given, count, start)

    def _hand_over(self, topic: str, given: _Records, count: int, start: int) -> int:
        """Returns how many records were taken."""
        if not self._handle:
            raise RuntimeError("a record was handed over after its producer was given up")
        address, error = self._lib.address, ctypes.c_int32()
        at = self._lib.topic_new(self._handle, topic.encode(), None)
        calls = (address[name] for name in ("producev", "headers_new", "header_add", "headers_destroy"))
        try:
            outlet = _Outlet(*calls, self._handle, at, ctypes.addressof(self._undelivered))
            taken: int = self._library.free.tg_produce(
                ctypes.byref(outlet), ctypes.byref(given), count, ctypes.byref(error)
            )
        finally:
            self._lib.topic_destroy(at)
        if taken < count and error.value != _QUEUE_FULL:
            raise RecordNotTaken(ck.KafkaError(error.value), start + taken)
        return taken


def _address_of(values: array[int]) -> int:
    return values.buffer_info()[0]


def _reason_of(error: Exception) -> object:
    return error.args[0] if error.args else error


def open_producing(producer: KafkaProducer) -> Producing:
    """Returns the way through C if possible, which requires a client of the library itself."""
    if not isinstance(producer, ck.Producer):
        return ClientProducing(producer)
    library, lib = find_library(), find_librdkafka()
    if not isinstance(library, Library) or not isinstance(lib, Librdkafka):
        _log_reason("; ".join(reason for reason in (library, lib) if isinstance(reason, str)))
        return ClientProducing(producer)
    handle = lib.handle_of(producer)
    if not handle:
        _log_reason("the client's handle was not found")
        return ClientProducing(producer)
    return NativeProducing(library, lib, handle)


@cache
def _log_reason(reason: str) -> None:
    """Logs the reason once per process: not a defect, but it explains the CPU time."""
    _LOG.info("records are written by calls of the client, at more CPU time than in C: %s", reason)
