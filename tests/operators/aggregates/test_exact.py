"""Exact sums: their edges, what is left to bytes, and 128 bits."""

from __future__ import annotations

import math
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.operators.aggregates.merging import NAME, make_call, make_mergeable, make_rows, reduce_in_one, result_of
from tidegate.datatypes import BIGINT, DOUBLE
from tidegate.operators.aggregates.exact import (
    REST_BITS,
    ExactRemainder,
    decode_rest,
    divide_pair,
    encode_rest,
    merge_sums,
    rest_of_values,
    total_of,
)

EDGES = (2.0**-44, 2.0**-45, 2.0**62, -(2.0**62), math.nextafter(2.0**62, 0), 1 + 2.0**-52, 5e-324, 0.0)


def sum_of(values: list[float]) -> tuple[object, ...]:
    return reduce_in_one(make_mergeable(NAME, make_call("sum", DOUBLE)), make_rows([(0, v) for v in values], DOUBLE))


@pytest.mark.parametrize("value", [*EDGES, *(-value for value in EDGES)])
def test_a_sum_of_one_value_is_that_value_exactly(value: float) -> None:
    total = total_of(sum_of([value]))
    assert Fraction(total.units, 1 << total.bits) == Fraction(value)


@pytest.mark.parametrize("value", [2.0**-44, -(2.0**-44), math.nextafter(2.0**62, 0), 0.1, 0.0])
def test_common_values_need_no_rest(value: float) -> None:
    assert sum_of([value])[3] is None


@pytest.mark.parametrize("value", [2.0**-45, 2.0**62, math.inf, math.nan])
def test_others_are_in_the_rest(value: float) -> None:
    assert sum_of([value])[3] is not None


def test_units_beyond_a_bigint_go_to_the_rest_by_either_way() -> None:
    large = [math.nextafter(2.0**62, 0)] * 5
    in_one = sum_of(large)
    merged = sum_of(large[:1])
    for value in large[1:]:
        merged = merge_sums(merged, sum_of([value]))
    expected = 5 * Fraction(large[0])
    for found in (in_one, merged):
        assert found[3] is not None
        total = total_of(found)
        assert Fraction(total.units, 1 << total.bits) == expected


def test_a_cancelled_rest_is_none_and_flags_stay() -> None:
    assert encode_rest(rest_of_values([1e300, -1e300])) is None
    flags = encode_rest(rest_of_values([math.inf, -math.inf]))
    assert flags is not None
    assert decode_rest(flags).flags == 6


@pytest.mark.parametrize("units", [1, -1, 1 << REST_BITS, -(1 << 4000), 12345 << 800, 127, 128, -128, -129, 255, 256])
def test_a_rest_survives_its_bytes(units: int) -> None:
    encoded = encode_rest(ExactRemainder(units, 1))
    assert encoded is not None
    assert decode_rest(encoded) == ExactRemainder(units, 1)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(-1, 1), st.integers(1, 2**30))
def test_the_quotient_of_a_pair_is_rounded_once(high: float, part: float, count: int) -> None:
    low = part * math.ulp(high) / 2
    assume(high + low == high)
    expected = (Fraction(high) + Fraction(low)) / count
    assert divide_pair(high, low, count) == expected.numerator / expected.denominator


@pytest.mark.parametrize("count", [3, 7, 10, 2**26, 2**40])
def test_the_quotient_of_a_pair_may_be_next_to_a_tie(count: int) -> None:
    """The quotient is in the middle of two doubles, but for the lower half of the pair."""
    middle = Fraction(1) + Fraction(1, 2**53)
    for sign in (-1, 0, 1):
        whole = middle * count
        high = float(whole)
        low = float(whole - Fraction(high)) + sign * 2.0**-90
        expected = (Fraction(high) + Fraction(low)) / count
        assert divide_pair(high, low, count) == expected.numerator / expected.denominator


def test_a_double_that_overflows_is_infinite_only_at_the_end() -> None:
    aggregate = make_mergeable(NAME, make_call("sum", DOUBLE))
    assert result_of(aggregate, sum_of([1e308] * 2)) == math.inf
    assert result_of(aggregate, sum_of([1e308, 1e308, -1e308])) == 1e308
    assert result_of(aggregate, sum_of([0.1] * 10)) == math.fsum([0.1] * 10) == 1.0


def test_sums_of_128_bits_do_not_wrap_where_a_frame_could_reach() -> None:
    """2^31 rows of the smallest bigint, as 2^20 partial sums of 2^11: far more than a frame may hold."""
    partial = pl.Series([-(1 << 63) << 11], dtype=pl.Int128).new_from_index(0, 1 << 20)
    frame = pl.DataFrame({"k": [0] * (1 << 20), "x": partial})
    assert frame.group_by("k").agg(pl.col("x").sum())["x"].to_list() == [-(1 << 63) << 31]


def test_a_bigint_sum_is_checked_at_the_result_only() -> None:
    aggregate = make_mergeable(NAME, make_call("sum", BIGINT))
    most = 2**63 - 1
    over = reduce_in_one(aggregate, make_rows([(0, most), (1, most), (2, most)], BIGINT))
    assert result_of(aggregate, over) == "OverflowError"
    under = reduce_in_one(aggregate, make_rows([(0, -most), (1, -most)], BIGINT))
    assert result_of(aggregate, aggregate.merge(over, under)) == most
