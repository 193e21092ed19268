"""The assignment of keys to `max_parallelism` key groups.

The hash is part of the format of state files and of the exchange, so it never changes: xxh3_64 of the key's canonical
bytes, modulo max_parallelism. The canonical bytes of one column are: for a string its UTF-8; for binary its bytes; for
integers the decimal text; for a boolean `true` or `false`; for a decimal the number with all digits of its scale
(`12.50`); for a date the days and for both timestamps the microseconds since 1970, as decimal text. A NULL key has the
group of the byte FF, which is not UTF-8. For several columns, the canonical bytes are the concatenation over all
columns of the length of the column's canonical bytes in decimal, `:`, and these bytes. Binary columns use lower-case
hex here, and NULL is `-:`.

Polars is imported where it is used, because the driver also imports this package.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tidegate.datatypes import DataType
from tidegate.native.key_groups import distribute, find_groups
from tidegate.native.library import loaded

if TYPE_CHECKING:
    import polars as pl

KEY_HASH = "xxh3_64 of canonical bytes v1, modulo max_parallelism"
"""Written to the headers of state files: a file that was made under another rule must not be read by this one."""
ROWS_FEW: Final = 64
"""Up to this many rows are looked up among the keys seen last: a query plan costs as much as hashing a thousand rows.
"""
KEYS_REMEMBERED_MAX: Final = 4096

Known = dict[tuple[Any, ...], int]
"""Key groups of recently seen keys."""


def key_group_of(frame: pl.DataFrame, keys: Sequence[str], max_parallelism: int) -> pl.Series:
    """Returns the key group of every row, UInt16 in 0 .. max_parallelism - 1. `max_parallelism` is at most 32768."""
    import polars as pl

    found, library = find_groups_in_c(frame, keys, max_parallelism), loaded()
    if found is not None and library is not None:
        return library.arrow.fixed_column("key_group", found.buffer_info()[0], len(found), pl.UInt16)
    kinds = tuple(frame[key].dtype for key in keys)
    if frame.height > ROWS_FEW:
        return _hash_rows(frame, keys, kinds, max_parallelism)
    from tidegate.formats.columns import plain_values

    rows = list(zip(*(plain_values(frame[key]) for key in keys), strict=True))
    groups = _look_up(
        rows,
        _known_groups(kinds, max_parallelism),
        lambda: _hash_rows(frame, keys, kinds, max_parallelism).to_list(),
    )
    return pl.Series("key_group", groups, dtype=pl.UInt16)


def find_groups_in_c(frame: pl.DataFrame, keys: Sequence[str], max_parallelism: int) -> array[int] | None:
    """Returns the key group of every row as 16-bit numbers, or None if C cannot hash these keys."""
    library = loaded()
    return None if library is None else find_groups(library, [frame[key] for key in keys], max_parallelism)


def key_groups_of_keys(
    keys: Sequence[tuple[Any, ...]], kinds: Sequence[DataType], max_parallelism: int
) -> Sequence[int]:
    """Does the same as `key_group_of` for keys held as plain values (`formats.columns.plain_values`)."""
    if not keys:
        return []
    if len(keys) > ROWS_FEW:
        return _hash_keys(keys, kinds, max_parallelism)
    known = _known_groups(tuple(kinds), max_parallelism)
    return _look_up(keys, known, lambda: _hash_keys(keys, kinds, max_parallelism))


def _look_up(keys: Sequence[tuple[Any, ...]], known: Known, derive: Callable[[], list[int]]) -> list[int]:
    found = [known.get(key, -1) for key in keys]
    if -1 in found:
        found = derive()
        if len(known) > KEYS_REMEMBERED_MAX - ROWS_FEW:
            known.clear()
        known.update(zip(keys, found, strict=True))
    return found


@lru_cache(maxsize=16)
def _known_groups(kinds: tuple[object, ...], max_parallelism: int) -> Known:  # noqa: ARG001  # part of the cache key
    return {}


def _hash_rows(
    frame: pl.DataFrame, keys: Sequence[str], kinds: tuple[pl.DataType, ...], max_parallelism: int
) -> pl.Series:
    return frame.select(_group_expression(tuple(keys), kinds, max_parallelism)).to_series()


def _hash_keys(keys: Sequence[tuple[Any, ...]], kinds: Sequence[DataType], max_parallelism: int) -> list[int]:
    import polars as pl

    from tidegate.formats.columns import make_column

    plain = {"string": pl.String, "binary": pl.Binary, "boolean": pl.Boolean}

    def column(index: int, kind: DataType) -> pl.Series:
        name, values = f"key{index}", [key[index] for key in keys]
        if kind.kind == "decimal":
            return make_column(name, kind, values)
        return pl.Series(name, values, dtype=plain.get(kind.kind, pl.Int64))

    frame = pl.DataFrame([column(index, kind) for index, kind in enumerate(kinds)])
    types = tuple(column.dtype for column in frame.get_columns())
    groups: list[int] = _hash_rows(frame, frame.columns, types, max_parallelism).to_list()
    return groups


def _canonical(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    import polars as pl

    if kind in (pl.String, pl.Binary):
        return key
    if kind == pl.Date:
        return key.cast(pl.Int32).cast(pl.String)
    if isinstance(kind, pl.Datetime):
        return key.cast(pl.Int64).cast(pl.String)
    if kind == pl.Boolean or kind.is_integer() or kind.is_decimal():
        return key.cast(pl.String)
    what = "a string, integer, decimal, boolean, binary, date or timestamp"
    raise TypeError(f"a key cannot be of type {kind}: take {what}")


def _counted(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    import polars as pl

    text = key.bin.encode("hex") if kind == pl.Binary else _canonical(key, kind)
    return (
        pl.when(text.is_null())
        .then(pl.lit("-:"))
        .otherwise(pl.concat_str([text.str.len_bytes().cast(pl.String), pl.lit(":"), text]))
    )


@lru_cache(maxsize=256)
def _group_expression(keys: tuple[str, ...], kinds: tuple[pl.DataType, ...], max_parallelism: int) -> pl.Expr:
    import polars as pl

    if not keys:
        raise ValueError("an exchange needs at least one key column")
    if len(keys) == 1:
        group = _hash(_canonical(pl.col(keys[0]), kinds[0]), max_parallelism)
        null_group = pl.select(_hash(pl.lit(b"\xff"), max_parallelism)).item()
        return group.fill_null(null_group).alias("key_group")
    parts = [_counted(pl.col(key), kind) for key, kind in zip(keys, kinds, strict=True)]
    return _hash(pl.concat_str(parts), max_parallelism).alias("key_group")


def _hash(canonical: pl.Expr, max_parallelism: int) -> pl.Expr:
    import polars as pl
    import polars_hash  # noqa: F401  # registers the namespace `nchash`

    hashed: pl.Expr = canonical.nchash.xxh3_64()  # type: ignore[attr-defined]  # the namespace of polars_hash
    return (hashed % max_parallelism).cast(pl.UInt16)


class KeyGroupPartitioner:
    """Splits batches by the subtask that owns the key group of each row."""

    def __init__(self, keys: Sequence[str], owned: Sequence[range], max_parallelism: int) -> None:
        """`owned`: the key groups of each subtask, in order, all groups together."""
        self._keys = keys
        self._owned = owned
        self._max_parallelism = max_parallelism
        self._owners = array("H", [subtask for subtask, groups in enumerate(owned) for _ in groups])

    def split(self, frame: pl.DataFrame) -> list[pl.DataFrame]:
        """Returns the rows of each subtask, in order."""
        library, found = loaded(), find_groups_in_c(frame, self._keys, self._max_parallelism)
        if library is not None and found is not None:
            parts = distribute(library, found, self._owners, len(self._owned))
            return [frame[rows] if len(rows) else frame.head(0) for rows in parts]
        groups = key_group_of(frame, self._keys, self._max_parallelism)
        return [_rows(frame, (groups >= owned.start) & (groups < owned.stop)) for owned in self._owned]


def _rows(frame: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Filters like `frame.filter(mask)`, but without a query plan per batch, which would dominate for small batches."""
    import polars as pl

    return pl.DataFrame([column.filter(mask) for column in frame.get_columns()])
