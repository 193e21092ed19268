"""The raw format."""

from __future__ import annotations

from tidegate.config.checks import RAW_COLUMNS
from tidegate.formats.raw import RAW_SCHEMA


def test_what_validation_promises_is_what_a_raw_source_emits() -> None:
    assert dict(RAW_SCHEMA) == dict(RAW_COLUMNS)
