"""Formats of record keys, by the words of the pipeline file. What reads and writes them is in `key_values.py`."""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import BINARY, STRING, DataType

TEXT: Final = "string"
JSON: Final = "json"
RAW: Final = "raw"
AVRO: Final = "avro"
"""As the format of values of that name, by whose code it is read and written (`schema_keys.py`)."""
KEY_FORMATS: Final = (TEXT, JSON, RAW, AVRO)


def derive_key_type(key_format: str, declared: DataType | None) -> DataType | None:
    """The column of a source that holds keys of a format; None where it has to be declared and is not."""
    return {TEXT: STRING, RAW: BINARY}.get(key_format, declared)


def can_fail(key_format: str) -> bool:
    """Whether there are keys that are none of the format."""
    return key_format != RAW
