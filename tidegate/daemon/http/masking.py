"""Masks columns in rows that the HTTP port shows: those of `http.redact`, and those made with `secret()`. Pure.

Rows are plain data. A text of a row may also contain a secret of the pipeline file, which is replaced like in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidegate.config.fields.secrets import REDACTED
from tidegate.process.logs import redact


def mask(row: Mapping[str, object], columns: Collection[str]) -> dict[str, object]:
    """Returns the row with `***` instead of each value whose name is one of `columns`, at any depth.

    Upper and lower case do not matter, as in expressions. Keys of maps count as names. NULL is masked as well.
    """
    return _mask_fields(row, frozenset(name.casefold() for name in columns))


def _mask_fields(row: Mapping[str, object], folded: Collection[str]) -> dict[str, object]:
    return {
        redact(name): REDACTED if name.casefold() in folded else _mask_value(value, folded)
        for name, value in row.items()
    }


def _mask_value(value: Any, folded: Collection[str]) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return _mask_fields(value, folded)
        case list() | tuple():
            return [_mask_value(item, folded) for item in value]
    return value
