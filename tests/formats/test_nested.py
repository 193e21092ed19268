"""Lists that are joined; those that are cut are in `test_columns.py` and wherever arrays are read."""

from __future__ import annotations

from itertools import chain

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tidegate.formats.columns import join_lists


@given(st.lists(st.tuples(*[st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)] * 3)), st.data())
def test_lists_of_a_row_are_joined_in_their_order(
    rows: list[tuple[list[int | None] | None, ...]], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(rows)))
    several = data.draw(st.integers(2, 3))
    lists = [pl.Series([row[place] for row in rows], dtype=pl.List(pl.Int64))[start:] for place in range(several)]
    expected = [list(chain.from_iterable(one or () for one in row[:several])) for row in rows[start:]]
    assert join_lists(lists).to_list() == expected
