"""How long the reader gathers."""

from __future__ import annotations

from tidegate.sources.reader import FEW_RECORDS, LINGER_SECONDS, derive_linger_seconds


def test_small_rounds_are_handed_over_once_per_linger() -> None:
    assert derive_linger_seconds(FEW_RECORDS - 1, 0.0) == LINGER_SECONDS
    assert derive_linger_seconds(1, LINGER_SECONDS / 4) == LINGER_SECONDS * 3 / 4


def test_the_first_record_after_a_pause_is_not_held_back() -> None:
    assert derive_linger_seconds(1, LINGER_SECONDS) == 0.0
    assert derive_linger_seconds(0, 3600.0) == 0.0


def test_a_backlog_is_not_held_back() -> None:
    assert derive_linger_seconds(FEW_RECORDS, 0.0) == 0.0
