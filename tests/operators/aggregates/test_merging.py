"""Results do not depend on how rows are cut into batches and partial results are merged, and are those of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.aggregates.merging import (
    NAME,
    Row,
    fold_rows,
    make_call,
    make_mergeable,
    make_rows,
    reduce_in_one,
    reduce_in_pieces,
    result_of,
)
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    decimal_of,
    decimal_of_units,
)
from tidegate.expressions.decimal_types import derive_average_type, derive_sum_type
from tidegate.expressions.expression import AggregateCall, ColumnReference, Literal
from tidegate.operators.aggregates.contract import derive_accumulators
from tidegate.operators.aggregates.values import rank
from tidegate.operators.kinds.window.running.partial import reduce_rows

pytestmark = pytest.mark.slow

DOUBLES = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**62, 2.0**-44, 0.1]),
    st.floats(),
    st.floats(-1e6, 1e6),
    st.decimals(-1000, 1000, places=2).map(float),
)
BIGINTS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0]), st.integers(-9, 9))
PRICE, WIDE = decimal_of(7, 2), decimal_of(38, 3)
GREATEST = decimal_of_units(10**38 - 1, 3)


def decimals_of(kind: DataType) -> st.SearchStrategy[Any]:
    """All digits that the type has, and few."""
    most = 10**kind.precision - 1
    units = st.one_of(st.integers(-most, most), st.integers(-99, 99))
    return units.map(lambda one: decimal_of_units(one, kind.scale))


VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BIGINT: BIGINTS,
    INT: st.integers(-(2**31), 2**31 - 1),
    DOUBLE: DOUBLES,
    FLOAT: st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, math.nan])),
    STRING: st.one_of(st.text(max_size=4), st.sampled_from(["", "a", "ä", "\uffff", "😀"])),
    BINARY: st.binary(max_size=3),
    BOOLEAN: st.booleans(),
    DATE: st.integers(-719_162, 2_932_896),
    TIMESTAMP: st.integers(-(10**15), 10**15),
    TIMESTAMP_NTZ: st.integers(-(10**15), 10**15),
    PRICE: decimals_of(PRICE),
    WIDE: st.one_of(decimals_of(WIDE), st.sampled_from([GREATEST, GREATEST.copy_negate()])),
}
EVERYTHING = (
    *("count(*)", "count", "min", "max", "first", "last", "min_by", "max_by"),
    *("count_distinct", "collect_set", "collect_list", "approx_count_distinct"),
)
OF_DOUBLES = ("sum", "avg", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "percentile_approx")
CASES = [
    *((function, kind) for kind in VALUES for function in EVERYTHING if kind not in (PRICE, TIMESTAMP_NTZ)),
    *((function, TIMESTAMP_NTZ) for function in ("max", "first", "count_distinct", "collect_list")),
    *((function, DOUBLE) for function in OF_DOUBLES),
    *(("sum", kind) for kind in (BIGINT, INT, PRICE, WIDE)),
    *(("avg", kind) for kind in (PRICE, WIDE)),
    *(("percentile_approx", kind) for kind in (INT, FLOAT)),
    *((function, BOOLEAN) for function in ("bool_and", "bool_or")),
]


def exact_sum(values: Sequence[float]) -> float | Fraction:
    """The sum as a fraction, or what it is instead of a number."""
    finite = [value for value in values if math.isfinite(value)]
    special = {value for value in values if math.isinf(value)}
    if any(map(math.isnan, values)) or len(special) == 2:
        return math.nan
    return special.pop() if special else sum(map(Fraction, finite), Fraction(0))


def nearest(value: float | Fraction) -> float:
    """The nearest double."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _known(rows: Sequence[Row]) -> list[Any]:
    return [row[1] for row in rows if row[1] is not None]


def _sum(rows: Sequence[Row]) -> Any:
    values = _known(rows)
    if not values:
        return None
    if isinstance(values[0], float):
        return nearest(exact_sum(values))
    if isinstance(values[0], Decimal):
        return _rounded(sum(map(Fraction, values), Fraction(0)), derive_sum_type(_type_of(values)))
    return sum(values) if -(2**63) <= sum(values) < 2**63 else "OverflowError"


def _average(rows: Sequence[Row]) -> Any:
    values = _known(rows)
    if not values:
        return None
    if isinstance(values[0], Decimal):
        kind, exact = _type_of(values), sum(map(Fraction, values), Fraction(0))
        if isinstance(_rounded(exact, derive_sum_type(kind)), str):
            return "OverflowError"
        return _rounded(exact / len(values), derive_average_type(kind))
    total = exact_sum(values)
    return nearest(total / len(values) if isinstance(total, Fraction) else total)


def _type_of(values: Sequence[Decimal]) -> DataType:
    return PRICE if values[0].as_tuple().exponent == -PRICE.scale else WIDE


def _rounded(value: Fraction, kind: DataType) -> Decimal | str:
    """Half up, unless it has too many digits."""
    units = math.floor(abs(value) * 10**kind.scale + Fraction(1, 2))
    if units >= 10**kind.precision:
        return "OverflowError"
    return decimal_of_units(-units if value < 0 else units, kind.scale)


def _variance(rows: Sequence[Row], less: int, *, root: bool = False) -> Any:
    values = _known(rows)
    if len(values) <= less:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    mean = sum(map(Fraction, values), Fraction(0)) / len(values)
    squares = [(Fraction(value) - mean) ** 2 for value in values]
    variance = sum(squares, Fraction(0)) / (len(values) - less)
    return _root(variance) if root else nearest(variance)


def _root(variance: Fraction) -> float:
    with localcontext() as context:
        context.prec = 900  # digits: the square of the smallest double has its first one at 1e-647
        return float((Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt())


def _ordered(rows: Sequence[Row]) -> list[Any]:
    return sorted(_known(rows), key=rank)


def _by_time(rows: Sequence[Row]) -> list[Any]:
    return [row[1] for row in sorted(rows, key=lambda row: (row[0], rank(row[1])))]


def _by(rows: Sequence[Row]) -> list[Any]:
    known = [row for row in rows if row[2] is not None]
    return [row[1] for row in sorted(known, key=lambda row: (rank(row[2]), rank(row[1])))]


def _distinct(rows: Sequence[Row]) -> list[Any]:
    values = [value + 0.0 if isinstance(value, float) else value for value in _known(rows)]
    by_key = {rank(value): value for value in values}
    return [by_key[key] for key in sorted(by_key)]


def _median(rows: Sequence[Row]) -> Any:
    values = _known(rows)
    if not values:
        return None
    ordered = sorted((value + 0 if isinstance(value, int) else value + 0.0 for value in values), key=rank)
    return ordered[max(1, math.ceil(0.5 * len(ordered))) - 1]


MODEL: dict[str, Callable[[Sequence[Row]], Any]] = {
    "count(*)": len,
    "count": lambda rows: len(_known(rows)),
    "sum": _sum,
    "avg": _average,
    "min": lambda rows: next(iter(_ordered(rows)), None),
    "max": lambda rows: next(iter(_ordered(rows)[::-1]), None),
    "bool_and": lambda rows: all(_known(rows)) if _known(rows) else None,
    "bool_or": lambda rows: any(_known(rows)) if _known(rows) else None,
    "first": lambda rows: _by_time(rows)[0],
    "last": lambda rows: _by_time(rows)[-1],
    "min_by": lambda rows: next(iter(_by(rows)), None),
    "max_by": lambda rows: next(iter(_by(rows)[::-1]), None),
    "stddev_samp": lambda rows: _variance(rows, 1, root=True),
    "stddev_pop": lambda rows: _variance(rows, 0, root=True),
    "var_samp": lambda rows: _variance(rows, 1),
    "var_pop": lambda rows: _variance(rows, 0),
    "count_distinct": lambda rows: len(_distinct(rows)),
    "approx_count_distinct": lambda rows: len(_distinct(rows)),
    "collect_set": _distinct,
    "collect_list": lambda rows: [value for value in _by_time(rows) if value is not None],
    "percentile_approx": _median,
}


@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
@given(data=st.data())
@settings(max_examples=3 * DEPTH, deadline=None)
def test_any_way_of_merging_gives_the_result_of_the_model(function: str, kind: DataType, data: st.DataObject) -> None:
    by = data.draw(st.sampled_from([BIGINT, DOUBLE, STRING]))
    row = st.tuples(st.integers(0, 3), st.none() | VALUES[kind], st.none() | VALUES[by])
    rows = data.draw(st.lists(row, min_size=1, max_size=12))
    aggregate = make_mergeable(NAME, make_call(function, kind, by))
    frame = make_rows(rows, kind, by)
    expected = repr(MODEL[function](rows))
    assert repr(result_of(aggregate, reduce_in_one(aggregate, frame))) == expected
    assert repr(result_of(aggregate, fold_rows(aggregate, frame))) == expected
    for seed in range(3):
        assert repr(result_of(aggregate, reduce_in_pieces(aggregate, frame, seed))) == expected


def test_a_sum_that_is_zero_has_no_sign() -> None:
    aggregate = make_mergeable(NAME, make_call("sum", DOUBLE))
    assert repr(result_of(aggregate, reduce_in_one(aggregate, make_rows([(0, -0.0)], DOUBLE)))) == "0.0"


def test_what_is_no_plain_column_is_refused() -> None:
    with pytest.raises(TypeError, match="plain column"):
        make_mergeable(NAME, AggregateCall("sum", Literal(1, BIGINT), BIGINT))


def test_an_argument_may_be_called_like_a_part_of_another_total() -> None:
    rows = pl.DataFrame({"k": [7] * 3, "x": [None, 1, None], "cpu.max": [2.0, 4.0, 6.0]})
    argument = ColumnReference("cpu.max", DOUBLE)
    calls = {
        "cpu": AggregateCall("max", ColumnReference("x", BIGINT), BIGINT),
        "n": AggregateCall("count", argument, BIGINT),
        "mean": AggregateCall("avg", argument, DOUBLE),
        "spread": AggregateCall("var_samp", argument, DOUBLE),
    }
    aggregates = {name: make_mergeable(name, call) for name, call in calls.items()}
    parts = reduce_rows(rows, ["k"], list(aggregates.values()))
    found = {name: result_of(one, *derive_accumulators(one, parts)) for name, one in aggregates.items()}
    assert found == {"cpu": 1, "n": 3, "mean": 4.0, "spread": 4.0}
