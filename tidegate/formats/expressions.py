"""Encoders whose record values are a single Polars expression, and the bytes of keys."""

from __future__ import annotations

import polars as pl
from typing_extensions import override

from tidegate.formats.contract import Encoded, Encoder
from tidegate.formats.text import timestamp_text


class ExpressionEncoder(Encoder):
    """An encoder whose `value` is a Binary expression, which `part_values.py` evaluates in one pass with keys and
    timestamps.
    """

    def __init__(self, value: pl.Expr) -> None:
        self.value = value.alias("value")

    def write(self, frame: pl.DataFrame) -> pl.Series | None:  # noqa: ARG002 - for encoders with a faster way
        """Returns what the expression does, computed in a faster way; None if there is none for this frame."""
        return None

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        written = self.write(frame)
        return Encoded(frame.select_seq(self.value) if written is None else written.to_frame())


def key_bytes(key: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Returns the bytes of a record key: text unchanged, integers in decimal, `true`/`false`, binary unchanged.

    NULL is a record without a key. Decimals have all digits of their scale. All other types are as in `text.py`.
    """
    if isinstance(kind, pl.Binary):
        return key
    if isinstance(kind, pl.Datetime):
        key = timestamp_text(key, kind)
    elif not isinstance(kind, pl.String):
        key = key.cast(pl.String)
    return key.cast(pl.Binary)
