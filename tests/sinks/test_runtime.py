"""Sinks as the loop sees them: what cannot be written is reported by its row."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.operators.driven import Collected
from tidegate.datatypes import BINARY
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_limits import RecordLimits, find_refused
from tidegate.formats.records import OutputRecords
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.sinks.runtime import SinkRuntime

OPERATOR = SinkOperator(OperatorName("out"), "out", "raw", (("value", BINARY),), None, None, BadRecordPolicy.SKIP, {})


class Kept(SinkRuntime):
    """Keeps what it would write."""

    record_limits = RecordLimits("out", record_bytes=1_000_000, batch_bytes=1_000)

    def __init__(self) -> None:
        super().__init__(OPERATOR, "p", SlotIndex(0), Attempt(1), 60_000, lambda: None)
        self.values: list[bytes | None] = []

    def write(self, rows: OutputRecords) -> None:
        self.values += rows.values


def test_X12_records_that_are_too_large_are_left_out_and_told_by_their_row() -> None:
    kept = Kept()
    out = Collected()
    kept.process(0, pl.DataFrame({"value": [b"a", b"x" * 5_000, b"b"], "__offset": [7, 8, 9]}), out)
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
