"""Texts of attributes to columns, column by column; and which events are invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, STRING, DataType, Schema
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.cloudevents.attributes import CORE, REQUIRED, SPECVERSION, is_media_type

_SHOWN_MAX: Final = 60
_JSON: Final = "application/json"
"""The usual `datacontenttype`; others are looked at."""
_RFC3339: Final = r"^\d{4}-\d{2}-\d{2}[Tt ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$"
_INTEGER: Final = r"^-?(0|[1-9]\d*)$"


class AttributeReader:
    """Reads the attributes of events."""

    def __init__(self, attributes: Schema) -> None:
        self._attributes = attributes

    def read(self, texts: dict[str, pl.Series], failures: dict[int, RecordFailure]) -> dict[str, pl.Series]:
        """Returns the columns of all rows. Adds a failure for the first mistake of each row that has none yet."""
        columns = {name: _typed(texts[name], kind) for name, kind in self._attributes.items()}
        untyped = any(texts[name].null_count() != column.null_count() for name, column in columns.items())
        if untyped or is_suspect({name: texts[name] for name in CORE}):
            self._find_failures(texts, columns, failures)
        return columns

    def _find_failures(
        self, texts: dict[str, pl.Series], columns: dict[str, pl.Series], failures: dict[int, RecordFailure]
    ) -> None:
        for name in REQUIRED:
            if texts[name].null_count():
                _fail(failures, texts[name].is_null().arg_true(), f"the event has no `{name}`")
        for name, kind in self._attributes.items():
            if name in CORE:
                _fail(failures, (texts[name] == "").arg_true(), f"`{name}` is empty")
            _find_untyped(name, kind, texts[name], columns[name], failures)
        _check_each(
            "specversion", texts, failures, lambda one: one == SPECVERSION, f"but only {SPECVERSION} is supported"
        )
        _check_each("datacontenttype", texts, failures, is_media_type, "which is not a media type")


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


def _find_untyped(
    name: str, kind: DataType, text: pl.Series, column: pl.Series, failures: dict[int, RecordFailure]
) -> None:
    if column.null_count() == text.null_count():
        return
    what = "not a time of RFC 3339 in the years 1 to 9999" if kind.kind == "timestamp" else f"no {kind}"
    for row in (column.is_null() & text.is_not_null()).arg_true():
        _fail(failures, (row,), f"`{name}` is {_shown(text[row])}, {what}")


def is_suspect(texts: Mapping[str, pl.Series]) -> bool:
    """Returns whether rows have to be looked at, from the texts of the attributes that the specification defines.

    Most batches are valid, and few comparisons show that.
    """
    if any(texts[name].null_count() for name in REQUIRED):
        return True
    usual = {"specversion": SPECVERSION, "datacontenttype": _JSON}
    if not all(_is_all(texts[name], text) for name, text in usual.items()):
        return True
    return any(bool((text == "").any()) for name, text in texts.items() if name not in usual and not _is_empty(text))


def _is_empty(text: pl.Series) -> bool:
    return text.null_count() == len(text)


def _is_all(text: pl.Series, value: str) -> bool:
    """Returns whether all known values are this one."""
    return _is_empty(text) or bool((text == value).all())


def _typed(text: pl.Series, kind: DataType) -> pl.Series:
    """Returns NULL for a text that is no value of the type."""
    if kind == STRING:
        return text
    if _is_empty(text):
        return pl.Series(text.name, [None], dtype=polars_type(kind)).new_from_index(0, len(text))
    return pl.DataFrame([text.alias("text")]).select_seq(_typed_text(pl.col("text"), kind)).to_series()


def _typed_text(text: pl.Expr, kind: DataType) -> pl.Expr:
    if kind.kind == "timestamp":
        return _moments(text)
    if kind.kind == "boolean":
        return text.replace_strict(["true", "false"], [True, False], default=None, return_dtype=pl.Boolean)
    if kind.kind == "binary":
        return text.str.decode("base64", strict=False)
    return pl.when(text.str.contains(_INTEGER)).then(text).cast(polars_type(kind), strict=False)


def _moments(text: pl.Expr) -> pl.Expr:
    """Digits of a second beyond the sixth are cut off."""
    found = text.str.to_datetime("%+", time_unit="us", time_zone="UTC", strict=False, cache=False)
    proper = text.str.contains(_RFC3339) & found.to_physical().is_between(FIRST_MOMENT, LAST_MOMENT)
    return pl.when(proper).then(found)


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_MAX]) + ("..." if len(text) > _SHOWN_MAX else "")
