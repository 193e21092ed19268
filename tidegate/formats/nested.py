"""Columns of arrays, maps and structs, built level by level: all values of one level become one column.

Polars can build them from dicts and lists value by value, in ten times the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.lists import cut_lists

_VALUES = "values"


class Parts(Protocol):
    """Takes apart the values of one representation. Values passed in are never None."""

    def fields(self, kind: DataType, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the values of each field of a struct type."""

    def entries(self, kind: DataType, maps: Sequence[Any]) -> tuple[Sequence[int], Sequence[Any], Sequence[Any]]:
        """Returns the number of entries of each map, and the keys and values of all maps."""

    def leaves(self, name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
        """Builds a column of a type that is not nested."""


def make_nested(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    """Builds a column of any type."""
    if kind.kind == "map":
        return _make_map(name, kind, values, parts)
    if kind.kind == "struct":
        return _make_struct(name, kind, values, parts)
    if kind.element is None:
        return parts.leaves(name, kind, values)
    known = [value for value in values if value is not None]
    below = make_nested(_VALUES, kind.element, list(chain.from_iterable(known)), parts)
    return _lists(name, values, list(map(len, known)), below)


def _make_struct(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    known = [value for value in values if value is not None]
    fields = zip(kind.fields, parts.fields(kind, known), strict=True)
    made = pl.DataFrame([make_nested(field, below, found, parts) for (field, below), found in fields]).to_struct(name)
    return made if len(known) == len(values) else made.gather(_places(values))


def _make_map(name: str, kind: DataType, values: Sequence[Any], parts: Parts) -> pl.Series:
    assert kind.key is not None
    assert kind.element is not None
    lengths, keys, found = parts.entries(kind, [value for value in values if value is not None])
    entries = [make_nested("key", kind.key, keys, parts), make_nested("value", kind.element, found, parts)]
    return _lists(name, values, lengths, pl.DataFrame(entries).to_struct(_VALUES))


def _lists(name: str, values: Sequence[Any], lengths: Sequence[int], below: pl.Series) -> pl.Series:
    """Builds lists from the values below: `lengths` holds the length of each list, for each of `values` that is not
    None.
    """
    if len(below):
        counts = pl.Series(lengths, dtype=pl.Int64)
        ends = counts.cum_sum()
        made = cut_lists(below, ends - counts, ends).alias(name)
    else:
        made = pl.Series(name, [[]], dtype=pl.List(below.dtype)).new_from_index(0, len(lengths))
    return made if len(lengths) == len(values) else made.gather(_places(values))


def _places(values: Sequence[Any]) -> pl.Series:
    """Returns the index of each value among those that are not None; NULL for None."""
    known = pl.Series([value is not None for value in values], dtype=pl.Boolean)
    places = known.cum_sum() - 1
    return places.zip_with(known, pl.Series([None], dtype=places.dtype))
