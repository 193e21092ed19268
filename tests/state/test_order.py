"""Keys as bytes: their order is that of the keys, and nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DATE, STRING, DataType, decimal_of, decimal_of_units
from tidegate.state.declaration import StateField
from tidegate.state.order import KeyOrder, Row, after_prefix

WIDE = decimal_of(38, 5)
BYTES = st.binary(max_size=4) | st.sampled_from([b"\x00", b"\x00\x00", b"\x00\x01", b"\x00\xff", b"\xff", b"\xff\xff"])
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    BIGINT: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    BINARY: BYTES,
    BOOLEAN: st.booleans(),
    WIDE: st.integers(1 - 10**38, 10**38 - 1).map(lambda units: decimal_of_units(units, 5)),
    DATE: st.integers(-(2**31), 2**31 - 1),
    STRING: st.text(max_size=4) | st.text("a\x00\x01", max_size=4),
}
KINDS = st.lists(st.sampled_from(sorted(VALUES, key=str)), min_size=1, max_size=3)


@st.composite
def key_sets(draw: st.DrawFn) -> tuple[list[DataType], list[Row]]:
    kinds = draw(KINDS)
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    return kinds, draw(st.lists(row, max_size=8))


def order_of(kinds: list[DataType]) -> KeyOrder:
    return KeyOrder([StateField(f"k{index}", kind) for index, kind in enumerate(kinds)])


def sortable(row: Row) -> list[tuple[bool, Any]]:
    return [(value is not None, 0 if value is None else value) for value in row]


@given(key_sets())
def test_the_order_of_the_bytes_is_the_order_of_the_keys(drawn: tuple[list[DataType], list[Row]]) -> None:
    kinds, rows = drawn
    order = order_of(kinds)
    by_bytes = [order.decode(place) for place in sorted(order.encode(rows))]
    assert by_bytes == sorted(rows, key=sortable)


@given(key_sets(), st.integers(0, 2))
def test_a_prefix_finds_the_keys_that_have_its_columns_and_no_others(
    drawn: tuple[list[DataType], list[Row]], columns: int
) -> None:
    kinds, rows = drawn
    columns = min(columns, len(kinds) - 1)
    order = order_of(kinds)
    places = order.encode(rows)
    for row in rows:
        prefix = order.encode_prefix(row[:columns])
        found = [other for other, place in zip(rows, places, strict=True) if place.startswith(prefix)]
        assert found == [other for other in rows if other[:columns] == row[:columns]]
        if prefix:
            assert found == [
                other for other, place in zip(rows, places, strict=True) if prefix <= place < after_prefix(prefix)
            ]


@pytest.mark.parametrize(("prefix", "after"), [(b"a ", b"a!"), (b"a\xff\xff", b"b"), (b"\xffX\xff", b"\xffY")])
def test_the_first_bytes_after_a_prefix(prefix: bytes, after: bytes) -> None:
    assert after_prefix(prefix) == after


@pytest.mark.parametrize(
    ("kind", "ascending"),
    [
        (STRING, [None, "", "\x00", "a", "a\x00", "aa", "b", "é", "☃", "\U0001f40d"]),
        (BINARY, [None, b"", b"\x00", b"\x00\xff", b"\x01", b"\xff", b"\xff\x00"]),
        (BIGINT, [None, -(2**63), -1, 0, 1, 255, 256, 2**63 - 1]),
        (BOOLEAN, [None, False, True]),
        (WIDE, [None, *(decimal_of_units(units, 5) for units in (1 - 10**38, -1, 0, 10, 10**38 - 1))]),
    ],
)
def test_the_order_of_each_type(kind: DataType, ascending: list[Any]) -> None:
    for kinds in ([kind], [kind, BIGINT]):
        rows = [(value, 7)[: len(kinds)] for value in ascending]
        order = order_of(kinds)
        places = order.encode(rows)
        assert places == sorted(places)
        assert [order.decode(place) for place in places] == rows
        assert order.encode(rows, b"\x01\x02") == [b"\x01\x02" + place for place in places]
        assert [order.encode_prefix(row) for row in rows] == places
