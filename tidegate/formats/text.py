"""Values as text, the same wherever text leaves the engine: JSON fields and record keys.

- timestamp: ISO 8601 in UTC with `Z`, with a fraction only if there is one (3 or 6 digits); without time zone, the same
  without `Z`
- date: `YYYY-MM-DD`
- binary inside JSON: base64 (RFC 4648, padded)
- decimals and maps: `json_text.py`
"""

from __future__ import annotations

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import type_instance
from tidegate.formats.contract import Encoded, Encoder

_TIMESTAMP = "%Y-%m-%dT%H:%M:%S%.f"


def timestamp_text(value: pl.Expr, kind: pl.Datetime) -> pl.Expr:
    """Returns a timestamp column as text; NULL remains NULL."""
    return value.dt.to_string(_TIMESTAMP if kind.time_zone is None else f"{_TIMESTAMP}Z")


def json_ready(value: pl.Expr, kind: pl.DataType) -> pl.Expr:
    """Replaces everything in `value` that `struct.json_encode` would write differently or not at all."""
    if not _needs_text(kind):
        return value
    if isinstance(kind, pl.Datetime):
        return timestamp_text(value, kind)
    if isinstance(kind, pl.Binary):
        return value.bin.encode("base64")
    if isinstance(kind, pl.List):
        return value.list.eval(json_ready(pl.element(), _inner(kind)))
    assert isinstance(kind, pl.Struct)
    parts = [
        json_ready(value.struct.field(part.name), type_instance(part.dtype)).alias(part.name) for part in kind.fields
    ]
    return pl.when(value.is_not_null()).then(pl.struct(parts))


def _needs_text(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.List):
        return _needs_text(_inner(kind))
    if isinstance(kind, pl.Struct):
        return any(_needs_text(type_instance(part.dtype)) for part in kind.fields)
    return isinstance(kind, pl.Datetime | pl.Binary)


def _inner(kind: pl.List) -> pl.DataType:
    return type_instance(kind.inner)


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
