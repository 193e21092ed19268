"""Whole numbers of more than 64 bits, as the bigints of a state: lowest word first, each with a sign."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_HALF: Final = 1 << 63


def add_words(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """Returns the sum; the last word takes what exceeds the others."""
    words, carry = [], 0
    for one, other in zip(left[:-1], right[:-1], strict=True):
        word = one + other + carry
        carry = (word + _HALF) >> 64
        words.append(word - (carry << 64))
    return (*words, left[-1] + right[-1] + carry)


def split_words(number: int, count: int) -> tuple[int, ...]:
    """Splits a number into `count` words."""
    words = []
    for _ in range(count - 1):
        carry = (number + _HALF) >> 64
        words.append(number - (carry << 64))
        number = carry
    return (*words, number)


def join_words(words: Sequence[int]) -> int:
    """Returns the number that the words represent."""
    number = 0
    for word in reversed(words):
        number = (number << 64) + word
    return number
