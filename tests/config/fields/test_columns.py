"""Column types as Spark writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.fields.columns import SIMPLE, SYNONYMS, TypeProblem, derive_type
from tidegate.datatypes import MAX_PRECISION, DataType, decimal_of, map_of

DECIMALS = st.integers(1, MAX_PRECISION).flatmap(lambda p: st.builds(decimal_of, st.just(p), st.integers(0, p)))
PLAIN = st.sampled_from(SIMPLE).map(DataType) | DECIMALS
TYPES = st.recursive(
    PLAIN,
    lambda below: (
        below.map(lambda one: DataType("array", element=one))
        | st.dictionaries(st.sampled_from("abcd"), below, min_size=1, max_size=3).map(
            lambda fields: DataType("struct", fields=tuple(fields.items()))
        )
        | st.builds(map_of, PLAIN, below)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(TYPES)
def test_a_type_reads_as_it_is_written(kind: DataType) -> None:
    assert derive_type(str(kind)) == kind
    assert derive_type(f" {str(kind).upper().replace(' ', '')} ".lower()) == kind


@pytest.mark.parametrize("name", ["a b", "é", ")", ">", ":", "<>", "array"])
def test_any_name_of_a_field_may_stand_in_backticks(name: str) -> None:
    fields = ((name, DataType("int")), ("b", DataType("string")))
    assert derive_type(f"struct<`{name}`: int, b: string>") == DataType("struct", fields=fields)


@pytest.mark.parametrize(("word", "kind"), SYNONYMS.items())
def test_synonyms(word: str, kind: str) -> None:
    assert derive_type(word.upper()).kind == kind


@pytest.mark.parametrize("text", ["varchar", "map<string, variant>", "array<variant>"])
def test_types_of_later_versions_are_refused_by_name(text: str) -> None:
    with pytest.raises(TypeProblem, match="not supported yet"):
        derive_type(text)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [("varchar(10)", "write `string`"), ("CHAR", "write `string`"), ("variant", "decimal(p,s), array<...>, map<")],
)
def test_types_of_later_versions_have_a_way_out(text: str, remedy: str) -> None:
    with pytest.raises(TypeProblem) as caught:
        derive_type(text)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "column"),
    [("", 1), ("intt", 1), ("array", 6), ("array<int", 10), ("int int", 5), ("struct<>", 8)],
)
def test_what_is_no_type_is_refused_at_its_place(text: str, column: int) -> None:
    with pytest.raises(TypeProblem) as caught:
        derive_type(text)
    assert caught.value.column == column


def test_a_decimal_without_digits_is_that_of_spark() -> None:
    assert [derive_type(text) for text in ("decimal", "DEC(5)", "numeric(38, 38)")] == [
        decimal_of(10, 0),
        decimal_of(5, 0),
        decimal_of(38, 38),
    ]


@pytest.mark.parametrize(
    ("text", "column", "said"),
    [
        ("decimal(39,2)", 9, "a precision is a number from 1 to 38"),
        ("decimal(0)", 9, "a precision is"),
        ("decimal(5,6)", 11, "a scale is a number from 0 to 5"),
        ("decimal(x)", 9, "not `x`"),
        ("decimal(5", 10, "expected"),
        ("map<string>", 11, "expected `,`"),
        ("map<array<int>, int>", 5, "keys of type array<int>"),
    ],
)
def test_decimals_and_maps_that_there_are_not(text: str, column: int, said: str) -> None:
    with pytest.raises(TypeProblem, match=said) as caught:
        derive_type(text)
    assert caught.value.column == column


def test_depth_is_bounded() -> None:
    with pytest.raises(TypeProblem, match="deeper"):
        derive_type("array<" * 50 + "int" + ">" * 50)
