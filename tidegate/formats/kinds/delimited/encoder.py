"""Columns to delimited lines. A field is quoted only where a reader of the dialect needs it, or always."""

from __future__ import annotations

import re
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.delimited.dialect import Dialect
from tidegate.formats.text import timestamp_text

_DIGITS: Final = "-0123456789"
_WRITTEN: Final = {
    "boolean": "truefals",
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint", "date"), _DIGITS),
    "decimal": _DIGITS + ".",
    **dict.fromkeys(("float", "double"), _DIGITS + ".eInfityNa"),
    **dict.fromkeys(("timestamp", "timestamp_ntz"), _DIGITS + ":.TZ"),
}
"""The characters of texts by type. Others may have any."""
_FLOATING: Final = ("float", "double")
_UNFIT: Final = "contains the separator, a line break or the text of NULL, which needs quotes"
"""The separator may also begin in the text and end after it (`Dialect.overlaps`)."""


class DelimitedEncoder(Encoder):
    """Encodes each row as one line without an end. Without quotes, a row that no line can hold fails."""

    def __init__(self, columns: Columns, dialect: Dialect, *, quote_all: bool) -> None:
        fields = [_field(pl.col(name), kind, dialect, quote_all=quote_all) for name, kind in columns]
        self._value = pl.concat_str(fields, separator=dialect.separator).cast(pl.Binary).alias("value")
        self._unfit = [
            text_of(pl.col(name), kind).str.contains(_special(dialect)).fill_null(value=False).alias(name)
            for name, kind in columns
            if not dialect.quote and _may_be_special(kind, dialect)
        ]

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        return Encoded(frame.select_seq(self._value), _failures(frame.select_seq(self._unfit)) if self._unfit else ())


def _field(value: pl.Expr, kind: DataType, dialect: Dialect, *, quote_all: bool) -> pl.Expr:
    text = text_of(value, kind)
    if dialect.quote and (quote_all or _may_be_special(kind, dialect)):
        quote = pl.lit(dialect.quote)
        quoted = pl.concat_str([quote, _escaped(text, kind, dialect), quote])
        text = quoted if quote_all else pl.when(text.str.contains(_special(dialect))).then(quoted).otherwise(text)
    return text.fill_null(dialect.null)


def _may_be_special(kind: DataType, dialect: Dialect) -> bool:
    """Returns False if no text of a type needs quotes."""
    written = _WRITTEN.get(kind.kind)
    if written is None:
        return True
    marks, null = {dialect.separator, dialect.quote} - {""}, dialect.null
    return any(set(mark) <= set(written) for mark in marks) or (null != "" and set(null) <= set(written))


def _special(dialect: Dialect) -> str:
    """Returns a pattern of the texts that are only right within quotes."""
    quote = f"|{re.escape(dialect.quote)}" if dialect.quote else ""
    overlaps = "".join(f"|{re.escape(part)}$" for part in dialect.overlaps)
    whole = "".join(f"|^{re.escape(text)}$" for text in dialect.quoted)
    return rf"{re.escape(dialect.separator)}|[\r\n]{quote}{overlaps}{whole}"


def _escaped(text: pl.Expr, kind: DataType, dialect: Dialect) -> pl.Expr:
    """Returns texts as they are within quotes."""
    written, quote, escape = _WRITTEN.get(kind.kind), dialect.quote, dialect.escape
    if written is not None and quote not in written and escape not in written:
        return text
    if escape != quote:
        text = text.str.replace_all(escape, escape + escape, literal=True)
    return text.str.replace_all(quote, escape + quote, literal=True)


def _failures(unfit: pl.DataFrame) -> list[RecordFailure]:
    rows = unfit.select(pl.any_horizontal(pl.all())).to_series().arg_true()
    names = [next(name for name in unfit.columns if unfit[name][row]) for row in rows]
    return [
        RecordFailure(row, FailureKind.MALFORMED_DELIMITED, f"`{name}` {_UNFIT}")
        for row, name in zip(rows, names, strict=True)
    ]


def text_of(value: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns the text of each value, NULL for NULL; sources read it as the same value."""
    stored = polars_type(kind)
    if isinstance(stored, pl.Datetime):
        return timestamp_text(value, stored)
    if kind.kind == "binary":
        return value.bin.encode("base64")
    text = value.cast(pl.String)
    return text.str.replace("inf", "Infinity", literal=True) if kind.kind in _FLOATING else text
