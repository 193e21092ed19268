"""Plain values to columns and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.typed_values import TYPES, values_of
from tidegate.datatypes import DataType, decimal_of
from tidegate.formats.columns import make_column, plain_values, polars_type

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
