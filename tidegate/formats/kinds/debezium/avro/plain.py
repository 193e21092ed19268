"""Events as people write them in tests: JSON objects with `op`, `before` and `after`. Pure.

An envelope has further fields, such as `source`. If they are left out, they get empty values, which are not read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidegate.datatypes import MAX_PRECISION
from tidegate.formats.kinds.avro.columns import record_columns
from tidegate.formats.kinds.avro.plain import PlainEncoder
from tidegate.formats.kinds.avro.schema import AvroType, parse_schema, with_logical
from tidegate.formats.kinds.debezium.avro.schemas import AFTER, BEFORE, meaning
from tidegate.formats.kinds.debezium.envelope import OP_FIELD
from tidegate.formats.kinds.debezium.json.schemas import NAMED, UNITS
from tidegate.formats.kinds.json.writer import record_of_json
from tidegate.formats.schema_ids import prefix_of
from tidegate.formats.schemas import FormatOptions, SchemaText

_EVENT: Final = frozenset({OP_FIELD, BEFORE, AFTER})
_UNITS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}
_NOTHING: Final[Mapping[str, Any]] = {
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0,
    "double": 0,
    "string": "",
    "bytes": "",
    "array": [],
    "map": {},
    "date": "1970-01-01",
    "decimal": 0,
    "local-timestamp": "1970-01-01T00:00:00",
    "timestamp": "1970-01-01T00:00:00Z",
}


def event_of_json(text: bytes, schema: SchemaText, options: FormatOptions) -> bytes:
    """Encodes an event. Raises FormatRefusal if a value does not fit the schema, and AvroRefusal."""
    record = parse_schema(schema, _written)
    event: Any = json.loads(text)
    if isinstance(event, dict):
        left_out = {field.name: _nothing(field.type) for field in record.fields if field.name not in _EVENT}
        text = json.dumps({**left_out, **event}).encode()
    columns = tuple(record_columns(record).items())
    return record_of_json(text, columns, PlainEncoder(record, prefix_of(options)))


def _written(made: AvroType, one: Mapping[str, Any]) -> AvroType:
    """Replaces the meaning of Connect's name by Avro's logical type if there is one: people write dates, not days."""
    named = meaning(made, one)
    if named.logical == "decimal":
        return msgspec.structs.replace(named, precision=min(named.precision, MAX_PRECISION))
    if made.kind == "long" and named.logical in UNITS:
        return msgspec.structs.replace(made, logical=f"local-timestamp-{_UNITS[UNITS[named.logical]]}")
    if made.kind == "int" and named.logical in NAMED:
        return msgspec.structs.replace(made, logical="date")
    return with_logical(made, one)


def _nothing(one: AvroType) -> Any:
    if one.kind == "union":
        first = one.branches[0]
        if any(each.kind == "null" for each in one.branches):
            return None
        return _nothing(first) if len(one.branches) == 1 else {"member0": _nothing(first)}
    if one.kind == "record":
        return {field.name: _nothing(field.type) for field in one.fields}
    if one.kind == "enum":
        return one.symbols[0]
    if one.kind == "fixed" and not one.logical:
        return base64.b64encode(bytes(one.size)).decode()
    return _NOTHING.get(one.logical.rpartition("-")[0] or one.logical, _NOTHING.get(one.kind))
