"""Patterns for names of topics that could take for ever are found, and the usual ones are not."""

from __future__ import annotations

import re
import time

import pytest

from tidegate.config.fields.types import REPEATS_MAX, find_endless


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(a|aa)*b",
        r"((a)|(b)){1,}",
        r"x(?:[a-z]*\.?)*",
        r"(?:(?:a*)b?){2,9}",
        r"(?=(a+)+b)x",
        r"a|(b*)*",
        r"(a?){30}a*",
        ".*" * (REPEATS_MAX + 1),
    ],
)
def test_what_can_be_matched_in_very_many_ways_is_found(pattern: str) -> None:
    assert find_endless(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        "orders-.*",
        r"(eu|us)-orders-[0-9]+",
        r"orders\.v\d{1,3}",
        "(?i)ORDERS.*",
        ".*-(a|b)",
        "(ab){3}",
        "a{2}b?",
        r"(\d+-){3}x",
        r"(a|b)+",
    ],
)
def test_usual_patterns_are_in_order(pattern: str) -> None:
    assert find_endless(pattern) == ""


def test_what_is_in_order_is_quick_on_the_longest_name() -> None:
    begin = time.process_time()
    assert re.fullmatch("a*" * (REPEATS_MAX - 2) + "b", "a" * 249) is None
    assert time.process_time() - begin < 1.0
