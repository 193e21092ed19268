"""Kafka properties that are valid alone, but in combination make librdkafka refuse to create a client. Pure.

The numbers are librdkafka's defaults, overridden by those of `sources/consumer_properties.py` and
`kafka/producer_properties.py`. A test compares them with the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.config.errors import PathProblem
from tidegate.config.fields.secrets import Text
from tidegate.config.fields.units import render_duration
from tidegate.config.properties import Side, property_problem

RECONNECT_MAX_MS: Final = 10_000
RECONNECT_MS: Final = 100
MESSAGE_BYTES: Final = 1_000_000
RECORD_BYTES: Final = 1_048_588
"""Tidegate's default for a sink's producer."""
FETCH_BYTES: Final = 52_428_800
PREFETCH_KB: Final = 16_384
RECEIVE_MORE_BYTES: Final = 512
FETCH_MIN_BYTES: Final = (1, 100_000_000)
"""librdkafka's list has other limits."""
DELIVERY_MS: Final = 120_000
LINGER_MAX_MS: Final = 900_000
"""A higher value is refused on its own."""
_LINGER: Final = ("linger.ms", "queue.buffering.max.ms")


def decide_limit_problems(properties: Mapping[str, Text], side: Side, transaction_ms: int) -> list[PathProblem]:
    """Returns why a client could not be created; `properties` are all that it receives.

    :param transaction_ms: the timeout of a producer's transactions.
    """
    found = [*_reconnecting(properties), *_fetching(properties)]
    if side != "consumer":
        found += [*_producing(properties, transaction_ms), *_queueing(properties)]
    return found


def _reconnecting(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    name, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    least = _number(properties, name, RECONNECT_MS)
    most = _number(properties, limit, RECONNECT_MAX_MS)
    if least > most:
        message = f"{least:g} is more than `{limit}`, {most:g}"
        yield PathProblem((name if name in properties else limit,), message, f"make `{limit}` at least as long")
    name, limit = "https.ca.location", "https.ca.pem"
    if name in properties and limit in properties:
        yield property_problem(name, f"`{limit}` is given, too", "keep one of them")
    if properties.get("broker.version.fallback") == "":
        yield PathProblem(("broker.version.fallback",), "is empty", "remove it: brokers say what they can do")


def _fetching(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    """Checks limits of fetching; also for sinks, whose properties are used to read lost transactions again."""
    name, (least, most) = "fetch.min.bytes", FETCH_MIN_BYTES
    wanted = _number(properties, name, least)
    if not least <= wanted <= most:
        yield PathProblem((name,), f"{wanted:.0f} is out of range", f"use {least} to {most}")
    name = "fetch.max.bytes"
    record = _number(properties, "message.max.bytes", MESSAGE_BYTES)
    prefetch = 1024 * _number(properties, "queued.max.messages.kbytes", PREFETCH_KB)
    fetch = _number(properties, name, max(min(FETCH_BYTES, prefetch), record))
    if fetch < record:
        message = f"{fetch:.0f} is less than `message.max.bytes`, {record:.0f}"
        yield PathProblem((name,), message, "make it at least as much, or remove it")
    name = "receive.message.max.bytes"
    needed = fetch + RECEIVE_MORE_BYTES
    if (receive := _number(properties, name, needed)) < needed:
        message = f"{receive:.0f} is less than `fetch.max.bytes` and {RECEIVE_MORE_BYTES}, {needed:.0f}"
        yield PathProblem((name,), message, f"make it at least {needed:.0f}, or remove it")


def _producing(properties: Mapping[str, Text], transaction_ms: int) -> Iterator[PathProblem]:
    limit_ms = min(DELIVERY_MS, transaction_ms)
    for name in _LINGER:
        linger_ms = _number(properties, name, 0)
        if limit_ms <= linger_ms <= LINGER_MAX_MS:
            message = f"{linger_ms:g} ms are not less than the time that a record has to be delivered, "
            yield PathProblem((name,), message + render_duration(limit_ms), "records wait for so long: make it shorter")


def _queueing(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    """Checks the queue limits: with these the client starts, but records never fit and the sink would wait forever."""
    name, record = "queue.buffering.max.kbytes", _number(properties, "message.max.bytes", RECORD_BYTES)
    queue_kb = _number(properties, name, record)
    if 1024 * queue_kb < record:
        message = f"{queue_kb:.0f} kB are less than `message.max.bytes`, {record:.0f} bytes: no such record has room"
        yield PathProblem((name,), message, f"make it at least {-(-record // 1024):.0f}, or lower `message.max.bytes`")
    name = "queue.buffering.max.messages"
    if _number(properties, name, 1) < 1:
        yield PathProblem((name,), "0 is no limit, and what a sink holds needs one", "use 1 or more, or remove it")


def _number(properties: Mapping[str, Text], name: str, default: float) -> float:
    """Returns the given value if it is a number; others are reported elsewhere."""
    value = properties.get(name)
    try:
        return float(value) if isinstance(value, str) else default
    except ValueError:
        return default
