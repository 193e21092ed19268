"""Infers a schema from records: the narrowest column types with which each of them can be read. Pure.

The JSON reader is strict (`reader.py`): a string column rejects a number. So a field with a number in one record and a
text in another has no type. It is left out with a reason, and reading skips fields that the schema does not have.
Fields that only some records have, or that are null in some, become columns like the others.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    MAX_PRECISION,
    RESERVED,
    STRING,
    TIMESTAMP,
    DataType,
    is_pattern,
    is_reserved,
)
from tidegate.formats.kinds.json.types import read_moment

FIELDS_MAX: Final = 200
"""Maximum number of fields of a struct. With more, it is likely to be a map whose keys differ from record to record."""
COLUMNS_MAX: Final = 1000
DEPTH_MAX: Final = 8
"""Maximum depth of nested types, less than a pipeline file accepts."""
NAME_LENGTH_MAX: Final = 100
UNSIGNED_PRECISION: Final = 20
"""Digits of the largest unsigned 64-bit integer."""
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_LIKE_A_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MOMENTS: Final = {"date": DATE, "timestamp": TIMESTAMP}
_TOO_LARGE: Final = "a number that exceeds all types"


class InferredColumn(msgspec.Struct, frozen=True):
    """A field of the records as a column; `note` is for readers of the schema."""

    name: str
    type: DataType
    note: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """A field that does not become a column. `path` is dotted; `[]` stands for the elements of an array."""

    path: str
    reason: str


class Inference(msgspec.Struct, frozen=True):
    """The inferred schema. It is based on `objects` records; `others` are not JSON objects."""

    columns: tuple[InferredColumn, ...]
    left_out: tuple[LeftOut, ...]
    objects: int
    others: int
    tombstones: int

    @property
    def is_json(self) -> bool:
        """True if most records are JSON objects, with at least one column."""
        return self.objects > self.others and bool(self.columns)


@dataclass(slots=True)
class _Seen:
    """The values found at one place of the records."""

    kinds: set[str] = field(default_factory=set)
    element: _Seen | None = None
    fields: dict[str, _Seen] = field(default_factory=dict)
    precision: int = UNSIGNED_PRECISION
    """Digits of its integers beyond a bigint, which a double would round."""

    def add(self, value: Any) -> None:
        """Adds a value; null has no effect."""
        match value:
            case None:
                return
            case list():
                self.kinds.add("array")
                self.element = self.element or _Seen()
                for item in value:
                    self.element.add(item)
            case dict():
                self.kinds.add("struct")
                for name, item in value.items():
                    self.fields.setdefault(name, _Seen()).add(item)
            case _:
                kind = _scalar_kind(value)
                self.kinds.add(kind)
                if kind == "decimal" and abs(value) >= 10**UNSIGNED_PRECISION:
                    self.precision = MAX_PRECISION


def derive_schema(values: Sequence[bytes | None]) -> Inference:
    """Infers the schema of these values. Columns are in the order of their first occurrence."""
    root, objects, others, tombstones = _Seen(), 0, 0, 0
    for value in values:
        if value is None:
            tombstones += 1
            continue
        decoded = _decode(value)
        if isinstance(decoded, dict):
            objects += 1
            root.add(decoded)
        else:
            others += 1
    columns: list[InferredColumn] = []
    left_out: list[LeftOut] = []
    for name, seen in root.fields.items():
        reason = refused_column(name) if len(columns) < COLUMNS_MAX else f"more than {COLUMNS_MAX} columns"
        kind = _resolve(seen, name, left_out, 1) if not reason else None
        if kind is not None:
            columns.append(InferredColumn(name, kind, "" if seen.kinds else "it is null in all sampled records"))
        elif reason:
            left_out.append(LeftOut(name, reason))
    return Inference(tuple(columns), tuple(left_out), objects, others, tombstones)


def _decode(value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return None


def _scalar_kind(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        if _INTEGER_MIN <= value <= _INTEGER_MAX:
            return "bigint"
        if abs(value) < 10**MAX_PRECISION:
            return "decimal"
        return "double" if _is_finite(value) else _TOO_LARGE
    if isinstance(value, float):
        return "double"
    return _text_kind(value)


def _is_finite(value: int) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _text_kind(text: str) -> str:
    """Classifies a text by what the JSON reader accepts as a timestamp or a date."""
    if not _LIKE_A_DATE.match(text):
        return "string"
    try:
        read_moment(text)
    except OverflowError:
        return "string"
    except ValueError:
        pass
    else:
        return "timestamp"
    try:
        msgspec.convert(text, dt.date)
    except msgspec.ValidationError:
        return "string"
    return "date"


def _resolve(seen: _Seen, path: str, left_out: list[LeftOut], depth: int) -> DataType | None:
    """Returns the type of a place; None if it has none, with the reason added to `left_out`."""
    kinds = seen.kinds
    if not kinds:
        return STRING
    if kinds == {"array"} and seen.element is not None and depth < DEPTH_MAX:
        element = _resolve(seen.element, f"{path}[]", left_out, depth + 1)
        return None if element is None else DataType("array", element=element)
    if kinds == {"struct"} and depth < DEPTH_MAX:
        return _resolve_struct(seen, path, left_out, depth)
    if kinds <= {"bigint", "decimal", "double"}:
        whole = DataType("decimal", precision=seen.precision) if "decimal" in kinds else BIGINT
        return DOUBLE if "double" in kinds else whole
    if kinds <= {"string", *_MOMENTS}:
        (only,) = kinds if len(kinds) == 1 else ("string",)
        return _MOMENTS.get(only, STRING)
    if kinds == {"boolean"}:
        return BOOLEAN
    left_out.append(LeftOut(path, _reason(kinds)))
    return None


def _reason(kinds: set[str]) -> str:
    if len(kinds) > 1:
        return f"its type differs from record to record: {', '.join(sorted(kinds))}"
    return _TOO_LARGE if _TOO_LARGE in kinds else "it is nested too deeply"


def _resolve_struct(seen: _Seen, path: str, left_out: list[LeftOut], depth: int) -> DataType | None:
    if len(seen.fields) > FIELDS_MAX:
        left_out.append(LeftOut(path, f"it has {len(seen.fields)} different fields, so it is probably a map"))
        return None
    fields = tuple(_resolve_fields(seen, path, left_out, depth))
    if not fields:
        left_out.append(LeftOut(path, "it is an object without fields"))
        return None
    return DataType("struct", fields=fields)


def _resolve_fields(seen: _Seen, path: str, left_out: list[LeftOut], depth: int) -> Iterator[tuple[str, DataType]]:
    for name, below in seen.fields.items():
        reason = refused_field(name)
        if reason:
            left_out.append(LeftOut(f"{path}.{name}", reason))
            continue
        kind = _resolve(below, f"{path}.{name}", left_out, depth + 1)
        if kind is not None:
            yield name, kind


def refused_column(name: str) -> str:
    """Returns why a pipeline file does not accept a column name."""
    if is_reserved(name):
        return f"names that begin with `{RESERVED}` belong to Tidegate"
    return "its name is reserved for several columns" if is_pattern(name) else refused_field(name)


def refused_field(name: str) -> str:
    """Returns why a pipeline file does not accept the name of a field."""
    if not name:
        return "its name is empty"
    if len(name) > NAME_LENGTH_MAX:
        return f"its name has {len(name)} characters"
    if not name.isprintable() or any(each in '"\\`' for each in name):
        return "its name has a quote, a backslash or a control character"
    return ""
