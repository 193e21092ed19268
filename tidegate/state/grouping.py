"""Entries that come in any order, encoded and put into files by key group: bounded files, from bounded pieces.

It runs on a helper thread while the slot loop works. A call into C keeps the loop from running, so nothing here encodes
or copies more than a part of the entries, or of the bytes, at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from tidegate.state.snapshot import EncodedGroup, Entry, join_entries

FILE_BYTES: Final = 16 << 20
"""A file of a snapshot ends with the piece with which it has so many bytes."""

T = TypeVar("T")

_Piece = tuple[int, bytes]
"""How many entries, and these one after the other."""


def in_parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items, so many at a time."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


class GroupedEntries:
    """Encoded entries by key group."""

    def __init__(self) -> None:
        self._pieces: defaultdict[int, list[_Piece]] = defaultdict(list)
        self._encode = msgspec.msgpack.Encoder().encode

    def add(self, groups: Sequence[int], entries: Sequence[Entry]) -> None:
        """Some entries, each with its key group."""
        found: defaultdict[int, list[Entry]] = defaultdict(list)
        for group, entry in zip(groups, entries, strict=True):
            found[group].append(entry)
        for group, part in found.items():
            self._pieces[group].append((len(part), self._encode(part)[_head_bytes(len(part)) :]))

    def files(self, assemble: Callable[[Sequence[EncodedGroup]], bytes]) -> Iterator[bytes]:
        """Files of all of them, in the order of their key groups, which are forgotten; at least one."""
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
    """Of a msgpack array."""
    return 1 if count < 16 else 3 if count < 1 << 16 else 5
