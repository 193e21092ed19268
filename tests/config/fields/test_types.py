"""Patterns for names of topics are matched as a whole, in time proportional to the name."""

from __future__ import annotations

import time

import pytest

from tidegate.config.fields.records import matches_pattern


@pytest.mark.parametrize(
    ("pattern", "topic", "found"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("a|b", "ab", False),
        (r"(eu|us)-orders-[0-9]+", "us-orders-12", True),
        ("(?i)ORDERS.*", "orders-x", True),
        (".*", "__consumer_offsets", False),
        (None, "orders", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str | None, topic: str, found: bool) -> None:
    assert matches_pattern(pattern, topic) is found


def test_a_pattern_that_can_match_in_very_many_ways_takes_no_longer() -> None:
    begin = time.process_time()
    assert not matches_pattern(r"(a+)+b", "a" * 249)
    assert time.process_time() - begin < 1.0
