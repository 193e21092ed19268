"""docs/expressions.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from tidegate.expressions.functions import FUNCTIONS
from tidegate.expressions.functions.reference import derive_reference

PAGE = Path(__file__).parents[2] / "docs" / "expressions.md"


def test_the_published_function_list_is_current() -> None:
    assert PAGE.read_text() == derive_reference(), (
        "run: python -m tidegate.expressions.functions.reference > docs/expressions.md"
    )


def test_every_function_has_a_signature_and_a_sentence() -> None:
    assert all(function.signature and function.summary.endswith(".") for function in FUNCTIONS)
