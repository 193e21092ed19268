"""Column types as Spark writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.datatypes import DataType
from tidegate.settings.columns import SIMPLE, SYNONYMS, TypeProblem, derive_type

TYPES = st.recursive(
    st.sampled_from(SIMPLE).map(DataType),
    lambda below: (
        below.map(lambda one: DataType("array", element=one))
        | st.dictionaries(st.sampled_from("abcd"), below, min_size=1, max_size=3).map(
            lambda fields: DataType("struct", fields=tuple(fields.items()))
        )
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
    assert derive_type(word.upper()) == DataType(kind)


@pytest.mark.parametrize("text", ["decimal", "decimal(10,2)", "map<string, int>", "timestamp_ntz", "array<variant>"])
def test_types_of_later_versions_are_refused_by_name(text: str) -> None:
    with pytest.raises(TypeProblem, match="not supported yet"):
        derive_type(text)


@pytest.mark.parametrize(
    ("text", "column"),
    [("", 1), ("intt", 1), ("array", 6), ("array<int", 10), ("struct<a int>", 10), ("int int", 5), ("struct<>", 8)],
)
def test_what_is_no_type_is_refused_at_its_place(text: str, column: int) -> None:
    with pytest.raises(TypeProblem) as caught:
        derive_type(text)
    assert caught.value.column == column


def test_depth_is_bounded() -> None:
    with pytest.raises(TypeProblem, match="deeper"):
        derive_type("array<" * 50 + "int" + ">" * 50)
