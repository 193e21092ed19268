"""Functions of librdkafka, taken from the extension module of the Python client, and the handle of a client.

The location of the handle is an implementation detail of the client, so only tested releases are used. The layout of a
message is public and stable. It is tested nevertheless, because with a different layout wrong data would be read.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import confluent_kafka as ck

from tidegate.native.library import Address

TRIED: Final = ((2, 13), (2, 16))
"""First and last release of the Python client with which reading the handle was tested."""

_CALLS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "opaque": (Address, [Address]),
    "queue_new": (Address, [Address]),
    "queue_get_partition": (Address, [Address, ctypes.c_char_p, ctypes.c_int32]),
    "queue_forward": (None, [Address, Address]),
    "queue_destroy": (None, [Address]),
    "queue_yield": (None, [Address]),
    "consume_batch_queue": (ctypes.c_ssize_t, [Address, ctypes.c_int, Address, ctypes.c_size_t]),
    "topic_name": (ctypes.c_char_p, [Address]),
    "message_destroy": (None, [Address]),
    "conf": (Address, [Address]),
    "conf_set": (ctypes.c_int, [Address, ctypes.c_char_p, ctypes.c_char_p, Address, ctypes.c_size_t]),
    "conf_set_error_cb": (None, [Address, Address]),
    "conf_set_dr_msg_cb": (None, [Address, Address]),
    "topic_new": (Address, [Address, ctypes.c_char_p, Address]),
    "topic_destroy": (None, [Address]),
    # the self-test
    "conf_new": (Address, []),
    "conf_set_events": (None, [Address, ctypes.c_int]),
    "conf_set_log_cb": (None, [Address, Address]),
    "new": (Address, [ctypes.c_int, Address, ctypes.c_char_p, ctypes.c_size_t]),
    "destroy": (None, [Address]),
    "queue_get_main": (Address, [Address]),
    "queue_poll": (Address, [Address, ctypes.c_int]),
    "produce": (
        ctypes.c_int,
        [Address, ctypes.c_int32, ctypes.c_int, Address, ctypes.c_size_t, Address, ctypes.c_size_t, Address],
    ),
    "purge": (ctypes.c_int, [Address, ctypes.c_int]),
    "event_message_next": (Address, [Address]),
    "event_destroy": (None, [Address]),
}
_ERROR_CALL: Final = ctypes.CFUNCTYPE(None, Address, ctypes.c_int, ctypes.c_char_p, Address)
_POINTERS: Final = (
    *("message_destroy", "message_timestamp", "message_headers", "header_cnt", "header_get_all"),
    *("producev", "produce_batch", "msg_partitioner_murmur2", "headers_new", "header_add", "headers_destroy"),
)


class Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int32),
        ("topic", Address),
        ("partition", ctypes.c_int32),
        ("value", Address),
        ("value_size", ctypes.c_size_t),
        ("key", Address),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", Address),
    )


class Librdkafka:
    """Functions without their prefix, and addresses of the functions that C calls. Raises AttributeError."""

    def __init__(self) -> None:
        library = ctypes.CDLL(ck.cimpl.__file__)
        for name, (result, arguments) in _CALLS.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.address = {
            name: ctypes.cast(getattr(library, f"rd_kafka_{name}"), Address).value or 0 for name in _POINTERS
        }

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def handle_of(self, client: object) -> int:
        """Returns the handle of a client of a tested release; 0 if it is not found."""
        handle = Address.from_address(id(client) + object.__basicsize__).value
        return handle if handle and self.opaque(handle) == id(client) else 0

    def report_errors(self, handle: int, report: Callable[[int, str], None]) -> object:
        """Makes the client call `report` with the code and text of its errors. Keep the result until the client is
        closed.

        The Python client's own callback ends the process (SIGABRT) unless one of the client's functions led to the
        call. This happened when Tidegate read a partition's queue and the brokers no longer knew the topic.
        """
        call = _ERROR_CALL(lambda _, code, text, __: report(code, (text or b"").decode(errors="replace")))
        self.conf_set_error_cb(self.conf(handle), call)
        return call

    def report_undelivered(self, handle: int, report: int) -> None:
        """Makes a producer report records that were not delivered, and only those, to a function of C.

        The Python client's own callback ignores records that were not produced by its functions.
        """
        settings = self.conf(handle)
        self.conf_set(settings, b"delivery.report.only.error", b"true", None, 0)
        self.conf_set_dr_msg_cb(settings, report)


@cache
def find_librdkafka() -> Librdkafka | str:
    """Returns the functions, or the reason why they are not used. Starts and ends a client without a broker: about 2
    ms.
    """
    first, last = TRIED
    release = version("confluent-kafka")
    if not first <= tuple(int(part) for part in release.split(".")[:2]) <= last:
        return f"confluent-kafka {release} has not been tested"
    if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this is not CPython with an interpreter lock"
    try:
        found = Librdkafka()
    except (OSError, AttributeError) as error:
        return f"librdkafka's functions cannot be found: {error}"
    return found if _reads_messages(found) else "librdkafka lays out messages in another way"


_DELIVERY_REPORT: Final = 1
_COPY: Final = 2
_PURGE_ALL: Final = 7
_PURGED: Final = -152
_PRODUCER: Final = 0


def _reads_messages(lib: Librdkafka) -> bool:
    """Produces a message, purges it and returns whether its delivery report contains the same data."""
    settings = lib.conf_new()
    lib.conf_set_events(settings, _DELIVERY_REPORT)
    lib.conf_set_log_cb(settings, None)  # it would warn that there are no brokers
    client = lib.new(_PRODUCER, settings, None, 0)
    if not client:
        return False
    queue, topic = lib.queue_get_main(client), lib.topic_new(client, b"probe", None)
    event = None
    try:
        value, key = ctypes.create_string_buffer(b"value", 5), ctypes.create_string_buffer(b"a key", 5)
        if lib.produce(topic, 3, _COPY, value, 5, key, 5, 12345) != 0:
            return False
        lib.purge(client, _PURGE_ALL)
        event = lib.queue_poll(queue, 5000)
        at = lib.event_message_next(event) if event else None
        if not at:
            return False
        one = Message.from_address(at)
        texts = ctypes.string_at(one.value, one.value_size), ctypes.string_at(one.key, one.key_size)
        return (one.err, one.topic, one.partition, *texts, one.opaque) == (
            _PURGED,
            topic,
            3,
            b"value",
            b"a key",
            12345,
        )
    finally:
        if event:
            lib.event_destroy(event)
        lib.topic_destroy(topic)
        lib.queue_destroy(queue)
        lib.destroy(client)
