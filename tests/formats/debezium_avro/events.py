"""Events of one table in Avro, written and read by the format."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.formats.batches import messages_of
from tests.formats.debezium_avro.any_changes import CONNECT, TIME, VARIABLE, encode
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import is_reserved
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Decoded
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import (
    NO_OPTIONS,
    FormatOptions,
    KnownSchemas,
    SchemaKind,
    SchemaText,
)

FORMAT: Final = FORMATS["debezium-avro"]
KINDS: Final = FormatOptions(row_kinds=True)
TABLE: Final = {"id": "bigint", "name": "string"}


def envelope(fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """With a row of these fields, which may all be null; `more` is in place of fields of the event, None: left out."""
    row = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    event = {
        "before": ["null", {"type": "record", "name": "Value", "fields": row}],
        "after": ["null", "Value"],
        "source": {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]},
        "op": ["null", "string"],
    }
    found = [{"name": name, "type": kind} for name, kind in {**event, **more}.items() if kind is not None]
    return {"type": "record", "name": "Envelope", "namespace": "shop.public.t", "fields": found}


PLAIN: Final = envelope({"id": "long", "name": "string"})


def text_of(schema: Any, schema_id: int = 7) -> SchemaText:
    return SchemaText(SchemaKind.AVRO, json.dumps(schema), id=schema_id)


def event_of(op: str | None, before: Any = None, after: Any = None, schema: Any = PLAIN, schema_id: int = 7) -> bytes:
    """Rows have NULL where they have no value."""
    return encode(schema, {"source": {"db": "d"}, "op": op, "before": before, "after": after}, schema_id)


def decode(
    values: Sequence[bytes | None],
    table: Mapping[str, str] = TABLE,
    *read: str,
    schema: Any = PLAIN,
    options: FormatOptions = NO_OPTIONS,
    others: Mapping[int, Any] | None = None,
) -> Decoded:
    declared = tuple(FORMAT.read_columns({name: derive_type(kind) for name, kind in table.items()}).items())
    output = tuple(one for one in declared if one[0] in read) if read else declared
    known = KnownSchemas({number: text_of(one, number) for number, one in {7: schema, **(others or {})}.items()})
    found = FORMAT.decoder(declared, output, options, known).decode(messages_of(values))
    assert isinstance(found, Decoded)
    own = {name: kind for name, kind in found.frame.schema.items() if not is_reserved(name)}
    assert own == {name: polars_type(kind) for name, kind in output}
    return found


def reasons(found: Decoded) -> list[str]:
    return [str(one) for one in found.failures]


def value_of(written: Any, kind: str, value: Any, options: FormatOptions = NO_OPTIONS) -> Any:
    schema = envelope({"v": written})
    found = decode([event_of("c", None, {"v": value}, schema)], {"v": kind}, schema=schema, options=options)
    assert reasons(found) == []
    return found.frame["v"].to_list()[0]


def why(written: Any, kind: str, value: Any, options: FormatOptions = NO_OPTIONS) -> str:
    schema = envelope({"v": written})
    found = decode([event_of("c", None, {"v": value}, schema)], {"v": kind}, schema=schema, options=options)
    (reason,) = reasons(found)
    return reason


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


MICROS, NANOS, MILLIS = (named("long", f"{TIME}{one}Timestamp") for one in ("Micro", "Nano", ""))
ZONED = named("string", f"{TIME}ZonedTimestamp")
NUMBER: Final[dict[str, Any]] = {
    "type": "bytes",
    "logicalType": "decimal",
    "precision": 64,
    "scale": 2,
    "connect.name": f"{CONNECT}Decimal",
    "connect.parameters": {"scale": "2"},
}
OWN = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "connect.name": VARIABLE,
       "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
AT = dt.datetime(2024, 10, 4, 0, 0, 0, 1000)  # noqa: DTZ001 - without zone
UTC = AT.replace(tzinfo=dt.UTC)
