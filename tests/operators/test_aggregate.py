"""Running totals per key."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.driven import Driven
from tests.operators.rows import FUNCTIONS, make_aggregate, make_frame
from tests.operators.ways import both_ways
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import CheckpointId
from tidegate.operators.aggregates.columnar.running import OVERFLOW
from tidegate.operators.aggregates.contract import AggregateUse, Value
from tidegate.operators.aggregates.extremes import Extreme
from tidegate.operators.aggregates.registry import make_aggregate as make_function
from tidegate.operators.runtime import BatchTooLarge
from tidegate.state.base import Share
from tidegate.state.errors import LocalStateFailed, StateUnreadable

MAX = 2**63 - 1
_way = both_ways()


def frame_of(rows: list[tuple[Any, Any]], kind: DataType = BIGINT) -> pl.DataFrame:
    return make_frame({"k": BIGINT, "x": kind}, rows)


def snapshot(operator: Driven) -> list[bytes]:
    capture = operator.state.capture(CheckpointId(1), full=True)
    assert capture.encode is not None
    return list(capture.encode())


def process(operator: Driven, frame: pl.DataFrame) -> pl.DataFrame:
    result = operator.process(frame)
    assert result is not None
    return result


def test_each_gives_one_row_per_input_row_in_order_across_batches() -> None:
    operator = make_aggregate(["count(*)", "sum"])
    first = process(operator, frame_of([(1, 10), (2, 5), (1, 1)]))
    second = process(operator, frame_of([(2, 1), (1, 0)]))
    assert first.rows() == [(1, 1, 10), (2, 1, 5), (1, 2, 11)]
    assert second.rows() == [(2, 2, 6), (1, 3, 11)]
    assert len(operator.state) == 2


def test_latest_gives_the_last_row_per_key_in_order_of_last_occurrence() -> None:
    operator = make_aggregate(["sum"], emit="latest")
    assert process(operator, frame_of([(1, 10), (2, 5), (3, 7), (1, 1)])).rows() == [(2, 5), (3, 7), (1, 11)]


def test_system_columns_stay_with_their_rows() -> None:
    frame = frame_of([(1, 10), (2, 5), (1, 1)]).with_columns(pl.Series("__tidegate_offset", [7, 8, 9]))
    assert process(make_aggregate(["sum"]), frame)["__tidegate_offset"].to_list() == [7, 8, 9]
    assert process(make_aggregate(["sum"], emit="latest"), frame)["__tidegate_offset"].to_list() == [8, 9]


def test_an_empty_frame_gives_nothing() -> None:
    assert make_aggregate(["sum"]).process(frame_of([])) is None


def test_null_keys_are_one_group() -> None:
    frame = frame_of([(None, 1), (1, 2), (None, 3)])
    assert process(make_aggregate(["sum"]), frame)["sum"].to_list() == [1, 2, 4]


def test_keys_of_several_columns_and_types() -> None:
    keys = {"s": STRING, "b": BOOLEAN, "d": DATE, "t": TIMESTAMP, "x": BINARY}
    instant, day = dt.datetime(1969, 1, 1, tzinfo=dt.UTC), dt.date(1969, 1, 1)
    rows = [("a", True, day, instant, b"\xff"), ("a", None, day, instant, b"\xff"), ("a", True, day, instant, b"\xff")]
    operator = make_aggregate(["count(*)"], keys=keys)
    result = process(operator, make_frame(keys, rows))
    assert result.rows() == [(*rows[0], 1), (*rows[1], 1), (*rows[2], 2)]
    restored = make_aggregate(["count(*)"], keys=keys)
    restored.state.restore(snapshot(operator), Share(range(128)))
    assert process(restored, make_frame(keys, rows[:2]))["count(*)"].to_list() == [3, 2]


def test_overflow_of_a_sum_fails_its_row_and_leaves_the_state_untouched() -> None:
    operator = make_aggregate(["count(*)", "sum", "last"])
    result = process(operator, frame_of([(1, MAX), (2, 4), (1, 1), (2, 5), (1, -1)]))
    assert operator.take_failures() == [RecordFailure(2, FailureKind.ARITHMETIC_OVERFLOW, OVERFLOW)]
    assert operator.take_failures() == []
    assert result.rows() == [(1, 1, MAX, MAX), (2, 1, 4, 4), (2, 2, 9, 5), (1, 2, MAX - 1, -1)]
    assert process(operator, frame_of([(1, 0)])).rows() == [(1, 3, MAX - 1, 0)]


def test_a_batch_in_which_every_row_overflows_gives_nothing() -> None:
    operator = make_aggregate(["sum"], emit="latest")
    operator.process(frame_of([(1, MAX)]))
    assert operator.process(frame_of([(1, 1), (1, 2)])) is None
    assert len(operator.take_failures()) == 2


def test_overflow_with_latest_keeps_the_order_of_the_good_rows() -> None:
    operator = make_aggregate(["sum"], emit="latest")
    rows = [(1, MAX), (2, 4), (1, 1), (3, 1), (2, 1)]
    assert process(operator, frame_of(rows)).rows() == [(1, MAX), (3, 1), (2, 5)]


def break_min(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the minimum of texts raise at a value, which is computed in Python."""
    plain = Extreme.run

    def broken(self: Extreme, numbers: Any, values: Any, *others: Any) -> Any:
        results = plain(self, numbers, values, *others)
        if "13" in values:
            raise ZeroDivisionError("thirteen")
        return results

    monkeypatch.setattr(Extreme, "run", broken)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_X13_a_row_that_raises_fails_alone_and_no_other_counts_twice(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_min(monkeypatch)
    functions = ["count(*)", "last", "min"]
    operator = make_aggregate(functions, STRING, backend=backend)
    rows = [(number % 3, str(number)) for number in range(50)]
    result = process(operator, frame_of(rows, STRING))
    [failure] = operator.take_failures()
    assert (failure.row, str(failure)) == (13, "INTERNAL_ERROR: ZeroDivisionError: thirteen")
    good = [row for row in rows if row[1] != "13"]
    assert result.rows() == process(make_aggregate(functions, STRING), frame_of(good, STRING)).rows()
    assert process(operator, frame_of([(1, "0")], STRING)).rows() == [(1, 17, "0", "0")]
    operator.state.close()


def test_X15_texts_of_the_state_that_have_no_room_in_one_batch_are_refused_before_anything_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.operators.aggregates.columnar.running.BATCH_BYTES_MAX", 1000)
    operator = make_aggregate(["first", "count(*)"], STRING)
    operator.process(frame_of([(1, "x" * 600)], STRING))
    with pytest.raises(BatchTooLarge):
        operator.process(frame_of([(1, "a"), (1, "b")], STRING))
    assert operator.take_failures() == []
    assert process(operator, frame_of([(1, "a")], STRING)).rows() == [(1, "x" * 600, 2)]
    assert process(operator, frame_of([(2, "y" * 9000)], STRING)).rows() == [(2, "y" * 9000, 1)]


def test_X13_texts_that_have_no_room_next_to_a_row_that_raises_make_no_other_count_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that are good are in the state by then: a batch that is given back after that would count them again."""
    monkeypatch.setattr("tidegate.operators.aggregates.columnar.running.BATCH_BYTES_MAX", 1000)
    monkeypatch.setattr("tidegate.operators.kinds.aggregate.runtime.BATCH_BYTES_MAX", 1000)
    break_min(monkeypatch)
    operator = make_aggregate(["last", "first", "min", "count(*)"], STRING)
    process(operator, frame_of([(2, "x" * 600)], STRING))
    rows = [(1, "a"), (1, "13"), (2, "b"), (2, "c")]
    with pytest.raises(BatchTooLarge):
        operator.process(frame_of(rows, STRING))
    assert operator.take_failures() == []
    assert process(operator, frame_of(rows[:2], STRING)).rows() == [(1, "a", "a", "a", 1)]
    assert [failure.row for failure in operator.take_failures()] == [1]
    assert process(operator, frame_of(rows[2:3], STRING)).rows() == [(2, "b", "x" * 600, "b", 2)]
    assert process(operator, frame_of(rows[3:], STRING)).rows() == [(2, "c", "x" * 600, "b", 3)]


def test_X13_state_on_a_broken_disk_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = make_aggregate(["sum"])

    def fail(*_: object) -> None:
        raise LocalStateFailed("the disk is full")

    monkeypatch.setattr(operator.state, "put_columns", fail)
    with pytest.raises(LocalStateFailed):
        operator.process(frame_of([(1, 1), (2, 2)]))
    assert operator.take_failures() == []


def test_F15_F16_a_restored_operator_goes_on_exactly_where_the_snapshot_was() -> None:
    operator = make_aggregate(FUNCTIONS)
    operator.process(frame_of([(1, 5), (2, None), (1, -3)]))
    capture = operator.state.capture(CheckpointId(1))
    expected = process(operator, frame_of([(2, 9), (1, None), (3, 1)]))
    restored = make_aggregate(FUNCTIONS)
    assert capture.encode is not None
    restored.state.restore(capture.encode(), Share(range(128)))
    assert len(restored.state) == 2, "two keys had occurred before the snapshot"
    assert process(restored, frame_of([(2, 9), (1, None), (3, 1)])).equals(expected)


def test_F15_plain_values_of_the_user_live_on_in_the_snapshot() -> None:
    operator = make_aggregate(["count(*)", "sum"])
    operator.process(frame_of([(1, 5), (1, -3)]))
    restored = make_aggregate(["count(*)", "sum"])
    restored.state.restore(snapshot(operator), Share(range(128)))
    assert process(restored, frame_of([(1, 10)])).rows() == [(1, 3, 12)]


def test_F18_state_splits_and_joins_by_key_group() -> None:
    rows = [(key, key) for key in range(1000)]
    operator = make_aggregate(["sum"])
    operator.process(frame_of(rows))
    files = snapshot(operator)
    halves = [make_aggregate(["sum"]) for _ in range(2)]
    halves[0].state.restore(files, Share(range(64)))
    halves[1].state.restore(files, Share(range(64, 128)))
    assert len(halves[0].state) + len(halves[1].state) == 1000
    assert min(len(half.state) for half in halves) > 400
    joined = make_aggregate(["sum"])
    joined.state.restore([file for half in halves for file in snapshot(half)], Share(range(128)))
    assert process(joined, frame_of(rows))["sum"].to_list() == [2 * key for key in range(1000)]


def test_state_of_another_definition_is_refused() -> None:
    files = snapshot(make_aggregate(["sum", "min"]))
    with pytest.raises(StateUnreadable, match=r"now needs .*\(min is gone\)"):
        make_aggregate(["sum"]).state.restore(files, Share(range(128)))


@pytest.mark.parametrize("kind", [STRING, BINARY, BOOLEAN, DATE, TIMESTAMP, DOUBLE])
def test_min_max_first_last_keep_their_type(kind: DataType) -> None:
    values: dict[str, tuple[Any, Any]] = {
        "string": ("ä", "z"),
        "binary": (b"\x01", b"\xff"),
        "boolean": (False, True),
        "date": (dt.date(1960, 1, 1), dt.date(2026, 1, 1)),
        "timestamp": (dt.datetime(1960, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.UTC)),
        "double": (-0.5, 1e300),
    }
    low, high = sorted(values[kind.kind])
    operator = make_aggregate(["min", "max", "first", "last"], kind)
    result = process(operator, frame_of([(1, None), (1, high), (1, low)], kind))
    assert result.rows()[-1] == (1, low, high, None, low)
    restored = make_aggregate(["min", "max", "first", "last"], kind)
    restored.state.restore(snapshot(operator), Share(range(128)))
    assert process(restored, frame_of([(1, None)], kind)).rows() == [(1, low, high, None, None)]


BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-(2**63), MAX) | st.integers(-9, 9)), max_size=8),
    max_size=4,
)


@pytest.mark.slow
@given(BATCHES, BATCHES)
def test_results_do_not_depend_on_how_rows_are_cut_into_batches(left: list[list[Any]], right: list[list[Any]]) -> None:
    batches = left + right
    whole, cut = make_aggregate(FUNCTIONS), make_aggregate(FUNCTIONS)
    rows = [row for batch in batches for row in batch]
    expected = whole.process(frame_of(rows))
    parts = [part for batch in batches if (part := cut.process(frame_of(batch))) is not None]
    assert (expected is None) == (not parts)
    if expected is not None:
        assert pl.concat(parts).equals(expected)


DOUBLES = st.one_of(
    st.floats(),
    st.floats(-1e6, 1e6),
    st.sampled_from([0.1, 0.2, 1e300, -1e300, 5e-324, 2.0**62, 2.0**-44, math.inf, -math.inf, math.nan, -0.0]),
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.none() | DOUBLES), max_size=30), st.integers(1, 30))
def test_sums_of_doubles_are_exact_after_each_row(rows: list[tuple[int, float | None]], size: int) -> None:
    functions = ["sum", "avg", "var_pop"]
    operator = make_aggregate(functions, DOUBLE)
    calls = [AggregateCall(name, ColumnReference("x", DOUBLE), DOUBLE) for name in functions]
    windowed = [make_function(call.function, call, AggregateUse.WINDOW) for call in calls]
    accumulators: dict[int, list[Value]] = {}
    expected = []
    for key, value in rows:
        held = accumulators.setdefault(key, [one.zero for one in windowed])
        if value is not None:
            held[:] = [one.add(accumulator, value) for one, accumulator in zip(windowed, held, strict=True)]
        expected.append(tuple(one.result(accumulator) for one, accumulator in zip(windowed, held, strict=True)))
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    found = [row for batch in batches for row in process(operator, frame_of(batch, DOUBLE)).select(functions).rows()]
    assert repr(found) == repr(expected)


# -- FILTER and IGNORE NULLS -------------------------------------------------------------------------------------------

COUNTED = {"k": BIGINT, "x": BIGINT, "c": BOOLEAN}
Row = tuple[int, int | None, bool | None]


def held_results(functions: list[str], rows: list[Row], *, ignore_nulls: bool) -> list[tuple[Any, ...]]:
    """Results after each row: those of a step that has seen the rows that count alone, or what they were before."""
    operator = make_aggregate(functions)
    held: dict[int, tuple[Any, ...]] = {}
    found = []
    for key, value, counts in rows:
        nothing = (key, *(0 if function.startswith("count") else None for function in functions))
        if counts and not (ignore_nulls and value is None):
            [held[key]] = process(operator, frame_of([(key, value)])).rows()
        found.append(held.get(key, nothing))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(-9, 9), st.sampled_from([True, False, None]))),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_filtered_total_is_that_of_the_rows_that_count(rows: list[Row], size: int, ignore_nulls: bool) -> None:
    functions = ["first", "last"] if ignore_nulls else list(FUNCTIONS)
    operator = make_aggregate(functions, condition="c", ignore_nulls=ignore_nulls)
    found: list[tuple[Any, ...]] = []
    for start in range(0, len(rows), size):
        found += process(operator, make_frame(COUNTED, rows[start : start + size])).rows()
        restored = make_aggregate(functions, condition="c", ignore_nulls=ignore_nulls)
        restored.state.restore(snapshot(operator), Share(range(128)))
        operator = restored
    assert found == held_results(functions, rows, ignore_nulls=ignore_nulls)


def test_the_first_row_that_counts_may_be_null() -> None:
    operator = make_aggregate(["first"], condition="c")
    rows: list[Row] = [(1, 5, False), (1, None, True), (1, 7, True)]
    assert process(operator, make_frame(COUNTED, rows))["first"].to_list() == [None, None, None]
    ignoring = make_aggregate(["first"], condition="c", ignore_nulls=True)
    assert process(ignoring, make_frame(COUNTED, rows))["first"].to_list() == [None, None, 7]


def test_a_key_of_which_no_row_counts_has_results_and_an_entry() -> None:
    operator = make_aggregate(["count(*)", "sum", "first"], emit="latest", condition="c")
    assert process(operator, make_frame(COUNTED, [(1, 5, None), (1, 6, False)])).rows() == [(1, 0, None, None)]
    assert len(operator.state) == 1


def test_a_filtered_sum_that_overflows_fails_the_row_that_counts() -> None:
    operator = make_aggregate(["sum"], condition="c")
    result = process(operator, make_frame(COUNTED, [(1, MAX, True), (1, MAX, False), (1, 1, True), (1, 2, None)]))
    assert [failure.row for failure in operator.take_failures()] == [2]
    assert result["sum"].to_list() == [MAX, MAX, MAX]
