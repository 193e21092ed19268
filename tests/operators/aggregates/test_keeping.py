"""Aggregates that keep values are bounded, and approximate in the same way whatever the order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.operators.aggregates.merging import (
    NAME,
    make_call,
    make_mergeable,
    make_rows,
    reduce_in_one,
    reduce_in_pieces,
    result_of,
)
from tidegate.datatypes import BIGINT, BINARY, DOUBLE, INT, STRING, DataType
from tidegate.formats.failures import FailureKind
from tidegate.operators.aggregates import approximate, collecting
from tidegate.operators.aggregates.contract import AggregateTooLarge, Value, derive_accumulators, derive_columns
from tidegate.operators.kinds.window.running.base import derive_failure
from tidegate.state.declaration import StateField
from tidegate.state.snapshot import tuple_type

KEEPING = ("count_distinct", "collect_set", "collect_list")


def reduced(function: str, kind: DataType, values: Sequence[Any], seed: int | None = None, share: float = 0.5) -> Value:
    """The accumulator of values, of one batch or of pieces in another order."""
    aggregate = make_mergeable(NAME, make_call(function, kind, share=share))
    rows = make_rows([(index, value) for index, value in enumerate(values)], kind)
    return reduce_in_one(aggregate, rows) if seed is None else reduce_in_pieces(aggregate, rows, seed)


def results(function: str, kind: DataType, values: Sequence[Any], share: float = 0.5) -> set[str]:
    """The results of several ways of merging."""
    aggregate = make_mergeable(NAME, make_call(function, kind, share=share))
    ways = [reduced(function, kind, values, seed, share) for seed in (None, 1, 2, 3)]
    return {repr(result_of(aggregate, way)) for way in ways}


@pytest.mark.parametrize("function", KEEPING)
@pytest.mark.parametrize(
    ("kind", "values"),
    [(INT, range(11)), (STRING, ["ä" * 15, "b" * 11]), (BINARY, [bytes([n] * 21) for n in range(2)])],
    ids=["values", "text", "bytes"],
)
def test_a_group_with_too_much_has_no_result_however_it_is_merged(
    monkeypatch: pytest.MonkeyPatch, function: str, kind: DataType, values: Sequence[Any]
) -> None:
    monkeypatch.setattr(collecting, "VALUES_MAX", 10)
    monkeypatch.setattr(collecting, "BYTES_MAX", 40)
    assert results(function, kind, values) == {"'AggregateTooLarge'"}
    assert results(function, kind, values[1:]) != {"'AggregateTooLarge'"}


def test_what_is_too_large_is_a_failure_of_its_own_kind() -> None:
    assert derive_failure(3, AggregateTooLarge("more")).kind is FailureKind.RESULT_TOO_LARGE
    assert derive_failure(3, OverflowError("more")).kind is FailureKind.ARITHMETIC_OVERFLOW
    assert derive_failure(3, ValueError("other")).kind is FailureKind.INTERNAL_ERROR


def test_equal_values_do_not_count_against_the_bound_of_distinct_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "VALUES_MAX", 10)
    assert results("count_distinct", INT, list(range(10)) * 5) == {"10"}


@pytest.mark.slow
def test_an_approximate_count_is_the_same_for_equal_sets_and_near_the_true_one() -> None:
    numbers = list(range(60_000))
    ways = []
    for seed in range(3):
        random.Random(seed).shuffle(numbers)
        ways.append(reduced("approx_count_distinct", BIGINT, numbers, seed))
    assert len(set(ways)) == 1
    (result,) = results("approx_count_distinct", BIGINT, numbers)
    assert math.isclose(int(result), 60_000, rel_tol=0.05)
    assert len(ways[0][0]) <= 33_000


def test_an_approximate_count_is_exact_for_few_and_takes_the_empty_text() -> None:
    assert results("approx_count_distinct", STRING, ["", "", "a"] * 20) == {"2"}
    assert results("approx_count_distinct", BINARY, [b"", b"\xff", None]) == {"2"}
    assert results("approx_count_distinct", INT, range(4_096)) == {"4096"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [DOUBLE, BIGINT], ids=str)
def test_a_percentile_of_many_values_is_near_and_the_same_however_it_is_merged(kind: DataType) -> None:
    chance = random.Random(5)
    values = [math.exp(chance.uniform(0, 13.8)) * chance.choice([1, 1, 1, -1]) for _ in range(30_000)]
    if kind == BIGINT:
        values = [round(value) for value in values]
    ordered = sorted(values)
    for share in (0.0, 0.01, 0.5, 0.99, 1.0):
        (result,) = results("percentile_approx", kind, values, share)
        wanted = ordered[max(1, math.ceil(share * len(ordered))) - 1]
        assert abs(float(result) - wanted) <= abs(wanted) * 40 / 4_096, share
    assert len({reduced("percentile_approx", kind, values, seed) for seed in (None, 1, 2)}) == 1


@pytest.mark.slow
def test_a_histogram_is_bounded_whatever_the_values() -> None:
    everything = [sign * 2.0**power * m for sign in (-1, 1) for power in range(-1074, 1023) for m in (1, 1.5)]
    special = [math.inf, -math.inf, math.nan, 0.0, -0.0]
    level, bins, counts = reduced("percentile_approx", DOUBLE, [*everything, *special])
    assert level == 52
    assert len(bins) <= approximate.BINS_MAX
    assert sum(counts) == len(everything) + len(special)
    assert results("percentile_approx", DOUBLE, [*everything, *special], 0.0) == {"-inf"}
    assert results("percentile_approx", DOUBLE, [*everything, *special], 0.5) == {"0.0"}


@pytest.mark.parametrize(
    ("function", "kind", "values"),
    [
        ("collect_list", STRING, ["b", None, "a"]),
        ("collect_set", DOUBLE, [0.5, -0.0, math.nan]),
        ("approx_count_distinct", INT, [1, 2]),
        ("percentile_approx", INT, [1, 2, 2]),
        ("var_pop", DOUBLE, [1e300, 0.1, 2.0**70]),
        ("sum", BIGINT, [2**63 - 1] * 3),
        ("min_by", STRING, ["a", None]),
    ],
)
def test_an_accumulator_survives_the_state_file_and_a_frame(function: str, kind: DataType, values: list[Any]) -> None:
    aggregate = make_mergeable(NAME, make_call(function, kind))
    rows = make_rows([(index, value, index) for index, value in enumerate(values)], kind)
    accumulator = reduce_in_one(aggregate, rows)
    fields = [StateField(field.suffix, field.type, field.nullable) for field in aggregate.fields]
    decoder = msgspec.msgpack.Decoder(tuple_type(fields))
    assert decoder.decode(msgspec.msgpack.encode(accumulator)) == accumulator
    columns = derive_columns(aggregate, [accumulator, accumulator])
    assert derive_accumulators(aggregate, pl.DataFrame(columns)) == [accumulator, accumulator]
