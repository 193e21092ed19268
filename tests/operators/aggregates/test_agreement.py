"""A running total, a window, a session and a total of changes over the same records agree to the last bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, STRING, TIMESTAMP, DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator, ChangesOperator
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import StepOperator

KEYS = (("k", STRING),)
X, WHOLE = ColumnReference("x", DOUBLE), ColumnReference("i", BIGINT)
CALLS = {
    "n": AggregateCall("count", None, BIGINT),
    "some": AggregateCall("count", X, BIGINT),
    "total": AggregateCall("sum", X, DOUBLE),
    "mean": AggregateCall("avg", X, DOUBLE),
    "positive": AggregateCall("sum", X, DOUBLE, condition=ColumnReference("c", BOOLEAN)),
    "whole": AggregateCall("sum", WHOLE, BIGINT),
    "least": AggregateCall("min", WHOLE, BIGINT),
    "most": AggregateCall("max", X, DOUBLE),
}
MOMENTS = {name: AggregateCall(name, X, DOUBLE) for name in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")}
BOUNDS = (("window_start", TIMESTAMP), ("window_end", TIMESTAMP))
HOUR = 3_600_000

Record = tuple[str, float | None, int, int]
"""Key, value, whole number and event time."""


def columns_of(calls: dict[str, AggregateCall]) -> tuple[tuple[str, DataType], ...]:
    return tuple((name, call.type) for name, call in calls.items())


def totals() -> StepOperator:
    calls = CALLS | MOMENTS
    output = (*KEYS, *columns_of(calls))
    return AggregateOperator(OperatorName("t"), ("k",), tuple(calls.items()), "each", output, BadRecordPolicy.FAIL)


def changes() -> StepOperator:
    output = (*KEYS, *columns_of(CALLS), ("_deleted", BOOLEAN))
    return ChangesOperator(OperatorName("c"), ("k",), tuple(CALLS.items()), "latest", output, BadRecordPolicy.FAIL)


def window(windowing: Windowing) -> StepOperator:
    calls = CALLS | MOMENTS
    output = (*KEYS, *BOUNDS, *columns_of(calls))
    return WindowOperator(OperatorName("w"), ("k",), tuple(calls.items()), windowing, 0, output, BadRecordPolicy.FAIL)


def draw_records(chance: random.Random) -> list[Record]:
    """Prices, numbers of any magnitude, and in some of the keys what is no number or cancels all others."""
    kinds: dict[str, Callable[[], float]] = {
        "prices": lambda: round(chance.uniform(-1000, 1000), 2),
        "any": lambda: chance.uniform(-1, 1) * 10.0 ** chance.randint(-12, 12),
        "wide": lambda: chance.choice([1e300, -1e300, 1e-300, 5e-324, 1e16, 1.0, -0.0, 2.0**62, 1.7e308, -1.7e308]),
        "special": lambda: chance.choice([math.nan, math.inf, -math.inf, 1.5, 2.5]),
        "infinite": lambda: chance.choice([math.inf, 1.5, -2.5]),
    }
    return [
        (key, None if chance.random() < 0.1 else draw(), chance.randrange(-(2**40), 2**40), chance.randrange(HOUR))
        for key, draw in kinds.items()
        for _ in range(chance.randrange(1, 60))
    ]


def frame_of(records: Sequence[Record], kinds: Sequence[int] = ()) -> pl.DataFrame:
    keys, values, numbers, times = zip(*records, strict=True)
    frame = pl.DataFrame(
        {
            "k": pl.Series(keys, dtype=pl.String),
            "x": pl.Series(values, dtype=pl.Float64),
            "i": pl.Series(numbers, dtype=pl.Int64),
            "c": pl.Series([None if value is None else value > 0 for value in values], dtype=pl.Boolean),
            "__tidegate_time": pl.Series(times, dtype=pl.Int64),
            "__tidegate_behind": pl.Series([0] * len(times), dtype=pl.Int64),
        }
    )
    return frame.with_columns(pl.Series(ROW_KIND, kinds, dtype=pl.Int8)) if kinds else frame


def play(spec: StepOperator, records: Sequence[Record], chance: random.Random, kinds: Sequence[int] = ()) -> Any:
    """The last results of each key, of batches of any size and restarts at any parallelism."""
    subtasks = Subtasks(spec, ["k"])
    start = 0
    while start < len(records):
        end = start + chance.randrange(1, 40)
        subtasks.process(frame_of(records[start:end], kinds[start:end]))
        start = end
        if chance.random() < 0.2:
            subtasks.restart(chance.randrange(1, 4))
    subtasks.watermark(END_OF_TIME)
    rows = [row for batch in subtasks.out.batches for row in batch.to_dicts()]
    return {row["k"]: {name: repr(row[name]) for name in CALLS | MOMENTS if name in row} for row in rows}


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_all_ways_to_aggregate_agree_to_the_last_bit(seed: int) -> None:
    chance = random.Random(seed)
    records = draw_records(chance)
    expected = play(window(Windowing(size_ms=HOUR, every_ms=HOUR)), records, chance)
    assert set(expected) == {record[0] for record in records}
    for _ in range(3):  # interleavings
        mixed = chance.sample(records, len(records))
        assert play(totals(), mixed, chance) == expected
        assert play(window(Windowing(size_ms=2 * HOUR, every_ms=HOUR)), mixed, chance) == expected
        assert play(window(Windowing(size_ms=HOUR, every_ms=0)), mixed, chance) == expected
        gone = draw_records(chance)  # rows that come and go again
        steps = [*((INSERT, one) for one in (*gone, *mixed)), *((DELETE, one) for one in gone)]
        found = play(changes(), [one for _, one in steps], chance, [kind for kind, _ in steps])
        assert found == {key: {name: row[name] for name in CALLS} for key, row in expected.items()}
