"""The order of two rows: by one column, then by all columns, so that the order of arrival does not matter. Pure.

Numbers, dates and texts compare by their values. NaN is greater than every number. NULL comes last in either direction.
Arrays, structs and maps compare by their first part that differs. Rows are tuples of plain values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from decimal import Decimal
from typing import Any

from tidegate.state.order import Row

Place = tuple[Any, ...]
"""A sort key that compares as the values do."""


class Ranking:
    """The best rows of one key, at most `places`. Sort keys are computed late, since most keys of a batch do not
    change.
    """

    def __init__(self, order: RankingOrder, rows: tuple[Row, ...], places: int) -> None:
        """`rows`: in their order."""
        self._order = order
        self._places = places
        self._stored = rows
        self._held: list[Row] | None = None
        """The rows, after the first insertion."""
        self._firsts: list[Place] = []
        """Their sort keys by the column."""
        self._last = order.first(rows[-1]) if len(rows) >= places else None
        """The sort key of the last row by the column if all places are taken."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows in order, rank 1 first."""
        return self._stored if self._held is None else tuple(self._held)

    def admits(self, first: Place) -> bool:
        """Returns True if a row with this sort key may get a rank."""
        return self._last is None or first <= self._last

    def enter(self, row: Row, first: Place) -> int | None:
        """Inserts a row with this sort key. Returns how many rows are before it, or None if it gets no rank.

        The last row may lose its rank. All columns are compared only if the one column does not decide.
        """
        if self._held is None:
            self._held = list(self._stored)
            self._firsts = list(map(self._order.first, self._held))
        held, firsts = self._held, self._firsts
        index = bisect_right(firsts, first)
        if index and firsts[index - 1] == first:
            index = bisect_right(held, self._order.rest(row), bisect_left(firsts, first), index, key=self._order.rest)
        if index >= self._places:
            return None
        held.insert(index, row)
        firsts.insert(index, first)
        del held[self._places :], firsts[self._places :]
        if len(held) == self._places:
            self._last = firsts[-1]
        return index


class RankingOrder:
    """The order of the rows of a step."""

    def __init__(self, column: int, *, descending: bool) -> None:
        """`column`: the index of the column that rows are ordered by."""
        self._column = column
        self._by = _place_backwards if descending else place_value

    def first(self, row: Row) -> Place:
        """Returns the sort key of a row by the column alone."""
        return self._by(row[self._column])

    def rest(self, row: Row) -> Place:
        """Returns the sort key by all columns, which decides between rows with equal values in the column."""
        return tuple(map(place_value, row))


def place_value(value: Any) -> Place:
    """Returns the sort key of a value in ascending order."""
    if value is None:
        return (2,)
    if isinstance(value, tuple):
        return (0, tuple(map(place_value, value)))
    return (1,) if value != value else (0, value)  # only NaN differs from itself


def _place_backwards(value: Any) -> Place:
    """Returns the sort key of a value in descending order."""
    if value is None:
        return (2,)
    if isinstance(value, str | bytes):
        return (1, _Backwards(value))
    if isinstance(value, Decimal):
        return (1, value.copy_negate())  # unary minus would round it to the digits of the context
    return (0,) if value != value else (1, -value)  # see place_value


class _Backwards:
    """A text in descending order."""

    __slots__ = ("_text",)

    def __init__(self, text: Any) -> None:
        self._text = text

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other._text < self._text)

    def __le__(self, other: _Backwards) -> bool:
        return bool(other._text <= self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
