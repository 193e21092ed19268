"""librdkafka properties of a sink's producers: defaults of ours, then the user's, then what the engine owns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.ids import TransactionalId

DEFAULTS: Final[Mapping[str, str]] = {
    "linger.ms": "5",  # without transactions; with them see TRANSACTION_LINGER_MS
    "batch.size": str(1 << 20),
    "message.max.bytes": "1048588",  # as a topic takes by default: what Java clients wrote has room; by default less
    "partitioner": "murmur2_random",  # as the Java clients: a key has the same partition from everywhere
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "16384",  # per open transaction; at most two are filled at a time
    "socket.timeout.ms": "15000",  # a broker that hangs is given up then, and its successor asked; 60 s by default
    "log.connection.close": "false",
}
"""The user may change these."""

TRANSACTION_LINGER_MS: Final = "50"
"""Records of a transaction are seen when it ends, and the flush at the barrier waits for no linger, so the client may
gather: fewer requests. And the first records of a transaction reach a partition when the other subtasks have flushed
theirs of the interval before; after an open transaction readers would see them one interval later."""

LARGE_MESSAGE_BYTES: Final = 4 << 20
"""From this `message.max.bytes` on the queue is sized after it, so that a few large records fit."""

ENGINE_OWNED: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "acks": "all",
    "allow.auto.create.topics": "false",  # true by default of producers; nobody asked for the topic that came of it
}
_TIMES: Final = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")


def largest_record(properties: Mapping[str, str]) -> int:
    """What the client itself refuses: bytes of key and value, before compression."""
    return int(properties.get("message.max.bytes", DEFAULTS["message.max.bytes"]))


def fit_batches(properties: Mapping[str, str], topics_bytes_max: Iterable[int | None]) -> dict[str, str]:
    """With batches that every topic takes: a broker refuses a larger one whole, however small its records are.

    :param topics_bytes_max: `max.message.bytes` of each topic, which limits batches; None: unknown.
    """
    known = [limit for limit in topics_bytes_max if limit is not None]
    return {**properties, "batch.size": str(max(1, min([int(properties["batch.size"]), *known])))}


def derive_producer_properties(
    user: Mapping[str, str], transactional_id: TransactionalId | None, transaction_timeout_ms: int
) -> dict[str, str]:
    """All properties of one producer; without a transactional id it is a plain idempotent one (at-least-once)."""
    properties = {**DEFAULTS, **user}
    large = largest_record(properties)
    if large >= LARGE_MESSAGE_BYTES and "queue.buffering.max.kbytes" not in user:
        properties["queue.buffering.max.kbytes"] = str(4 * large // 1024)
    # Brokers may be away as long as the transaction lasts; records that expired before would cost the attempt.
    properties = {"message.timeout.ms": str(transaction_timeout_ms), **properties, **ENGINE_OWNED}
    if transactional_id is None:
        # Nothing proves the first batch of a plain producer (see proof.py), so nothing may overtake it.
        properties["max.in.flight"] = "1"
    else:
        properties["linger.ms"] = user.get("linger.ms", TRANSACTION_LINGER_MS)
        properties["transactional.id"] = transactional_id
        properties["transaction.timeout.ms"] = str(transaction_timeout_ms)
        properties = limit_times(properties, transaction_timeout_ms)
    return properties


def limit_times(properties: Mapping[str, str], transaction_timeout_ms: int) -> dict[str, str]:
    """The same, with what the client takes beside the time limit of its transactions: no time that is longer."""
    given = [name for name in _TIMES if name in properties]
    return {**properties, **{name: str(min(int(properties[name]), transaction_timeout_ms)) for name in given}}
