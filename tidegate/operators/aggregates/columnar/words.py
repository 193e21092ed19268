"""Exact sums of columns of integers and decimals, in words of 64 bits (see the `words.py` next to this package).

Within a frame, which has less than 2^32 rows, each word is added in 128 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tidegate.operators.aggregates.columnar.wide import WORD, carry_words
from tidegate.operators.aggregates.contract import Reduction, blank

_BIGINT_DIGITS: Final = 18


class WordSum:
    """One sum among the fields of an aggregate; `columns` are the names of its words, lowest first."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._some = f"{columns[0]}.some"

    def from_rows(self, values: pl.Series) -> Reduction:
        """Returns the reduction to the sum of integers or decimals."""
        low, carry = self._columns[:2]
        units = values.to_physical().cast(pl.Int128)
        if not isinstance(values.dtype, pl.Decimal) or values.dtype.precision <= _BIGINT_DIGITS:
            return self._reduction([units.alias(low)])
        upper = units // WORD
        return self._reduction([(units - upper * WORD).alias(low), upper.alias(carry)])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:
        """Returns the reduction to the sum of partial sums."""
        return self._reduction([parts[column].cast(pl.Int128) for column in self._columns])

    def _reduction(self, words: list[pl.Series]) -> Reduction:
        sums = [pl.col(word.name).sum() for word in words]
        return Reduction(words, [*sums, pl.col(words[0].name).count().alias(self._some)])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """Returns the columns of the words."""
        none = grouped[self._some] == 0
        zero = pl.zeros(grouped.height, pl.Int128, eager=True)
        words, carry = [], zero
        for column in self._columns[:-1]:
            word, over = carry_words(grouped.get_column(column, default=zero) + carry)
            words.append(word)
            carry = over.cast(pl.Int128)
        words.append((grouped.get_column(self._columns[-1], default=zero) + carry).cast(pl.Int64))
        return [blank(word, none).alias(column) for word, column in zip(words, self._columns, strict=True)]
