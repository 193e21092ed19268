"""The newest dead letters are found without reading a topic from its beginning, whatever is between them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import confluent_kafka as ck
import msgspec
import pytest

from tests.depth import DEPTH
from tidegate.daemon.reading import read_dead_letters
from tidegate.daemon.reading.answering import ReadAnswer
from tidegate.daemon.reading.child import ANSWER_BYTES_MAX
from tidegate.daemon.reading.read_dead_letters import (
    HEADERS_BYTES_MAX,
    HEADERS_MAX,
    PART_MAX,
    NewestFirst,
    NewestLetters,
    NewestRequest,
)
from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import make_mark
from tidegate.ids import ClusterName
from tidegate.sources.dead_letter_topic import DeadLetterPlace

HeaderList = list[tuple[str, str | bytes | None]]


def dead(partition: int, offset: int, at_ms: int, value: bytes = b"v", pipeline: str = "shop") -> ck.Message:
    about: HeaderList = [
        (letters.HEADERS, b"0"),
        (letters.KIND, b"X"),
        (letters.PIPELINE, pipeline.encode()),
    ]
    when = (ck.TIMESTAMP_CREATE_TIME, at_ms)
    return ck.Message(topic="dead", partition=partition, offset=offset, value=value, headers=about, timestamp=when)


def mark(partition: int, offset: int, marked: list[int]) -> ck.Message:
    value = make_mark(marked, "orders")
    return ck.Message(topic="dead", partition=partition, offset=offset, value=value, headers=[(letters.MARKER, b"1")])


class Topic:
    """Records by partition; an offset that none has is that of a marker or of an aborted record."""

    def __init__(self, partitions: Mapping[int, list[ck.Message]], ends: Mapping[int, int]) -> None:
        self.partitions = partitions
        self.ends = ends
        self.count = 0

    def bounds(self) -> dict[int, tuple[int, int]]:
        return {number: (0, end) for number, end in self.ends.items()}

    def read(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[ck.Message]:
        for number, (first, end) in bounds.items():
            for message in self.partitions[number]:
                if first <= (message.offset() or 0) < end:
                    self.count += 1
                    yield message


def found(topic: Topic, count: int = 100) -> NewestLetters:
    return NewestFirst(topic, "shop", count, lambda: 0.0).read()


def places(newest: NewestLetters) -> list[tuple[int, int]]:
    return [(one.letter.partition, one.letter.offset) for one in newest.letters]


@pytest.mark.parametrize("seed", range(30 * DEPTH))
def test_the_newest_letters_of_all_partitions_are_found(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    count = draw.choice([1, 5, 20])
    partitions: dict[int, list[ck.Message]] = {}
    ends: dict[int, int] = {}
    expected: list[tuple[int, int, int]] = []
    for number in range(draw.randint(1, 5)):
        at_ms, ends[number] = draw.randint(0, 10_000), draw.choice([0, 3, 50, 700])
        partitions[number] = []
        for offset in range(ends[number]):
            at_ms += draw.randint(0, draw.choice([3, 300]))
            match draw.choice(["letter", "letter", "marker", "foreign"]):
                case "letter":
                    partitions[number].append(dead(number, offset, at_ms))
                    expected.append((at_ms, number, offset))
                case "foreign":
                    partitions[number].append(dead(number, offset, at_ms, pipeline="billing"))
    newest = found(Topic(partitions, ends), count)
    assert newest.complete
    assert places(newest) == [(number, offset) for _, number, offset in sorted(expected, reverse=True)[:count]]


def test_a_long_topic_costs_little_more_than_what_is_shown() -> None:
    topic = Topic({0: [dead(0, offset, offset) for offset in range(20_000)], 1: [dead(1, 0, 5)]}, {0: 20_000, 1: 1})
    assert places(found(topic)) == [(0, offset) for offset in range(19_999, 19_899, -1)]
    assert topic.count < 300


def test_a_letter_names_where_a_replay_has_written_it() -> None:
    topic = Topic({0: [dead(0, 0, 1), dead(0, 1, 2), mark(0, 300, [1])]}, {0: 301})
    assert [(one.letter.offset, one.replayed_to) for one in found(topic).letters] == [(1, "orders"), (0, None)]


def test_parts_are_cut_and_keep_their_sizes() -> None:
    many = [(f"h{number}" + "n" * 20_000, b"x" * 20_000) for number in range(50)]
    own: HeaderList = [*many, (letters.HEADERS, b"50"), (letters.KIND, b"X"), (letters.PIPELINE, b"shop")]
    value = b"\xff" * 1_000_000
    large = ck.Message(topic="dead", partition=0, offset=0, key=b"k" * 20_000, value=value, headers=own)
    (one,) = found(Topic({0: [large]}, {0: 1})).letters
    assert (one.value_bytes, one.key_bytes) == (1_000_000, 20_000)
    assert one.letter.value == b"\xff" * PART_MAX
    assert one.letter.reason == ()
    assert {(len(name), len(value or b"")) for name, value in one.letter.headers} == {(PART_MAX, PART_MAX)}
    assert len(one.letter.headers) * 2 * PART_MAX < HEADERS_BYTES_MAX + 3 * PART_MAX


def test_the_largest_letters_fit_into_an_answer() -> None:
    """Whoever may write to the topic chooses all of it."""
    long = b"n" * 1_000_000
    names = [
        getattr(letters, name) for name in ("STEP", "KIND", "MESSAGE", "TOPIC", "CLUSTER", "BYTES", "ROW", "ROW_TYPES")
    ]
    own = [(f"h{number}", long) for number in range(HEADERS_MAX + 5)]
    about: HeaderList = [*own, *((name, long) for name in names), (letters.PIPELINE, b"shop"), (letters.HEADERS, b"25")]
    large = ck.Message(topic="dead", partition=0, offset=0, key=long, value=long, headers=about)
    (one,) = found(Topic({0: [large]}, {0: 1})).letters
    assert (one.letter.row, one.letter.row_size) == (None, 1_000_000)
    assert 100 * len(msgspec.msgpack.encode(one)) < ANSWER_BYTES_MAX


def test_an_answer_arrives_in_the_daemon_as_it_was_sent() -> None:
    own: HeaderList = [
        ("a", b"\xff"),
        ("b", None),
        (letters.HEADERS, b"2"),
        (letters.KIND, b"X"),
        (letters.PIPELINE, b"shop"),
    ]
    message = ck.Message(topic="dead", partition=0, offset=0, key=None, value=b"\xff", headers=own)
    sent = found(Topic({0: [message]}, {0: 1}))
    answer = msgspec.msgpack.decode(msgspec.msgpack.encode(ReadAnswer(value=sent)), type=ReadAnswer)
    arrived = msgspec.convert(answer.value, NewestLetters)
    (one,) = arrived.letters
    assert msgspec.structs.replace(one.letter, reason=()) == sent.letters[0].letter
    assert arrived.complete
    request = NewestRequest(DeadLetterPlace("shop", "dead", ClusterName("kafka"), {"a": "b"}), 100)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=NewestRequest) == request


def test_a_read_of_too_many_bytes_ends_with_what_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_dead_letters, "BYTES_MAX", 200)
    topic = Topic({0: [dead(0, offset, offset, value=b"v" * 10) for offset in range(1000)]}, {0: 1000})
    newest = found(topic)
    assert not newest.complete
    assert places(newest) == [(0, offset) for offset in range(999, 935, -1)]


def test_a_slow_read_ends_with_what_is_certain() -> None:
    topic = Topic({0: [dead(0, offset, offset) for offset in range(1000)]}, {0: 1000})
    newest = NewestFirst(topic, "shop", 100, lambda: float(topic.count > 100) * 60).read()
    assert not newest.complete
    assert places(newest) == [(0, offset) for offset in range(999, 935, -1)]


def test_letters_of_other_pipelines_are_not_read_further_back_than_ours() -> None:
    foreign = [dead(1, offset, offset, pipeline="billing") for offset in range(20_000)]
    topic = Topic({0: [dead(0, offset, 19_000 + offset) for offset in range(500)], 1: foreign}, {0: 500, 1: 20_000})
    assert places(found(topic)) == [(0, offset) for offset in range(499, 399, -1)]
    assert topic.count < 2000
