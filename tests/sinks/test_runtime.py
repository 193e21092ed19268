"""Sinks as the loop sees them: what cannot be written is reported by its row."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl
import pytest

from tests.operators.driven import Collected
from tidegate.datatypes import BINARY
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_limits import RecordLimits, find_refused
from tidegate.formats.records import OutputRecords
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.operators.builtin.kafka_sink import SinkOperator, TopicChoice
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.runtime import SinkRuntime

OPERATOR = SinkOperator(OperatorName("out"), "out", "raw", (("value", BINARY),), None, None, BadRecordPolicy.SKIP, {})


class Kept(SinkRuntime):
    """Keeps what it would write."""

    def __init__(self, operator: SinkOperator = OPERATOR) -> None:
        super().__init__(operator, SinkPlacement("p", SlotIndex(0), Attempt(1), 60_000, "j"), lambda: None)
        self.values: list[bytes | None] = []
        self.by_topic: dict[str | None, list[bytes | None]] = {}

    def record_limits(self, topic: str) -> RecordLimits:
        return RecordLimits(topic, record_bytes=1_000_000, batch_bytes=10_000 if topic == "large" else 1_000)

    def write(self, rows: OutputRecords) -> None:
        self.values += rows.values.to_list()
        self.by_topic.setdefault(rows.topic, []).extend(rows.values.to_list())


def test_X12_records_that_are_too_large_are_left_out_and_told_by_their_row() -> None:
    kept = Kept()
    out = Collected()
    kept.process(0, pl.DataFrame({"value": [b"a", b"x" * 5_000, b"b"], "__tidegate_offset": [7, 8, 9]}), out)
    assert [(failure.row, failure.kind) for failure in out.failures] == [(1, "RECORD_TOO_LARGE")]
    assert (kept.values, kept.records, kept.bytes) == ([b"a", b"b"], 2, 2)


def test_X13_a_row_that_makes_the_encoder_raise_is_bad_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(encoded: pl.DataFrame, *more: Any) -> Any:
        if b"poison" in encoded["value"].to_list():
            raise ZeroDivisionError("poison")
        return find_refused(encoded, *more)

    monkeypatch.setattr("tidegate.formats.records.find_refused", broken)
    kept = Kept()
    out = Collected()
    kept.process(0, pl.DataFrame({"value": [b"a", b"b", b"poison", b"c", b"x" * 5_000]}), out)
    assert [(failure.row, failure.kind) for failure in out.failures] == [
        (2, "INTERNAL_ERROR"),
        (4, "RECORD_TOO_LARGE"),
    ]
    assert (kept.values, kept.records) == ([b"a", b"b", b"c"], 3)


CHOICE = TopicChoice("topic", ("out", "large"), "concat('l', 'arge')")


def test_rows_go_to_the_topics_that_they_name_in_their_order_and_by_the_limits_of_each() -> None:
    kept = Kept(msgspec.structs.replace(OPERATOR, topic=CHOICE))
    out = Collected()
    rows = [(b"a", "out"), (b"b" * 5_000, "large"), (b"c" * 5_000, "out"), (b"d", "large"), (b"e", "out")]
    kept.process(0, pl.DataFrame(rows, schema=["value", "topic"], orient="row"), out)
    assert kept.by_topic == {"out": [b"a", b"e"], "large": [b"b" * 5_000, b"d"]}
    assert [(one.row, one.kind) for one in out.failures] == [(2, "RECORD_TOO_LARGE")]
    assert "topic out is 1000" in out.failures[0].message
    assert (kept.records, kept.bytes) == (4, 5_003)


def test_a_batch_for_one_topic_is_written_as_it_is() -> None:
    kept = Kept(msgspec.structs.replace(OPERATOR, topic=CHOICE))
    kept.process(0, pl.DataFrame({"value": [b"a", b"b"], "topic": ["large", "large"]}), Collected())
    assert kept.by_topic == {"large": [b"a", b"b"]}


@pytest.mark.parametrize("topics", [["out", None, "other", "out"], [None, None, "other", "other"]])
def test_what_is_no_topic_of_the_list_is_bad_alone(topics: list[str | None]) -> None:
    kept = Kept(msgspec.structs.replace(OPERATOR, topic=CHOICE))
    out = Collected()
    kept.process(0, pl.DataFrame({"value": [b"a", b"b", b"c", b"d"], "topic": topics}), out)
    bad = [row for row, topic in enumerate(topics) if topic != "out"]
    assert [(one.row, one.kind) for one in out.failures] == [(row, "NO_TOPIC") for row in bad]
    messages = {one.message for one in out.failures}
    assert "`concat('l', 'arge')` is NULL, which `allow` of the sink does not have" in messages
    assert "`concat('l', 'arge')` is 'other', which `allow` of the sink does not have" in messages
    assert kept.values == [b"abcd"[row : row + 1] for row in range(4) if row not in bad]


def test_a_batch_without_rows_has_no_topics() -> None:
    kept = Kept(msgspec.structs.replace(OPERATOR, topic=CHOICE))
    kept.process(
        0, pl.DataFrame({"value": [], "topic": []}, schema={"value": pl.Binary, "topic": pl.String}), Collected()
    )
    assert kept.by_topic == {}
