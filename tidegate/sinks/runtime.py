"""A Kafka sink as an operator of the slot loop: encodes batches and counts the encoded records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import starmap
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.config.fields.secrets import Redactor
from tidegate.formats.bisection import Raising, evaluate_rows, internal_failure
from tidegate.formats.dead_letters.encoder import DeadLetterEncoder
from tidegate.formats.failures import FailureKind, RecordFailure, gather_failures
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator, TopicChoice
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.sinks.kafka import KafkaSink, SinkPlacement

_Parts = tuple[list[tuple[int, OutputRecords]], list[Raising]]
"""A batch as records with the row they begin at, and the rows that raise."""
_SHOWN_MAX: Final = 60
"""Characters of a value shown in a message, since the value may be anything."""


class SinkRuntime(KafkaSink, OperatorRuntime):
    """A `Sink` of the slot loop. `masked` are secrets that dead letters must not contain."""

    def __init__(
        self,
        operator: SinkOperator,
        placement: SinkPlacement,
        wake: Callable[[], None],
        *,
        tools: KafkaTools = KAFKA_TOOLS,
        masked: Iterable[str] = (),
    ) -> None:
        super().__init__(operator, placement, wake, tools=tools)
        self.operator = operator
        self._attempt = placement.attempt
        self._redactor = Redactor(masked)
        self.records = 0
        self.bytes = 0
        self._encoder = self._make_encoder()

    def _make_encoder(self) -> RecordEncoder | DeadLetterEncoder:
        operator = self.operator
        if isinstance(operator, DeadLetterOperator):
            return DeadLetterEncoder(operator.pipeline, self._attempt, self._redactor)
        return RecordEncoder(operator.format, operator.columns, operator.parts, operator.options)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # one input
        """Rows that Kafka cannot store are omitted and reported as failed."""
        topic = self.operator.topic
        failures = self._write(batch, topic) if isinstance(topic, str) else self._write_by_topic(batch, topic)
        if failures:
            out.fail(batch, failures)

    def _write(self, batch: pl.DataFrame, topic: str, *, chosen: bool = False) -> list[RecordFailure]:
        parts, raising = self._encode(batch, topic)
        if _lack_partitions(encoded for _, encoded in parts) and self.has_grown(topic):
            parts, raising = self._encode(batch, topic)
        for _, encoded in parts:
            self.records += len(encoded)
            self.bytes += encoded.size_bytes
            self.write(msgspec.structs.replace(encoded, topic=topic) if chosen else encoded)
        found = ((start, encoded.failures) for start, encoded in parts)
        return gather_failures(starmap(internal_failure, raising), found)

    def _encode(self, batch: pl.DataFrame, topic: str) -> _Parts:
        limits = self.record_limits(topic)
        return evaluate_rows(batch.height, lambda start, end: self._encoder.encode(batch[start:end], limits))

    def _write_by_topic(self, batch: pl.DataFrame, choice: TopicChoice) -> list[RecordFailure]:
        """Writes each topic's rows in order; each topic has its own limits."""
        parts, failures = split_rows(batch, choice)
        for topic, frame, rows in parts:
            found = self._write(frame, topic, chosen=True)
            failures += found if rows is None else [msgspec.structs.replace(one, row=rows[one.row]) for one in found]
        return sorted(failures, key=attrgetter("row"))


def _lack_partitions(made: Iterable[OutputRecords]) -> bool:
    return any(failure.kind is FailureKind.NO_PARTITION for one in made for failure in one.failures)


class TopicRows(NamedTuple):
    """Rows of a batch that go to one topic, in order."""

    topic: str
    frame: pl.DataFrame
    rows: Sequence[int] | None = None
    """Their indices in the batch; None for the whole batch."""


def split_rows(batch: pl.DataFrame, choice: TopicChoice) -> tuple[list[TopicRows], list[RecordFailure]]:
    """Assigns each row once: to its topic, or to the failures. The order of topics has no meaning."""
    topics = batch[choice.column]
    if (alone := _only(topics, choice)) is not None:
        return [TopicRows(alone, batch)], []
    found = []
    for topic in choice.allowed:
        mask = topics == topic
        if mask.any():
            found.append(TopicRows(topic, batch.filter(mask), mask.arg_true().to_list()))
    bad = ~topics.is_in(list(choice.allowed)).fill_null(value=False)
    rows = bad.arg_true()
    return found, [_failure(row, value, choice) for row, value in zip(rows, topics.gather(rows), strict=True)]


def _only(topics: pl.Series, choice: TopicChoice) -> str | None:
    """Returns the topic of all rows; None if there are several, or one that is not allowed."""
    if not len(topics):
        return None
    first = topics[0]
    return first if first in choice.allowed and bool((topics == first).all(ignore_nulls=False)) else None


def _failure(row: int, value: str | None, choice: TopicChoice) -> RecordFailure:
    what = "NULL" if value is None else repr(value[:_SHOWN_MAX])
    return RecordFailure(
        row, FailureKind.NO_TOPIC, f"`{choice.text}` is {what}, which `allow` of the sink does not have"
    )
