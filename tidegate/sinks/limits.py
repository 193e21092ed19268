"""The limits of one record of a sink, from the topic's settings and the producer's. Pure.

The numbers were measured to the byte at a real broker; `tests/sinks/test_limits.py` measures them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.formats.record_limits import RecordLimits
from tidegate.kafka.errors import SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.producer_properties import largest_record
from tidegate.operators.builtin.dead_letters import DeadLetterOperator, find_unfit
from tidegate.operators.builtin.kafka_sink import SinkOperator

CLIENT_OVERHEAD_BYTES: Final = 36
"""Bytes that librdkafka adds to key and value before it compares them with `message.max.bytes`."""
ARRIVAL_MS: Final = 10_000
"""Allowance for the time in the client and at the broker: a record must still be young enough on arrival."""
_CODECS: Final = frozenset({"gzip", "snappy", "lz4", "zstd"})


def refuse_keyless(operator: SinkOperator, topic: str, limits: TopicLimits) -> None:
    """Raises SinkRefused if a topic could accept no record at all; skipping all records would not help."""
    if isinstance(operator, DeadLetterOperator):
        _refuse_for_letters(operator, topic, limits)
    elif limits.compacted and operator.key is None:
        raise SinkRefused(
            f"sink {operator.name} writes records without a key, which the compacted topic {topic} does not "
            f"accept; set `key` of the sink, or change the topic's cleanup.policy",
            sink=operator.name,
            topic=topic,
        )


def _refuse_for_letters(operator: DeadLetterOperator, topic: str, limits: TopicLimits) -> None:
    unfit = find_unfit(compacted=limits.compacted, batch_bytes=limits.batch_bytes)
    if unfit is not None:
        raise SinkRefused(f"dead_letters: topic {topic} {'; '.join(unfit)}", sink=operator.name, topic=topic)


def derive_record_limits(topic: str, properties: Mapping[str, str], limits: TopicLimits, now_ms: int) -> RecordLimits:
    """Returns the limits. `properties` are the producer's; `now_ms` is the slot's clock, which should match the
    brokers'.
    """
    codec = properties.get("compression.type", properties.get("compression.codec", "none"))
    compressed = codec in _CODECS and limits.codec in ("producer", codec)
    return RecordLimits(
        topic=topic,
        record_bytes=largest_record(properties) - CLIENT_OVERHEAD_BYTES,
        batch_bytes=limits.batch_bytes,
        codec=codec if compressed else "",
        now_ms=now_ms,
        earliest_ms=None if limits.before_ms is None else now_ms - limits.before_ms + ARRIVAL_MS,
        latest_ms=None if limits.after_ms is None else now_ms + limits.after_ms,
        needs_key=limits.compacted,
    )
