"""Texts of attributes to columns, column by column; and which events are invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
        self._typed = [
            typed_text(pl.col(name), kind).alias(name) for name, kind in attributes.items() if kind != STRING
        ]
        lost = [
            pl.col(name).null_count() != pl.col(f"{name}.text").null_count()
            for name, kind in attributes.items()
            if kind != STRING
        ]
        core = [(pl.col(name) == "").any() for name in CORE if attributes[name] == STRING]
        missing = [pl.col(name).null_count() > 0 for name in REQUIRED]
        other = [(pl.col("specversion") != SPECVERSION).any(), (pl.col("datacontenttype") != _JSON).any()]
        self._suspect = pl.any_horizontal(*lost, *core, *missing, *other)

    def read(self, texts: dict[str, pl.Series], failures: dict[int, RecordFailure]) -> dict[str, pl.Series]:
        """Returns the columns of all rows. Adds a failure for the first mistake of each row that has none yet."""
        frame = pl.DataFrame([column.alias(name) for name, column in texts.items()])
        typed = frame.select_seq(self._typed)
        columns = {name: typed[name] if name in typed.columns else texts[name] for name in self._attributes}
        given = [frame[name].alias(f"{name}.text") for name in typed.columns]
        if (
            pl.DataFrame([column.alias(name) for name, column in columns.items()])
            .hstack(given)
            .select(self._suspect)
            .item()
        ):
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
            "specversion", texts, failures, lambda one: one == SPECVERSION, f"and only {SPECVERSION} is supported"
        )
        _check_each("datacontenttype", texts, failures, is_media_type, "which is no media type")


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


def typed_text(text: pl.Expr, kind: DataType) -> pl.Expr:
    """Returns NULL for a text that is no value of the type."""
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
