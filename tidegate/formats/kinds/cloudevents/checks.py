"""Texts of attributes to columns, column by column; and which events are invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, STRING, DataType, Schema
from tidegate.formats.columns import TIMESTAMP as MOMENT
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.cloudevents.attributes import CORE, REQUIRED, SPECVERSION, is_media_type

_SHOWN_MAX: Final = 60
_RFC3339: Final = r"^\d{4}-\d{2}-\d{2}[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$"
_INTEGER: Final = r"^-?(0|[1-9]\d*)$"


def check_attributes(
    attributes: Schema, texts: dict[str, pl.Series], failures: dict[int, RecordFailure]
) -> dict[str, pl.Series]:
    """Returns the columns of all rows. Adds a failure for the first mistake of each row that has none yet."""
    for name in REQUIRED:
        if texts[name].null_count():
            _fail(failures, texts[name].is_null().arg_true(), f"the event has no `{name}`")
    columns: dict[str, pl.Series] = {}
    for name, kind in attributes.items():
        text = texts[name]
        if name in CORE:
            empty = text == ""
            if empty.any():
                _fail(failures, empty.arg_true(), f"`{name}` is empty")
        columns[name] = text if kind == STRING else _typed(name, kind, text, failures)
    _check_each("specversion", texts, failures, lambda one: one == SPECVERSION, f"and only {SPECVERSION} is supported")
    _check_each("datacontenttype", texts, failures, is_media_type, "which is no media type")
    return columns


def _fail(failures: dict[int, RecordFailure], rows: Iterable[int], message: str) -> None:
    for row in rows:
        failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))


def _check_each(
    name: str,
    texts: dict[str, pl.Series],
    failures: dict[int, RecordFailure],
    is_valid: Callable[[str], bool],
    reason: str,
) -> None:
    """Checks an attribute that has few different values."""
    for one in texts[name].unique().drop_nulls().to_list():
        if not is_valid(one):
            _fail(failures, (texts[name] == one).arg_true(), f"`{name}` is {_shown(one)}, {reason}")


def _typed(name: str, kind: DataType, text: pl.Series, failures: dict[int, RecordFailure]) -> pl.Series:
    column = _read_moments(text) if kind.kind == "timestamp" else _read(text, kind)
    if column.null_count() != text.null_count():
        what = "not a time of RFC 3339 in the years 1 to 9999" if kind.kind == "timestamp" else f"no {kind}"
        for row in (column.is_null() & text.is_not_null()).arg_true():
            _fail(failures, (row,), f"`{name}` is {_shown(text[row])}, {what}")
    return column


def _read(text: pl.Series, kind: DataType) -> pl.Series:
    if kind.kind == "boolean":
        return text.replace_strict(["true", "false"], [True, False], default=None, return_dtype=pl.Boolean)
    if kind.kind == "binary":
        return text.str.decode("base64", strict=False)
    return text.set(~text.str.contains(_INTEGER), None).cast(polars_type(kind), strict=False)


def _read_moments(text: pl.Series) -> pl.Series:
    """Returns NULL for what is no time. Digits of a second beyond the sixth are cut off."""
    proper = text.str.contains(_RFC3339)
    if not proper.all():
        text = text.set(~proper, None)
    found = text.str.to_datetime("%+", time_unit="us", time_zone="UTC", strict=False, exact=True)
    micros = found.to_physical()
    return micros.set(~micros.is_between(FIRST_MOMENT, LAST_MOMENT), None).cast(MOMENT)


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_MAX]) + ("..." if len(text) > _SHOWN_MAX else "")
