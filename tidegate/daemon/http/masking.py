"""Masks columns in rows that the HTTP port shows: those of `http.redact`, and those made with `secret()`. Pure.

Rows are plain data. A text of a row may also contain a secret of the pipeline file, which is replaced like in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec

from tidegate.config.fields.secrets import REDACTED
from tidegate.formats.plain import parse_json, render_json
from tidegate.process.logs import redact

MaskedRow = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""A row as the JSON object of an answer, rendered from text so that its numbers keep all their digits."""


def mask_json(row: str | bytes, columns: Collection[str]) -> MaskedRow:
    """Masks a row that is a JSON object. Raises ValueError if it is none, RecursionError if it is nested too deeply."""
    fields = parse_json(row)
    if not isinstance(fields, dict):
        raise ValueError("a row is a JSON object")  # noqa: TRY004 - the text is wrong, not its type
    return msgspec.Raw(render_json(mask(fields, columns)).encode())


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
