"""Columns of 128-bit integers, and their conversion to bigints."""

from __future__ import annotations

from typing import Final

import polars as pl


def wide(number: int) -> pl.Series:
    """Returns a constant for arithmetic with a 128-bit column."""
    return pl.Series([number], dtype=pl.Int128)


WORD: Final = wide(1 << 64)
_HALF: Final = wide(1 << 63)
_NOTHING: Final = pl.Series([0], dtype=pl.Int64)
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def carry_words(total: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Splits each number into two bigints `low` and `carry`, such that it is `carry * 2^64 + low`."""
    if not ((total < _LEAST) | (total > _MOST)).any():
        return total.cast(pl.Int64), _NOTHING.new_from_index(0, len(total))
    carry = (total + _HALF) // WORD
    return (total - carry * WORD).cast(pl.Int64), carry.cast(pl.Int64)
