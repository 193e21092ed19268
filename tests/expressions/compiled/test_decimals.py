"""Arithmetic of decimals is exact whatever the digits: against fractions, by columns and row by row alike."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.datatypes import DOUBLE, STRING, DataType, decimal_of
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import can_fail
from tidegate.expressions.parse import parse_expression
from tidegate.formats.columns import polars_type

Rows = list[tuple[Decimal | None, Decimal | None]]


@st.composite
def types(draw: st.DrawFn) -> DataType:
    """Of any precision and scale; often of the most digits, where there is no room left."""
    precision = draw(st.sampled_from([38, 38, 19, 18, 10]) | st.integers(1, 38))
    return decimal_of(precision, draw(st.integers(0, precision)))


@st.composite
def values(draw: st.DrawFn, kind: DataType) -> Decimal | None:
    """NULL, the ends, ties and numbers of any length."""
    if draw(st.integers(0, 9)) == 0:
        return None
    most = 10**kind.precision - 1
    units = draw(
        st.integers(-most, most)
        | st.integers(-10, 10)
        | st.sampled_from([most, -most])
        | st.integers(0, kind.precision - 1).map(lambda power: 5 * 10**power)
    )
    return Decimal(max(-most, min(most, units))).scaleb(-kind.scale) if units else Decimal(0)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[DataType, DataType, Rows]:
    """Two types and rows of them. Decimals are made with all their digits."""
    with localcontext(prec=100):
        left, right = draw(types()), draw(types())
        return left, right, draw(st.lists(st.tuples(values(left), values(right)), min_size=1, max_size=6))


def computed(text: str, left: DataType, right: DataType, rows: Rows) -> tuple[DataType, list[Decimal | str | None]]:
    """The result's type, and of each row its value or the kind of its failure."""
    expression = parse_expression(text, {"a": left, "b": right})
    columns = {
        name: pl.Series([row[index] for row in rows], dtype=polars_type(kind))
        for index, (name, kind) in enumerate({"a": left, "b": right}.items())
    }
    found, failures = compile_projection([("r", expression)]).apply(pl.DataFrame(columns))
    assert not failures or can_fail(expression)
    assert found["r"].dtype == polars_type(expression.type)
    good, failed = iter(found["r"]), {one.row: str(one.kind) for one in failures}
    return expression.type, [failed[row] if row in failed else next(good) for row in range(len(rows))]


def rounded(exact: Fraction, kind: DataType) -> Decimal | str:
    """The nearest decimal of the type, of two as near the one further from zero; or the failure."""
    size = abs(exact) * 10**kind.scale
    units = int(size + Fraction(1, 2))
    if units >= 10**kind.precision:
        return "NUMERIC_VALUE_OUT_OF_RANGE"
    with localcontext(prec=100):
        return Decimal(-units if exact < 0 else units).scaleb(-kind.scale)


def truncated_remainder(a: Fraction, b: Fraction) -> Fraction:
    """With the sign of the dividend."""
    size = abs(a) % abs(b)
    return -size if a < 0 else size


def pmod(a: Fraction, b: Fraction) -> Fraction:
    """As Spark has it."""
    rest = truncated_remainder(a, b)
    return truncated_remainder(rest + b, b) if rest < 0 else rest


EXACT = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "a % b": truncated_remainder,
    "pmod(a, b)": pmod,
}


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(EXACT)), pairs())
def test_arithmetic_is_exact_and_rounded_once(text: str, drawn: tuple[DataType, DataType, Rows]) -> None:
    left, right, rows = drawn
    kind, found = computed(text, left, right, rows)
    for (a, b), ours in zip(rows, found, strict=True):
        if a is None or b is None:
            assert ours is None
        elif b == 0 and text not in ("a + b", "a - b", "a * b"):
            assert ours == "DIVIDE_BY_ZERO"
        else:
            assert ours == rounded(EXACT[text](Fraction(a), Fraction(b)), kind), (a, b, str(kind))


@settings(max_examples=25, deadline=None)
@given(pairs())
def test_a_cast_between_decimals_is_rounded_once_or_fails(drawn: tuple[DataType, DataType, Rows]) -> None:
    left, right, rows = drawn
    _, found = computed(f"cast(a as {right})", left, right, rows)
    assert found == [None if a is None else rounded(Fraction(a), right) for a, _ in rows]


@settings(max_examples=25, deadline=None)
@given(pairs())
def test_decimals_are_compared_as_numbers(drawn: tuple[DataType, DataType, Rows]) -> None:
    left, right, rows = drawn
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + max(left.scale, right.scale) > 38:
        return  # Spark cuts digits after the point first, and so does Tidegate
    _, found = computed("a < b", left, right, rows)
    assert found == [None if a is None or b is None else a < b for a, b in rows]


@settings(max_examples=25, deadline=None)
@given(pairs(), st.integers(-6, 40))
def test_round_is_half_away_from_zero(drawn: tuple[DataType, DataType, Rows], digits: int) -> None:
    left, right, rows = drawn
    kind, found = computed(f"round(a, {max(-6, min(38, digits))})", left, right, rows)
    for (a, _), ours in zip(rows, found, strict=True):
        unit = Fraction(10) ** -max(-6, min(38, digits))
        nearest = None if a is None else int(abs(Fraction(a)) / unit + Fraction(1, 2)) * unit * (-1 if a < 0 else 1)
        assert ours == (None if nearest is None else rounded(nearest, kind))


@pytest.mark.parametrize("precision", [15, 17, 38])
def test_a_decimal_is_the_nearest_double(precision: int) -> None:
    kind = decimal_of(precision, 9)
    numbers = list(map(Decimal, ("0.100000000", "-2.675000000", "999999.999999999", "0.000000001", "0E-9")))
    _, found = computed("cast(a as double)", kind, DOUBLE, [(number, None) for number in numbers])
    assert found == [float(number) for number in numbers]


def test_text_of_many_digits_is_read_in_no_time() -> None:
    texts = ["9" * 100_000, "1e999999999", "1e-999999999", "0" * 100_000 + "1.5"]
    expression = parse_expression("try_cast(s as decimal(5,2))", {"s": STRING})
    found, _ = compile_projection([("r", expression)]).apply(pl.DataFrame({"s": texts}))
    assert found["r"].to_list() == [None, None, Decimal("0.00"), Decimal("1.50")]
