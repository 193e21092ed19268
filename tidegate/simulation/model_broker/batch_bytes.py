"""Record batches in message format 2, as far as `sinks.batches` reads them: headers and control records. Pure.

Records of data batches are left out, because code that needs them uses a consumer.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from tidegate.kafka.batches import BatchHeader

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_BEHIND_LENGTH: Final = _HEADER.size - 12
_MAGIC: Final = 2
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_CONTROL_RECORD: Final = struct.Struct(">BBBBBhhBhiB")


@lru_cache(maxsize=4096)
def encode_batch(header: BatchHeader) -> bytes:
    """Encodes one batch."""
    record = b"" if header.commits is None else _control_record(header.commits)
    attributes = _TRANSACTIONAL * header.transactional | _CONTROL * (header.commits is not None)
    return (
        _HEADER.pack(
            header.base_offset, _BEHIND_LENGTH + len(record), 0, _MAGIC, 0, attributes,
            header.last_offset - header.base_offset, 0, 0, header.producer.id, header.producer.epoch,
            header.base_sequence, header.records,
        )
        + record
    )  # fmt: skip


def _control_record(commits: bool) -> bytes:
    """Encodes length, attributes, two deltas, a 4-byte key (version, type), a 6-byte value, no headers; numbers in
    zigzag.
    """
    return _CONTROL_RECORD.pack(2 * 16, 0, 0, 0, 2 * 4, 0, int(commits), 2 * 6, 0, 0, 0)
