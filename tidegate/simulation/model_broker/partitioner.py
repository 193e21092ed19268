"""The partition of a keyed record: murmur2, as in Kafka's Java clients and `murmur2_random` of librdkafka. Pure.

Source of the algorithm: `org.apache.kafka.common.utils.Utils.murmur2`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


@lru_cache(maxsize=4096)
def derive_partition(key: bytes, partitions: int) -> int:
    """Returns the partition of a key in a topic with this many partitions."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    mixed = _SEED ^ len(data)
    whole = len(data) & ~3
    for place in range(0, whole, 4):
        part = int.from_bytes(data[place : place + 4], "little") * _MULTIPLIER & _MASK
        part = (part ^ part >> 24) * _MULTIPLIER & _MASK
        mixed = (mixed * _MULTIPLIER & _MASK) ^ part
    if whole < len(data):
        mixed = (mixed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    mixed = (mixed ^ mixed >> 13) * _MULTIPLIER & _MASK
    return mixed ^ mixed >> 15
