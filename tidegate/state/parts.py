"""Some key groups of a state file, read without the rest as a smaller file of the same format. Pure.

A file begins with its *head*, which ends where the entries begin. The length and the checksum of the head are recorded
when the file is stored, and the head contains the position and the checksum of each key group. Everything that is read
is therefore verified. Readers need not know that a file was read in parts: `snapshot.read_entries` reads a part like a
whole file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from tidegate.state.snapshot import GroupIndex, SnapshotHeader, is_damaged, write_file

PART_BYTES: Final = 16 << 20
"""A part ends after the key group with which it reaches this size: one part is in memory at a time."""
_PREFIX: Final = struct.Struct(">4sHI")
_MAGICS: Final = frozenset({b"TGKS", b"TGIF"})
"""State, and rows in flight (`task/inflight.py`), which begin in the same way."""


class PartDamaged(ValueError):
    """A key group that does not match its checksum."""


def measure_head(body: bytes | memoryview) -> int:
    """Returns the size of a file's head in bytes; 0 if the file is neither state nor rows in flight."""
    if len(body) < _PREFIX.size:
        return 0
    magic, _, length = _PREFIX.unpack_from(body)
    head = _PREFIX.size + length
    return head if magic in _MAGICS and head <= len(body) else 0


def derive_runs(header: SnapshotHeader, key_groups: range) -> Iterator[tuple[GroupIndex, ...]]:
    """Yields the wanted key groups in contiguous runs of the file, each to be read at once."""
    run: list[GroupIndex] = []
    for one in header.groups:
        if one.group not in key_groups:
            continue
        if run and (run[-1].offset + run[-1].size_bytes != one.offset or _size_of(run) >= PART_BYTES):
            yield tuple(run)
            run = []
        run.append(one)
    if run:
        yield tuple(run)


def cut_part(header: SnapshotHeader, run: Sequence[GroupIndex], body: bytes) -> bytes:
    """Builds a file of these key groups alone from `body`, their bytes in the whole file. Raises PartDamaged."""
    own: list[GroupIndex] = []
    at = 0
    for one in run:
        if is_damaged(one, memoryview(body)[at : at + one.size_bytes]):
            raise PartDamaged(f"key group {one.group} does not match its checksum")
        own.append(GroupIndex(one.group, at, one.size_bytes, one.entries, one.crc))
        at += one.size_bytes
    return write_file(SnapshotHeader(header.operator, header.state, header.shape, tuple(own)), [body])


def _size_of(run: Sequence[GroupIndex]) -> int:
    return run[-1].offset + run[-1].size_bytes - run[0].offset
