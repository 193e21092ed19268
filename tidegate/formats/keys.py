"""Names of record key formats in the pipeline file. `key_values.py` reads and writes these formats."""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import BINARY, STRING, DataType

TEXT: Final = "string"
JSON: Final = "json"
RAW: Final = "raw"
AVRO: Final = "avro"
"""Read and written by the code of the value format of the same name (`schema_keys.py`)."""
KEY_FORMATS: Final = (TEXT, JSON, RAW, AVRO)


def derive_key_type(key_format: str, declared: DataType | None) -> DataType | None:
    """Returns the type of a source's key column; None if it must be declared and is not."""
    return {TEXT: STRING, RAW: BINARY}.get(key_format, declared)


def can_fail(key_format: str) -> bool:
    """Returns whether a key can be invalid in this format."""
    return key_format != RAW
