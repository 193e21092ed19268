"""Encoding of entries that come in any order into files by key group, with files and pieces of bounded size.

This runs on a helper thread while the slot loop works. A call into C blocks the loop, so no call here encodes or copies
more than a part of the entries, or of the bytes, at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from tidegate.state.snapshot import EncodedGroup, Entry, join_entries

FILE_BYTES: Final = 16 << 20
"""A file of a snapshot ends after the piece with which it reaches this size."""

T = TypeVar("T")

_Piece = tuple[int, bytes]
"""The number of entries, and their concatenated encodings."""


def in_parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields the items in lists of `size`."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class GroupedEntries:
    """Encoded entries by key group."""

    def __init__(self) -> None:
        self._pieces: defaultdict[int, list[_Piece]] = defaultdict(list)
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, groups: Sequence[int], entries: Sequence[Entry]) -> None:
        """Adds entries, each with its key group."""
        found: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(groups, entries, strict=True):
            found[group].append(entry)
        for group, part in found.items():
            self._pieces[group].append((len(part), self._encode(part)[_head_bytes(len(part)) :]))

    def files(self, assemble: Callable[[Sequence[EncodedGroup]], bytes]) -> Iterator[bytes]:
        """Yields at least one file with all entries, in the order of their key groups, and removes these entries."""
        size, written = 0, False
        parts: list[EncodedGroup] = []
        for group in sorted(self._pieces):
            pieces: list[_Piece] = []
            for piece in self._pieces.pop(group):
                pieces.append(piece)
                size += len(piece[1])
                if size >= FILE_BYTES:
                    yield assemble([*parts, _joined(group, pieces)])
                    size, parts, pieces, written = 0, [], [], True
            if pieces:
                parts.append(_joined(group, pieces))
        if parts or not written:
            yield assemble(parts)


def _joined(group: int, pieces: Sequence[_Piece]) -> EncodedGroup:
    return join_entries(group, sum(count for count, _ in pieces), [body for _, body in pieces])


def _head_bytes(count: int) -> int:
    """Returns the size of the header of a msgpack array."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
