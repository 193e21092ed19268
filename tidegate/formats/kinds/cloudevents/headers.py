"""The headers of a batch as texts by name."""

from __future__ import annotations

from typing import Final

import polars as pl

from tidegate.formats.contract import FlatHeaders, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.flat_headers import flatten_headers
from tidegate.formats.kinds.cloudevents.attributes import PREFIX

_UNREADABLE: Final = "the name of a header is not UTF-8"
_WIDTH_MAX: Final = 64


class EventHeaders:
    """The headers of a batch, by name. Of several with one name the last one counts."""

    def __init__(self, flat: FlatHeaders, rows: int) -> None:
        self._count = rows
        self._flat = flat
        self._alike = _split(flat, rows)
        """The texts of all headers, if all messages have the same names in the same order."""
        self._rows: pl.Series | None = None

    def text(self, name: str, failures: dict[int, RecordFailure]) -> pl.Series:
        """Returns the text of a header for each message; NULL if it has none, or one that is not UTF-8, which fails."""
        if self._alike is not None:
            found = self._alike.get(name)
            return pl.Series(name, [None], dtype=pl.String).new_from_index(0, self._count) if found is None else found
        values = self._column(name)
        text = text_of(values)
        if text.null_count() != values.null_count():
            for row in (text.is_null() & values.is_not_null()).arg_true():
                message = f"the header `{name}` is not UTF-8"
                failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
        return text

    def have_attributes(self) -> pl.Series | bool:
        """Returns for each message, or for all, whether it has headers that look like attributes."""
        if self._alike is not None:
            return any(name.startswith(PREFIX) for name in self._alike)
        rows = self._row_of().filter(self._flat.names.str.starts_with(PREFIX))
        return pl.repeat(value=False, n=self._count, eager=True).scatter(rows, values=True)

    def _row_of(self) -> pl.Series:
        """Returns the message of each header."""
        if self._rows is None:
            rows = pl.int_range(self._count, dtype=pl.UInt32, eager=True)
            self._rows = rows.repeat_by(self._flat.counts).explode(empty_as_null=False)
        return self._rows

    def _column(self, name: str) -> pl.Series:
        found = self._flat.names == name
        rows, values = self._row_of().filter(found), self._flat.values.filter(found)
        last = (rows != rows.shift(-1)).fill_null(value=True)
        if not last.all():
            rows, values = rows.filter(last), values.filter(last)
        places = pl.repeat(None, self._count, dtype=pl.UInt32, eager=True).scatter(
            rows, pl.int_range(len(rows), dtype=pl.UInt32, eager=True)
        )
        return values.gather(places).alias(name)


def read_headers(messages: Messages, failures: dict[int, RecordFailure]) -> EventHeaders:
    """Returns the headers of all messages. Those whose names cannot be read fail."""
    flat = messages.flat_headers
    if flat is None:
        lists = messages.headers
        for row, one in enumerate(lists):
            if one is None:
                failures[row] = RecordFailure(row, FailureKind.NOT_UTF8, _UNREADABLE)
        flat = flatten_headers([one or () for one in lists])
    return EventHeaders(flat, len(messages))


def _split(flat: FlatHeaders, rows: int) -> dict[str, pl.Series] | None:
    """Returns one column for each header that all messages have, in one pass; None if they differ in their headers."""
    if not len(flat.names):
        return {}
    width, rest = divmod(len(flat.names), rows)
    if rest or width > _WIDTH_MAX or flat.counts.min() != width or flat.counts.max() != width:
        return None
    names = flat.names.head(width).to_list()
    frame = pl.DataFrame([flat.names.alias("key"), flat.values.alias("value")])
    same = [pl.col("key").gather_every(width, place) == name for place, name in enumerate(names)]
    if not frame.select(pl.all_horizontal(one.all() for one in same)).item():
        return None
    texts = {
        name: pl.col("value").gather_every(width, place).cast(pl.String).alias(name) for place, name in enumerate(names)
    }
    try:
        return {column.name: column for column in frame.select(texts.values())}
    except pl.exceptions.ComputeError:  # some are not UTF-8
        return None


def text_of(values: pl.Series) -> pl.Series:
    """Returns bytes as text; NULL for what is not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series(values.name, [_decoded(one) for one in values.to_list()], dtype=pl.String)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
