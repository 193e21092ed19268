"""Encoders whose record values are one Polars expression: value, key and timestamp in one pass over a frame."""

from __future__ import annotations

import polars as pl

from tidegate.formats.contract import Encoded
from tidegate.formats.text import timestamp_text


class ExpressionEncoder:
    """An Encoder. `value` is a Binary expression; `key` and `timestamp` are columns of the frame."""

    def __init__(self, value: pl.Expr, key: str | None, timestamp: str | None) -> None:
        self._value = value.alias("value")
        self._key = key
        self._timestamp = timestamp
        self._parts: dict[pl.DataType | None, list[pl.Expr]] = {}

    def encode(self, frame: pl.DataFrame) -> Encoded:
        """See Encoder."""
        kind = None if self._key is None else frame.get_column(self._key).dtype
        if kind not in self._parts:
            self._parts[kind] = self._expressions(kind)
        return Encoded(frame.select_seq(self._parts[kind]))

    def _expressions(self, kind: pl.DataType | None) -> list[pl.Expr]:
        """What makes the record parts; `kind` is the type of the key column, which is one and the same in practice."""
        parts = [self._value]
        if self._key is not None and kind is not None:
            parts.append(key_bytes(pl.col(self._key), kind).alias("key"))
        if self._timestamp is not None:
            parts.append(pl.col(self._timestamp).dt.epoch("ms").alias("timestamp"))
        return parts


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The bytes of a record key: text as it is, integers decimal, boolean `true`/`false`, binary raw, NULL no key."""
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
