"""Encoders whose record values are one Polars expression, and the bytes of keys."""

from __future__ import annotations

import polars as pl
from typing_extensions import override

from tidegate.formats.contract import Encoded, Encoder
from tidegate.formats.text import timestamp_text


class ExpressionEncoder(Encoder):
    """An Encoder. `value` is a Binary expression, which `records.py` evaluates in one pass with keys and timestamps."""

    def __init__(self, value: pl.Expr) -> None:
        self.value = value.alias("value")

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        return Encoded(frame.select_seq(self.value))


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """The bytes of a record key: text as it is, integers decimal, boolean `true`/`false`, binary raw, NULL no key.

    A decimal has all digits of its scale; what else there is as in `text.py`.
    """
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key, kind)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
