"""Values as JSON text for types that Polars' own encoder does not write as JSON does: decimals and maps.

Polars writes a decimal as a string and a map as an array. So values that contain either are composed of the texts of
their parts. Everything else is encoded by Polars, adjacent fields together as far as possible, which is much cheaper.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from tidegate.datatypes import DataType, holds_kind
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns
from tidegate.formats.text import json_ready

_COMPOSED: Final = ("decimal", "map")
_BARE_KEYS: Final = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})
"""Kinds of keys whose text needs no escapes."""


def is_composed(kind: DataType) -> bool:
    """Returns whether Polars' encoder writes values of this type differently from JSON."""
    return holds_kind(kind, _COMPOSED)


def json_text(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns the JSON text of each value, `null` for NULL.

    A decimal is a number with all digits of its scale, a map an object; everything else is as in `text.py`.
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
