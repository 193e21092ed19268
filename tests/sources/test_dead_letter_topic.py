"""The dead-letter topic as the commands read it: whose letters, and marks."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import DeadLetter, make_mark, read_dead_letter
from tidegate.ids import ClusterName
from tidegate.sources.dead_letter_topic import DeadLetterPlace, DeadLetterTopic, Marks


def letter(offset: int, partition: int = 0) -> DeadLetter:
    found = read_dead_letter(partition, offset, None, None, None, [(letters.KIND, b"X"), (letters.HEADERS, b"0")])
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


def test_letters_that_two_replays_at_a_time_have_marked_stay_marked() -> None:
    marks = Marks()
    for offsets in ([5], range(10), [9, 10], [3]):
        marks.note(mark(make_mark(offsets, "orders")))
    assert [offset for offset in range(13) if marks.of(letter(offset)) is None] == [11, 12]


def test_a_mark_of_very_many_letters_takes_no_memory_for_each() -> None:
    """Whoever may write to the topic may write such a one; the commands filled the memory."""
    marks = Marks()
    assert marks.note(mark(b'{"offsets": [[5, 1000000000000000]], "to": "orders"}'))
    assert (marks.of(letter(4)), marks.of(letter(5)), marks.of(letter(10**9))) == (None, "orders", "orders")


class Consumer:
    """Gives one batch after the other, and then none."""

    def __init__(self, batches: Iterator[list[ck.Message]]) -> None:
        self.batches = batches

    def told(self, config: dict[str, str]) -> Consumer:
        """Itself, with the properties of a client."""
        assert config["bootstrap.servers"] == "us:9092", "the cluster of the dead letters"
        return self

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Whatever is asked for."""

    def consume(self, count: int, wait_s: float) -> list[ck.Message]:
        return next(self.batches)

    def close(self) -> None:
        """Nothing is open."""


def dead(offset: int, partition: int = 0, pipeline: str = "shop") -> ck.Message:
    about: list[tuple[str, str | bytes | None]] = [
        (letters.HEADERS, b"0"),
        (letters.KIND, b"X"),
        (letters.PIPELINE, pipeline.encode()),
    ]
    return ck.Message(topic="dead", partition=partition, offset=offset, value=b"v", headers=about)


def test_letters_of_other_pipelines_in_the_topic_are_left_to_these(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were counted, and written again into topics of this pipeline."""
    batches = iter([[dead(0), dead(1, pipeline="billing"), mark(make_mark([0], "orders")), dead(3)]])
    consumer = Consumer(batches)
    monkeypatch.setattr(ck, "Consumer", lambda config, **_: consumer.told(config))
    place = DeadLetterPlace("shop", "dead", ClusterName("us"), {"bootstrap.servers": "us:9092"})
    with DeadLetterTopic(place) as found:
        assert [one.offset for one in found.letters({0: (0, 4)})] == [0, 3]
