"""What a text is as a number: also one that is nearly one, and very long."""

from __future__ import annotations

from decimal import Decimal

import pytest

from tidegate.expressions.text_values import decimal_of_text, double_of_text

LONG = 400_000
"""Digits. A pattern that tries every way to share them out would take half an hour."""


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", "12"), ("-12.", "-12"), ("+1.50", "1.50"), (".5", "0.5"), ("1.5e-3", "0.0015"), ("\u0661.\u0662", "1.2")],
)
def test_a_decimal_is_written_in_these_ways(text: str, value: str) -> None:
    assert decimal_of_text(f" {text}\n") == Decimal(value)


@pytest.mark.parametrize("text", ["", ".", "-", "1.2.3", "1e", "e5", "1 2", "1.5d", "\U0001d7ce"])
def test_what_is_no_decimal_is_none(text: str) -> None:
    assert decimal_of_text(text) is None


@pytest.mark.timeout(method="signal")  # the other method's thread waits for a pattern
@pytest.mark.parametrize("text", ["1" * LONG + "x", "1." + "1" * LONG + "x", "." + "1" * LONG + "x", "1e" + "1" * LONG])
def test_a_long_text_that_is_no_number_is_read_once(text: str) -> None:
    assert decimal_of_text(text) is None
    assert double_of_text(text + "x") is None
