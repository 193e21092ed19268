"""Marks of letters that were written again: as ranges, whatever somebody has written into them."""

from __future__ import annotations

import confluent_kafka as ck

from tidegate.cli.letters.topic import Marks
from tidegate.formats import letters
from tidegate.formats.letters.letter import Letter, make_mark, read_letter


def letter(offset: int, partition: int = 0) -> Letter:
    found = read_letter(partition, offset, None, None, None, [(letters.KIND, b"X"), (letters.HEADERS, b"0")])
    assert found is not None
    return found


def mark(value: bytes, partition: int = 0) -> ck.Message:
    return ck.Message(topic="dead", partition=partition, offset=100, value=value, headers=[(letters.MARKER, b"1")])


def test_letters_are_marked_by_partition_and_in_any_order() -> None:
    marks = Marks()
    assert marks.note(mark(make_mark([7, 8, 20], "later")))
    assert marks.note(mark(make_mark([3, 1, 9], "orders")))
    assert not marks.note(ck.Message(topic="dead", partition=0, offset=101, value=b"no mark"))
    found = {offset: marks.of(letter(offset)) for offset in (0, 1, 2, 3, 7, 8, 9, 10, 20, 21)}
    assert {offset: to for offset, to in found.items() if to is not None} == {
        1: "orders", 3: "orders", 7: "later", 8: "later", 9: "orders", 20: "later",
    }  # fmt: skip
    assert marks.of(letter(7, partition=1)) is None
    marks.note(mark(make_mark([2], "again")))
    assert marks.of(letter(2)) == "again"


def test_a_mark_of_very_many_letters_takes_no_memory_for_each() -> None:
    """Whoever may write to the topic may write such a one; the commands filled the memory."""
    marks = Marks()
    assert marks.note(mark(b'{"offsets": [[5, 1000000000000000]], "to": "orders"}'))
    assert (marks.of(letter(4)), marks.of(letter(5)), marks.of(letter(10**9))) == (None, "orders", "orders")
