"""Hands records to a producer: by calls of its client, or in C, where it can (ADR 82).

Both ways keep the order of the records of each partition, and stop in front of the first one that the client does not
take.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import confluent_kafka as ck
from typing_extensions import override

from tidegate.native.library import Address, Library, find_library
from tidegate.native.librdkafka import Librdkafka, find_librdkafka
from tidegate.native.records import Arrangement, LentRecords, RecordColumns

if TYPE_CHECKING:
    import polars as pl

    from tidegate.formats.records import OutputRecords
    from tidegate.kafka.tools import KafkaProducer

_LOG = logging.getLogger("tidegate.sinks")

BY_KEY: Final = -1
"""The client chooses the partition."""
_NOW: Final = 0
"""The time of sending."""
_TAKEN: Final = 0
_OUT_OF_ORDER: Final = "the client took rows out of order when its queue was full"
"""Rows after the first rejected one were accepted. Sending it later would change the order."""
_CALLS: Final = ("producev", "produce_batch", "headers_new", "header_add", "headers_destroy")
"""Functions of librdkafka that C calls."""
_QUEUE_FULL: Final = ck.KafkaError._QUEUE_FULL  # noqa: SLF001  # the client's own codes begin with an underscore; they are public


class Undelivered(NamedTuple):
    """The first record that was not delivered because of an error."""

    error: ck.KafkaError
    topic: str
    partition: int
    size_bytes: int
    """Of key and value."""


class RecordNotTaken(Exception):
    """The client does not take a record, not only because its queue is full."""

    def __init__(self, reason: object, row: int, size_bytes: int) -> None:
        self.reason = reason
        self.row = row
        self.size_bytes = size_bytes
        """Size of key and value."""


class Producing(Protocol):
    """The way into one producer."""

    def produce(self, topic: str, records: OutputRecords, start: int, end: int, partitions: int) -> int:
        """Hands over the records from place `start` on, before place `end`; never blocks.

        Places count in an order that keeps the rows of each partition in theirs. Records that have begun are handed
        over to the end before any others. Returns the first place that found no room, else `end`. Raises
        RecordNotTaken.

        :param partitions: how many the topic has; 0 if the client has to choose them by the key.
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
    def produce(self, topic: str, records: OutputRecords, start: int, end: int, partitions: int) -> int:
        return start + (self._produce_batch if records.keyed_values else self._produce_each)(topic, records, start, end)

    def _produce_batch(self, topic: str, records: OutputRecords, start: int, end: int) -> int:
        batch: list[dict[str, Any]] = [{"value": value} for value in records.values[start:end].to_list()]
        if records.keys is not None:
            for record, key in zip(batch, records.keys[start:end].to_list(), strict=True):
                record["key"] = key
        try:
            taken = self._producer.produce_batch(topic, batch)
        except (ck.KafkaException, SystemError) as error:
            raise _not_taken(_reason_of(error), records, start) from error
        if taken == len(batch):
            return taken
        errors = [record.pop("_error", None) for record in batch]
        first = next(index for index, error in enumerate(errors) if error is not None)
        for index, reason in enumerate(errors):
            if reason is not None and reason.code() != _QUEUE_FULL:
                raise _not_taken(reason, records, start + index)
        if taken != first:
            raise _not_taken(_OUT_OF_ORDER, records, start + first)
        return first

    def _produce_each(self, topic: str, records: OutputRecords, start: int, end: int) -> int:
        """Produces records one by one, because `produce_batch` accepts only keys and values."""
        none = [None] * (end - start)

        def listed(column: pl.Series | None) -> Sequence[Any]:
            return none if column is None else column[start:end].to_list()

        parts = (records.values, records.keys, records.partitions, records.timestamps_ms)
        rows = zip(*map(listed, parts), records.header_pairs(start, end) or none, strict=True)
        for taken, (value, key, partition, timestamp_ms, headers) in enumerate(rows):
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    partition=BY_KEY if partition is None else partition,
                    timestamp=timestamp_ms or _NOW,
                    headers=headers,
                )
            except BufferError:
                return taken
            except (ck.KafkaException, SystemError) as error:
                raise _not_taken(_reason_of(error), records, start + taken) from error
        return end - start

    def repeat(self, topic: str, message: ck.Message) -> bool:
        """Hands over a consumed message unchanged, into the same partition. Returns False if there is no room.

        Raises RecordNotTaken.
        """
        value, key, partition = message.value(), message.key(), message.partition()
        try:
            self._producer.produce(
                topic,
                value=value,
                key=key,
                partition=BY_KEY if partition is None else partition,
                timestamp=max(_NOW, message.timestamp()[1]),
                headers=message.headers(),
            )
        except BufferError:
            return False
        except (ck.KafkaException, SystemError) as error:
            raise RecordNotTaken(_reason_of(error), 0, len(key or b"") + len(value or b"")) from error
        return True


class _Outlet(ctypes.Structure):
    """`outlet` of `produce.c`."""

    _fields_ = tuple((name, Address) for name in (*_CALLS, "client", "topic", "undelivered"))


class HandedOver(ctypes.Structure):
    """`handed_over` of `produce.c`."""

    _fields_ = (("taken", ctypes.c_int64), ("behind", ctypes.c_int64), ("error", ctypes.c_int32))


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
        self._begun: tuple[OutputRecords, Arrangement] | None = None
        """Records of which some are not handed over yet, and their arrangement."""
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
    def produce(self, topic: str, records: OutputRecords, start: int, end: int, partitions: int) -> int:
        if not self._handle:
            raise RuntimeError("a record was handed over after its producer was given up")
        lent = LentRecords(records.values, records.keys, records.timestamps_ms, records.partitions, records.headers)
        arrangement = self._arrange(records, lent.columns, start, partitions)
        found = self.hand_over(topic, lent.columns, arrangement, start, end)
        place: int = start + found.taken
        self._begun = (records, arrangement) if place < len(records) else None
        if found.error not in (_TAKEN, _QUEUE_FULL):
            raise _not_taken(ck.KafkaError(found.error), records, arrangement.rows[place])
        if found.behind:
            raise _not_taken(_OUT_OF_ORDER, records, arrangement.rows[place])
        return place

    def _arrange(self, records: OutputRecords, columns: RecordColumns, start: int, partitions: int) -> Arrangement:
        """Returns the arrangement of all records, which stays the same until the last one is handed over."""
        if start:
            if self._begun is None or self._begun[0] is not records:
                raise RuntimeError("records are continued that are not those handed over last")
            return self._begun[1]
        choose = self._lib.address["msg_partitioner_murmur2"]
        return Arrangement(self._library, columns, len(records), choose, partitions)

    def hand_over(
        self, topic: str, columns: RecordColumns, arrangement: Arrangement, start: int, end: int
    ) -> HandedOver:
        """Hands over records of columns until one is not taken."""
        found = HandedOver()
        at = self._lib.topic_new(self._handle, topic.encode(), None)
        try:
            calls = (self._lib.address[name] for name in _CALLS)
            outlet = _Outlet(*calls, self._handle, at, ctypes.addressof(self._undelivered))
            given = (outlet, columns, arrangement.arrays)
            self._library.free.tg_produce(*map(ctypes.byref, given), start, end, ctypes.byref(found))
        finally:
            self._lib.topic_destroy(at)
        return found


def _not_taken(reason: object, records: OutputRecords, row: int) -> RecordNotTaken:
    parts = (records.values[row], None if records.keys is None else records.keys[row])
    return RecordNotTaken(reason, row, sum(len(part) for part in parts if part is not None))


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
    _LOG.info("records are written by calls of the client, which takes more CPU time than in C: %s", reason)
