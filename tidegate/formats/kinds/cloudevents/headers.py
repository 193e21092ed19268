"""The headers of a batch as texts by name."""

from __future__ import annotations

from typing import Final

import polars as pl

from tidegate.formats.contract import FlatHeaders, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.cloudevents.attributes import PREFIX

_UNREADABLE: Final = "the name of a header is not UTF-8"
_WIDTH_MAX: Final = 64


class EventHeaders:
    """The headers of a batch, by name. Of several with one name the last one counts."""

    def __init__(self, messages: Messages, failures: dict[int, RecordFailure]) -> None:
        """Messages whose headers cannot be read fail."""
        self._count = len(messages)
        flat = messages.flat_headers
        self._alike = None if flat is None else _split(flat, self._count)
        """The texts of all headers, if all messages have the same names in the same order."""
        if self._alike is None:
            lists = messages.headers
            self._each = [dict(one or ()) for one in lists]
            for row in [row for row, one in enumerate(lists) if one is None]:
                failures[row] = RecordFailure(row, FailureKind.NOT_UTF8, _UNREADABLE)

    def text(self, name: str, failures: dict[int, RecordFailure]) -> pl.Series:
        """Returns the text of a header for each message; NULL if it has none, or one that is not UTF-8, which fails."""
        if self._alike is not None:
            found = self._alike.get(name)
            return pl.Series(name, [None], dtype=pl.String).new_from_index(0, self._count) if found is None else found
        values = pl.Series(name, [one.get(name) for one in self._each], dtype=pl.Binary)
        text = text_of(values)
        for row in (text.is_null() & values.is_not_null()).arg_true():
            message = f"the header `{name}` is not UTF-8"
            failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
        return text

    def have_attributes(self) -> pl.Series:
        """Returns for each message whether it has headers that look like attributes."""
        if self._alike is not None:
            return pl.Series([any(map(_is_attribute, self._alike))]).new_from_index(0, self._count)
        return pl.Series([any(map(_is_attribute, one)) for one in self._each], dtype=pl.Boolean)


def _is_attribute(name: str) -> bool:
    return name.startswith(PREFIX)


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
