"""What a source gives a decoder and takes from it, by a format that is defined here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import confluent_kafka as ck
import polars as pl
import pytest

from tests.support.clocks import SetClock
from tests.waiting import wait_until
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import STRING
from tidegate.formats.contract import Columns, Decoded, Encoder, Format, Messages, WaitingForSchema
from tidegate.formats.failures import BadRecordPolicy, FailureKind, RecordFailure
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import FormatOptions, Schemas
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sources.kafka import KafkaSource
from tidegate.sources.tools import Consumer, SourceTools
from tidegate.sources.waiting_records import AGAIN_S

PARTS = [TopicPartition("words", 0), TopicPartition("words", 1)]
PART = PARTS[0]


class WordFormat(Format):
    """Records `<id of a schema>:<word>`; a word is decoded once its schema is known."""

    name = "word"
    writes = "words"
    page = "Words."

    def __init__(self, *known: str) -> None:
        self.known = set(known)
        self.seen: list[Messages] = []

    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> WordFormat:
        assert declared == output == (("word", STRING),)
        return self

    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        raise NotImplementedError

    def decode(self, messages: Messages) -> Decoded | WaitingForSchema:
        self.seen.append(messages)
        words, failures = [], []
        for row, value in enumerate(messages.values):
            schema, _, word = (value or b"").decode().partition(":")
            if word == "poison" or (word == "fussy" and len(messages) > 1):
                raise ZeroDivisionError(word)
            if not word:
                failures.append(RecordFailure(row, FailureKind.EMPTY_VALUE, "no word"))
            elif schema in self.known:
                words.append(word)
            else:
                return WaitingForSchema(f"schema {schema} of the registry")
        return Decoded(pl.DataFrame({"word": words}, schema={"word": pl.String()}), failures)


class Feed:
    """A consumer with messages that go round the partitions."""

    def __init__(self, values: list[bytes], partitions: int) -> None:
        self._partitions = partitions
        self._made = 0
        self.waiting: list[ck.Message] = []
        self.paused: set[TopicPartition] = set()
        self.empty = threading.Event()
        self.add(values)

    def add(self, values: list[bytes]) -> None:
        self.waiting += [
            ck.Message(
                topic=PART.topic,
                partition=number % self._partitions,
                offset=(offset := number // self._partitions),
                key=b"k%d" % offset,
                value=value,
                headers=[("h", b"%d" % offset)] if offset else None,
                error=None,
                timestamp=(ck.TIMESTAMP_CREATE_TIME, 1000 + offset) if offset else (ck.TIMESTAMP_NOT_AVAILABLE, -1),
            )
            for number, value in enumerate(values, self._made)
        ]
        self._made += len(values)

    def assign(self, partitions: object) -> None:
        return

    def close(self) -> None:
        return

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        self.paused |= {TopicPartition(one.topic, one.partition) for one in partitions}

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        self.paused -= {TopicPartition(one.topic, one.partition) for one in partitions}

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        taken, self.waiting = self.waiting[:num_messages], self.waiting[num_messages:]
        if not taken:
            self.empty.wait(timeout)
        return taken


class Tools(SourceTools):
    """Gives one consumer."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.clock = self.set_clock = SetClock()

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Consumer:
        return cast("Consumer", self.feed)


@pytest.fixture
def word(monkeypatch: pytest.MonkeyPatch) -> WordFormat:
    found = WordFormat("1")
    monkeypatch.setattr("tidegate.sources.record_parts.FORMATS", {**FORMATS, "word": found})
    return found


class Reading:
    """A source that has got all its messages."""

    def __init__(self, word: WordFormat, *values: bytes, partitions: int, end: int | None = None) -> None:
        self._word = word
        self._parts = PARTS[:partitions]
        self.tools = Tools(Feed(list(values), partitions))
        columns = (("word", STRING),)
        name = OperatorName("words")
        operator = SourceOperator(
            name,
            ("words",),
            "word",
            columns,
            columns,
            "earliest",
            "never" if end is None else "latest",
            BadRecordPolicy.SKIP,
            {},
        )
        ends = () if end is None else tuple((part, end) for part in self._parts)
        begin = SourcePositions(name, tuple((part, 0) for part in self._parts), ends)
        self.source = KafkaSource(operator, self._parts, begin, "g", lambda: None, self.tools)
        self.source.wait_ready(30)
        self._wait_for(len(values))

    def _wait_for(self, count: int) -> None:
        reader = self.source._reader
        assert reader is not None
        wait_until(lambda: len(reader._pending.records) == count, "all messages")

    def feed_more(self, *values: bytes) -> None:
        self.tools.feed.add(list(values))
        self._wait_for(len(values))

    def learn(self, schema: str) -> None:
        """From now on it is known, and records are offered again."""
        self._word.known.add(schema)
        self.tools.set_clock.now += AGAIN_S

    @property
    def next_offset(self) -> int:
        return self.next_offsets[0]

    @property
    def next_offsets(self) -> list[int]:
        found = dict(self.source.positions().next_offsets)
        return [found[part] for part in self._parts]

    def words(self, rows_max: int = 100) -> list[str] | None:
        batch = self.source.take(rows_max)
        return None if batch is None else batch.frame["word"].to_list()


@pytest.fixture
def reading(word: WordFormat) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def make(*values: bytes, partitions: int = 1, end: int | None = None) -> Reading:
        made.append(Reading(word, *values, partitions=partitions, end=end))
        return made[-1]

    yield make
    for one in made:
        one.source.close()


def test_a_decoder_gets_the_messages_as_columns(word: WordFormat, reading: Callable[..., Reading]) -> None:
    assert reading(b"1:a", b"1:b").words() == ["a", "b"]
    (messages,) = word.seen
    assert (len(messages), messages.values, messages.keys) == (2, [b"1:a", b"1:b"], [b"k0", b"k1"])
    assert (messages.headers, messages.timestamps_ms) == ([(), [("h", b"1")]], [None, 1001])
    assert (messages.topics, messages.partitions, messages.offsets) == (["words"] * 2, [0, 0], [0, 1])
    part = messages.part(1, 2)
    assert (len(part), part.values, part.offsets) == (1, [b"1:b"], [1])


def test_records_that_wait_for_a_schema_are_kept_and_offered_again(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"1:a", b"2:b", b"1:c", b"1:d")
    assert one.words() is None
    assert one.words() is None
    assert one.next_offset == 0
    one.learn("2")
    assert one.words(rows_max=3) == ["a", "b", "c"]  # no more than there is room for now
    assert one.next_offset == 3
    assert one.words() == ["d"]
    assert one.next_offset == 4


def test_records_in_front_of_those_that_wait_are_not_held_back_by_a_small_room(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"1:a", b"2:b")
    assert one.words(rows_max=1) == ["a"]
    assert one.words(rows_max=1) is None
    assert one.next_offset == 1


def test_a_schema_may_take_any_time_and_is_not_asked_about_in_every_turn(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"2:b")
    assert one.words() is None
    offered = len(word.seen)
    assert one.words() is None
    assert len(word.seen) == offered
    one.tools.set_clock.now += 100_000
    assert one.words() is None
    assert len(word.seen) == offered + 1
    one.learn("2")
    assert one.words() == ["b"]


def test_other_partitions_go_on_while_one_waits(word: WordFormat, reading: Callable[..., Reading]) -> None:
    one = reading(b"1:a", b"2:b", b"1:c", b"1:d", partitions=2)  # 0: a, c; 1: b, d
    assert one.words() == ["a", "c"]
    assert one.next_offsets == [2, 0]
    assert one.words() is None
    wait_until(lambda: one.tools.feed.paused == {PARTS[1]}, "the partition is paused")
    one.feed_more(b"1:e", b"1:f")
    assert one.words() == ["e"]
    assert one.next_offsets == [3, 0]
    one.learn("2")
    assert one.words() == ["b", "d", "f"]  # in the order of the partition
    assert one.next_offsets == [3, 3]
    wait_until(lambda: not one.tools.feed.paused, "the partition is read again")


def test_a_partition_whose_schema_is_known_does_not_wait_for_the_schema_of_another(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"2:a", b"3:b", partitions=2)
    assert one.words() is None
    one.learn("3")
    assert one.words() == ["b"]
    assert one.next_offsets == [0, 1]


def test_records_that_have_waited_are_taken_up_to_a_size_too(word: WordFormat, reading: Callable[..., Reading]) -> None:
    one = reading(b"2:a", b"2:b", b"2:c")
    assert one.words() is None
    one.source.batch_bytes_max = 6
    one.learn("2")
    assert [one.words(), one.words(), one.words()] == [["a", "b"], ["c"], None]


def test_a_partition_that_has_come_to_its_end_after_it_has_waited_is_not_fetched_any_more(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"2:a", b"2:b", end=1)
    assert one.words() is None
    one.learn("2")
    assert one.words() == ["a"]
    reader = one.source._reader
    assert reader is not None
    one.tools.feed.empty.set()
    wait_until(lambda: not reader._flow, "the client knows what to fetch")
    assert one.source.finished
    assert one.tools.feed.paused == {PART}


def test_records_that_make_the_decoder_raise_together_are_all_good(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"1:a", b"1:fussy")
    assert one.words() == ["a", "fussy"]


def test_a_record_that_makes_the_decoder_raise_is_bad_next_to_a_good_one_and_by_itself(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"1:a", b"1:poison", b"1:poison")
    batches = [one.source.take(2), one.source.take(2)]
    assert [batch and batch.frame.rows() for batch in batches] == [[("a", 0, 0)], []]
    assert [[bad.offset for bad in batch.failures] for batch in batches if batch] == [[1], [2]]


def test_a_record_that_makes_the_decoder_raise_is_bad_alone_also_next_to_one_that_waits(
    word: WordFormat, reading: Callable[..., Reading]
) -> None:
    one = reading(b"1:a", b"1:poison", b"", b"2:b")
    assert one.words() is None
    assert one.next_offset == 0
    one.learn("2")
    batch = one.source.take(100)
    assert batch is not None
    assert batch.frame.rows() == [("a", 0, 0), ("b", 0, 3)]
    assert [(bad.partition, bad.offset, bad.failure.kind) for bad in batch.failures] == [
        (PART, 1, FailureKind.INTERNAL_ERROR),
        (PART, 2, FailureKind.EMPTY_VALUE),
    ]
