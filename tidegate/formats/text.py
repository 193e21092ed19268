"""Values as text, the same wherever text leaves the engine: JSON fields and record keys.

- timestamp: ISO 8601 in UTC with `Z`, with a fraction only if there is one (3 or 6 digits); without time zone, the same
  without `Z`
- date: `YYYY-MM-DD`
- binary inside JSON: base64 (RFC 4648, padded)

Polars' own encoder writes a decimal as a string and a map as an array. So values that contain either are composed of
the texts of their parts. Everything else is encoded by Polars, adjacent fields together as far as possible, which is
much cheaper.
"""

from __future__ import annotations

from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType, holds_kind
from tidegate.formats.columns import polars_type, type_instance
from tidegate.formats.contract import Columns, Encoded, Encoder

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


# -- JSON with decimals and maps ---------------------------------------------------------------------------------------


_COMPOSED: Final = ("decimal", "map")
_BARE_KEYS: Final = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
"""Kinds of keys whose text needs no escapes."""


def is_composed(kind: DataType) -> bool:
    """Returns whether Polars' encoder writes values of this type differently from JSON."""
    return holds_kind(kind, _COMPOSED)


def json_text(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns the JSON text of each value, `null` for NULL.

    A decimal is a number with all digits of its scale, a map an object; everything else is as above.
    """
    if kind.kind == "decimal":
        return value.cast(pl.String).fill_null("null")
    if not is_composed(kind):
        return _encoded(value, kind)
    if kind.kind == "struct":
        text = json_object([(name, value.struct.field(name), part) for name, part in kind.fields])
        return pl.when(value.is_null()).then(pl.lit("null")).otherwise(text)
    element = pl.element()
    if kind.kind == "map":
        assert kind.key is not None
        assert kind.element is not None
        key, own = element.struct.field("key"), element.struct.field("value")
        entry = pl.concat_str([_key_text(key, kind.key), pl.lit(":"), json_text(own, kind.element)])
        begin, end = "{", "}"
    else:
        assert kind.element is not None
        entry, begin, end = json_text(element, kind.element), "[", "]"
    inside = value.list.eval(entry).list.join(",")
    return pl.concat_str([pl.lit(begin), inside, pl.lit(end)]).fill_null("null")  # NULL if a part is


def json_object(fields: list[tuple[str, pl.Expr, DataType]]) -> pl.Expr:
    """Returns the JSON object of these fields."""
    parts: list[pl.Expr] = []
    plain: list[pl.Expr] = []
    for name, value, kind in fields:
        if not is_composed(kind):
            plain.append(json_ready(value, polars_type(kind)).alias(name))
            continue
        parts += [*_inside(plain), _encoded(pl.lit(name), DataType("string")) + ":" + json_text(value, kind)]
        plain = []
    texts = [*parts, *_inside(plain)]
    return pl.concat_str([pl.lit("{"), pl.concat_str(texts, separator=","), pl.lit("}")])


def json_objects_of(columns: Columns) -> pl.Expr:
    """Returns the JSON object of each row of a frame."""
    return json_object([(name, pl.col(name), kind) for name, kind in columns])


def _inside(fields: list[pl.Expr]) -> list[pl.Expr]:
    """Returns the text that Polars writes between the braces of an object."""
    return [pl.struct(fields).struct.json_encode().str.strip_prefix("{").str.strip_suffix("}")] if fields else []


def _encoded(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns the text of a value of a type that Polars writes as JSON does."""
    whole = pl.struct(json_ready(value, polars_type(kind)).alias("v")).struct.json_encode()
    return whole.str.strip_prefix('{"v":').str.strip_suffix("}")


def _key_text(key: pl.Expr, kind: DataType) -> pl.Expr:
    if kind.kind in _BARE_KEYS:
        text = key.cast(pl.String)
        if kind.kind in ("float", "double"):
            text = text.str.replace("inf", "Infinity", literal=True)
        return pl.concat_str([pl.lit('"'), text, pl.lit('"')])
    return _encoded(key, kind)
