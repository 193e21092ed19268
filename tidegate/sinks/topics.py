"""Splits the rows of a batch by destination topic. Runs only in slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import polars as pl

from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.operators.builtin.kafka_sink import TopicChoice

SHOWN_MAX: Final = 60
"""Characters of a value shown in a message, since the value may be anything."""


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
    what = "NULL" if value is None else repr(value[:SHOWN_MAX])
    return RecordFailure(
        row, FailureKind.NO_TOPIC, f"`{choice.text}` is {what}, which `allow` of the sink does not have"
    )
