"""Plain values to columns and back, and lists that are joined."""

from __future__ import annotations

from decimal import Decimal
from itertools import chain
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.typed_values import TYPES, values_of
from tidegate.datatypes import DataType, decimal_of
from tidegate.formats.columns import join_lists, make_column, plain_values, polars_type

COLUMNS = TYPES.flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind), max_size=4)))


@pytest.mark.slow
@given(COLUMNS)
def test_a_column_of_any_type_gives_back_what_it_was_made_of(column: tuple[DataType, list[Any]]) -> None:
    kind, values = column
    made = make_column("c", kind, values)
    assert made.dtype == polars_type(kind)
    assert repr(plain_values(made)) == repr(values)  # with the scale of decimals, and -0.0


@pytest.mark.parametrize("digits", [3, 6, 7, 38])
def test_a_decimal_with_too_many_digits_is_no_value(digits: int) -> None:
    kind = decimal_of(digits, digits)
    with pytest.raises(OverflowError, match="does not fit into decimal"):
        make_column("c", kind, [Decimal(1).quantize(Decimal(1))])


@given(st.lists(st.tuples(*[st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)] * 3)), st.data())
def test_lists_of_a_row_are_joined_in_their_order(
    rows: list[tuple[list[int | None] | None, ...]], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(rows)))
    several = data.draw(st.integers(2, 3))
    lists = [pl.Series([row[place] for row in rows], dtype=pl.List(pl.Int64))[start:] for place in range(several)]
    expected = [list(chain.from_iterable(one or () for one in row[:several])) for row in rows[start:]]
    assert join_lists(lists).to_list() == expected
