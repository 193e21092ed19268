"""Numbers of records arrive in JavaScript as they are."""

from __future__ import annotations

import pytest

from tidegate.daemon.reading.exact import decode_row


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-9007199254740991", -9007199254740991),
        ("9007199254740992", "9007199254740992"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("0.1", 0.1),
        ("1e300", 1e300),
        ("12.50", 12.5),
        ("0.12345678901234567890", "0.12345678901234567890"),
        ("123456789012345678901234567890.12", "123456789012345678901234567890.12"),
        ("1e999", "1e999"),
        ("true", True),
        ('[{"a": 9007199254740993}]', [{"a": "9007199254740993"}]),
    ],
)
def test_numbers_that_a_double_does_not_hold_are_texts(text: str, value: object) -> None:
    found = decode_row(f'{{"n": {text}}}')["n"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["", "[1]", "{", '{"a": ' + "[" * 100_000 + "}", '{"a": ' + "9" * 16_000 + "}", b"\xff"]
)
def test_what_is_no_row_is_refused(text: str | bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        decode_row(text)
