"""Entries by key group, in pieces and in files."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tidegate.state import grouping
from tidegate.state.grouping import GroupedEntries, in_parts
from tidegate.state.snapshot import EncodedGroup


def test_items_come_so_many_at_a_time() -> None:
    assert list(in_parts(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(in_parts([], 2)) == []


def decode(files: list[list[EncodedGroup]]) -> list[list[tuple[int, list[object]]]]:
    return [[(part.group, msgspec.msgpack.decode(part.body)) for part in parts] for parts in files]


def assembled(grouped: GroupedEntries) -> list[list[EncodedGroup]]:
    """What each file has."""
    files: list[list[EncodedGroup]] = []

    def assemble(parts: Sequence[EncodedGroup]) -> bytes:
        files.append(list(parts))
        return b""

    assert list(grouped.files(assemble)) == [b""] * len(files)
    return files


@pytest.mark.parametrize("count", [1, 15, 16, 65_536])
def test_entries_come_back_however_many_are_added_at_once(count: int) -> None:
    grouped = GroupedEntries()
    grouped.add([7] * count, [((), ())] * count)
    assert decode(assembled(grouped)) == [[(7, [[[], []]] * count)]]


def test_a_file_ends_with_the_piece_that_fills_it_and_none_is_empty_but_that_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "FILE_BYTES", 1)
    grouped = GroupedEntries()
    for number in range(2):
        grouped.add([1, 2], [((number,), ()), ((number,), ())])
    assert [[part.group for part in file] for file in assembled(grouped)] == [[1], [1], [2], [2]]
    assert assembled(GroupedEntries()) == [[]]
