"""Values as YAML in one line are read as what they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.document import MappingNode, derive_tree
from tidegate.config.values import ValueReader
from tidegate.testing.compare import render_flow, render_moment, render_record

TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [
        "null",
        "true",
        "No",
        "1",
        "1e5",
        "0x1F",
        ".inf",
        "~",
        "",
        " a",
        "a ",
        "a: b",
        "a #b",
        "${X}",
        "$${X}",
        "a,b",
        "-",
        "?",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def read(text: str) -> Any:
    """As a pipeline file is read."""
    root, problems = derive_tree(f"value: {text}\n")
    assert isinstance(root, MappingNode)
    assert problems == []
    reader = ValueReader({}, str)
    value = reader.read_mapping(root)["value"]
    assert reader.problems == []
    return value


@given(VALUES)
def test_any_value_is_read_back(value: Any) -> None:
    assert read(render_flow(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"id": 1, "a b": [True, None]}, "{id: 1, a b: [true, null]}"),
        ("ann", "ann"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("true", '"true"'),
        ("\x1b[0m\n\u2028\U0010ffff", '"\\x1B[0m\\n\\u2028\\U0010FFFF"'),
        ("${A}", '"$${A}"'),
    ],
)
def test_texts_have_quotes_where_they_need_them(value: Any, text: str) -> None:
    assert render_flow(value) == text


@pytest.mark.parametrize(
    ("at_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_767_225_600_001, "2026-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**62, 2**62),
    ],
)
def test_timestamps_are_written_as_people_do(at_ms: int, shown: str | int) -> None:
    assert render_moment(at_ms) == shown
    assert render_record({"timestamp": at_ms}) == f"{{timestamp: {shown}}}"
