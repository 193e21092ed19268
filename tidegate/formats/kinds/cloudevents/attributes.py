"""Attributes of events as columns: `ce_` and the attribute's name, as in headers of the Kafka binding. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.datatypes import BINARY, STRING, TIMESTAMP, DataType, Schema
from tidegate.formats.contract import FormatRefusal

PREFIX: Final = "ce_"
"""Of the names of columns and of headers."""
DATA: Final = "ce_data"
"""The column with the data of an event as a whole. No attribute may have the name `data`."""
CONTENT_TYPE: Final = "content-type"
"""The header with `datacontenttype` in binary mode, and with the media type of the event in structured mode."""
SPECVERSION: Final = "1.0"
REQUIRED: Final = ("id", "source", "specversion", "type")
CORE: Final[Mapping[str, DataType]] = {
    "id": STRING,
    "source": STRING,
    "type": STRING,
    "specversion": STRING,
    "subject": STRING,
    "time": TIMESTAMP,
    "datacontenttype": STRING,
    "dataschema": STRING,
}
"""The attributes that the specification defines."""
JSON_TYPE: Final = r"^\s*[^\s/;]+/([^\s/;]+\+)?(?i:json)\s*(;.*)?$"
"""A regular expression for most of the content types that `is_json` accepts, and no others."""
_NAME: Final = re.compile("[a-z0-9]+")
_EXTENSION_KINDS: Final = ("boolean", "tinyint", "smallint", "int", "string", "binary", "timestamp")
_DATA_TYPES: Final = (STRING, BINARY)
_MEDIA_TYPE: Final = re.compile(r"\s*[^\s/;]+/([^\s/;]+)\s*(?:;.*)?", re.DOTALL)


def attribute_of(column: str) -> str:
    """Returns the attribute that a column holds; empty for a column with a field of the data or with the data."""
    return column.removeprefix(PREFIX) if column.startswith(PREFIX) and column != DATA else ""


def attributes_of(columns: Iterable[str]) -> list[str]:
    """Returns the attributes among columns."""
    return [one for one in map(attribute_of, columns) if one]


def fields_of(columns: Schema) -> Schema:
    """Returns the columns with fields of the data."""
    return {name: kind for name, kind in columns.items() if not name.startswith(PREFIX)}


def check_columns(columns: Schema) -> None:
    """Raises FormatRefusal for columns that no event has."""
    for column, kind in columns.items():
        name = attribute_of(column)
        if name:
            _check_attribute(column, name, kind)
        elif column == DATA and kind not in _DATA_TYPES:
            raise FormatRefusal(f"`{DATA}` is {kind}, but it holds the data of an event", "make it string or binary")
    fields = fields_of(columns)
    if DATA in columns and fields:
        one = next(iter(fields))
        raise FormatRefusal(
            f"`{DATA}` is all the data of an event, but `{one}` is a field of it", f"keep the fields or `{DATA}`"
        )


def _check_attribute(column: str, name: str, kind: DataType) -> None:
    if not _NAME.fullmatch(name):
        raise FormatRefusal(
            f"`{column}` is not an attribute of an event: their names have only lower-case letters and digits",
            f"rename it; columns that begin with `{PREFIX}` are attributes",
        )
    expected = CORE.get(name)
    if expected is not None and kind != expected:
        raise FormatRefusal(f"`{column}` is {kind}, but the attribute is {expected}", f"make it {expected}")
    if kind.kind not in _EXTENSION_KINDS:
        remedy = "use boolean, int, string, binary or timestamp"
        raise FormatRefusal(f"`{column}` is {kind}, which is not a type of attributes", remedy)


def is_media_type(text: str) -> bool:
    """Returns whether a text can be a `datacontenttype`."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def is_json(content_type: str) -> bool:
    """Returns whether a content type is that of JSON."""
    found = _MEDIA_TYPE.fullmatch(content_type)
    subtype = "" if found is None else found[1].lower()
    return subtype == "json" or subtype.endswith("+json")
