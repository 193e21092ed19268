"""Columns to delimited lines. A field is quoted only where a reader of the dialect needs it, or always."""

from __future__ import annotations

import math
import re
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.delimited.lines import Dialect
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
_BREAK: Final = "\0"
"""Between the texts of a column when they are searched; a text that has one is only searched more closely."""
_UNFIT: Final = "contains the separator, a line break or the text of NULL, which needs quotes"
"""The separator may also begin in the text and end after it (`Dialect.overlaps`)."""


class DelimitedEncoder(Encoder):
    """Encodes each row as one line without an end. Without quotes, a row that no line can hold fails."""

    def __init__(self, columns: Columns, dialect: Dialect, *, quote_all: bool) -> None:
        self._fields = [_Field(name, kind, dialect, quote_all=quote_all) for name, kind in columns]
        self._searched = [one.name for one in self._fields if one.searched]
        self._separator = dialect.separator
        self._quotes = bool(dialect.quote)

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        special = self._find_special(frame)
        texts = [one.text(frame, special=one in special) for one in self._fields]
        value = pl.concat_str(texts, separator=self._separator).cast(pl.Binary).alias("value")
        return Encoded(frame.select_seq(value), () if self._quotes or not special else _failures(frame, special))

    def _find_special(self, frame: pl.DataFrame) -> list[_Field]:
        """Returns the columns in which a text may need quotes. Each is searched as one long text."""
        if not self._searched or not frame.height:
            return [one for one in self._fields if one.may_be_special("")]
        joined = frame.select_seq(pl.col(self._searched).str.join(_BREAK)).row(0, named=True)
        return [one for one in self._fields if one.may_be_special(f"{_BREAK}{joined.get(one.name)}{_BREAK}")]


class _Field:
    """One column as fields of lines."""

    def __init__(self, name: str, kind: DataType, dialect: Dialect, *, quote_all: bool) -> None:
        self.name = name
        text, null, quote = text_of(pl.col(name), kind), dialect.null, dialect.quote
        self.special = text.str.contains(_special(dialect)).fill_null(value=False).alias(name)
        """Whether a text is only right within quotes."""
        quoted = _quoted(text, kind, dialect)
        self._plain = quoted if quote_all else text
        """The fields of texts that need no quotes, NULL for NULL."""
        self._checked = quoted if quote_all else pl.when(self.special).then(quoted).otherwise(text)
        """The fields of any texts."""
        finite = pl.col(name).cast(pl.String)
        self._finite = _quoted(finite, kind, dialect) if quote_all else finite
        """The fields of finite numbers."""
        self._floating = kind.kind in _FLOATING
        self._null_text = null
        self._whole = [f"{_BREAK}{text}{_BREAK}" for text in dialect.quoted]
        self.searched = kind.kind == "string" and not (quote_all and quote)
        marks = {dialect.separator, "\r", "\n", dialect.quote} - {""}
        self._marks = [*sorted(marks), *(f"{part}{_BREAK}" for part in dialect.overlaps)]
        written = _WRITTEN.get(kind.kind)
        self._special = not self.searched and not (quote_all and quote) and _may_hold(written, marks, null)

    def text(self, frame: pl.DataFrame, *, special: bool) -> pl.Expr:
        """Returns the fields. `special`: texts of the batch may need quotes."""
        column = frame[self.name]
        text = self._checked if special else self._plain
        if self._floating and not special and not _has_infinity(column):
            text = self._finite
        return text.fill_null(self._null_text) if column.null_count() else text

    def may_be_special(self, texts: str) -> bool:
        """Returns False if no text of a batch needs quotes; `texts` are all of them, if the column is `searched`."""
        if not self.searched:
            return self._special
        return any(mark in texts for mark in (*self._marks, *self._whole))


def _may_hold(written: str | None, marks: set[str], null: str) -> bool:
    """Returns whether texts of these characters may hold a mark, or be the text of NULL."""
    if written is None:
        return True
    return any(set(mark) <= set(written) for mark in marks) or (null != "" and set(null) <= set(written))


def _special(dialect: Dialect) -> str:
    """Returns a pattern of the texts that need quotes."""
    quote = f"|{re.escape(dialect.quote)}" if dialect.quote else ""
    overlaps = "".join(f"|{re.escape(part)}$" for part in dialect.overlaps)
    whole = "".join(f"|^{re.escape(text)}$" for text in dialect.quoted)
    return rf"{re.escape(dialect.separator)}|[\r\n]{quote}{overlaps}{whole}"


def _has_infinity(column: pl.Series) -> bool:
    return column.max() == math.inf or column.min() == -math.inf


def _quoted(text: pl.Expr, kind: DataType, dialect: Dialect) -> pl.Expr:
    """Returns texts within quotes, or as they are if the dialect has none."""
    quote = pl.lit(dialect.quote)
    return pl.concat_str([quote, _escaped(text, kind, dialect), quote]) if dialect.quote else text


def _escaped(text: pl.Expr, kind: DataType, dialect: Dialect) -> pl.Expr:
    """Returns texts as they are within quotes."""
    written, quote, escape = _WRITTEN.get(kind.kind), dialect.quote, dialect.escape
    if written is not None and quote not in written and escape not in written:
        return text
    if escape != quote:
        text = text.str.replace_all(escape, escape + escape, literal=True)
    return text.str.replace_all(quote, escape + quote, literal=True)


def _failures(frame: pl.DataFrame, fields: list[_Field]) -> list[RecordFailure]:
    unfit = frame.select_seq(one.special for one in fields)
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
