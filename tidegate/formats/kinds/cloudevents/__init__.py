"""The format of CloudEvents 1.0 with the Kafka protocol binding, in binary and in structured mode (ADR 84).

`attributes.py` has the columns, `reader.py` the rules of reading, `writer.py` those of writing.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import ValueCheck, choice, refusal, require_text
from tidegate.datatypes import STRING, Schema
from tidegate.formats.contract import Columns, Decoder, Encoder, Format, FormatRefusal, read_settings
from tidegate.formats.kinds.cloudevents.attributes import (
    CONTENT_TYPE,
    CORE,
    PREFIX,
    REQUIRED,
    SPECVERSION,
    attributes_of,
    check_columns,
)
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, Schemas

BINARY_MODE: Final = "binary"
STRUCTURED_MODE: Final = "structured"


def _check_constants(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not value:
        raise refusal("expected attributes and their values", "write {type: com.acme.order, source: /orders}")
    return {
        require_text(name, "the name of an attribute"): require_text(text, "a text") for name, text in value.items()
    }


Constants = Annotated[
    dict[str, str], ValueCheck(_check_constants, {"type": "object", "additionalProperties": {"type": "string"}})
]


class SinkSection(Settings):
    """How events are written."""

    mode: Annotated[
        str,
        choice(BINARY_MODE, STRUCTURED_MODE),
        Field(
            description="`binary`: attributes are headers, and the value is the data; `structured`: the value is one "
            "JSON object of attributes and data."
        ),
    ] = BINARY_MODE
    attributes: Annotated[
        Constants,
        Field(description="Attributes that are the same in all events: `{type: com.acme.order, source: /orders}`."),
    ] = {}


class CloudEventsFormat(Format):
    """Events whose data is JSON, or anything else as a whole."""

    name = "cloudevents"
    writes = "an event: columns `ce_...` are its attributes, the others are the fields of its data"
    finds_unknown_fields = True
    sink_settings: ClassVar[type[Settings]] = SinkSection
    page = """\
Records are [CloudEvents](https://cloudevents.io) 1.0 in the Kafka protocol binding. A column whose name begins with
`ce_` is an attribute: every source has `ce_id`, `ce_source`, `ce_type`, `ce_specversion`, `ce_subject`,
`ce_datacontenttype` and `ce_dataschema`, which are strings, and `ce_time`, a timestamp. Extension attributes are
declared in `schema`, such as `ce_traceparent: string`; they are boolean, integers up to int, string, binary or
timestamp. All other columns of `schema` are fields of the data, which is read like a record of [json](json.md),
with `unknown_fields`. Instead of fields, `ce_data` holds the data as a whole, whatever it is: `ce_data: binary`, or
`ce_data: string` if it is text in UTF-8. Without either the data is not read.

The mode is found for each record. If its header `content-type` begins with `application/cloudevents`, it is
structured: the value is a JSON object of the attributes and `data` or `data_base64`. The same applies to a record
without that header and without headers that begin with `ce_`. Otherwise it is binary: attributes are the headers
`ce_id`, `ce_time` and so on, in UTF-8, the header `content-type` is `ce_datacontenttype`, and the value is the data. An
event in binary mode may have no value; then it has no data, and its fields are NULL. A record without value is a bad
record otherwise, unless `on_null` of the source says otherwise.

A record is bad (`INVALID_EVENT`) if `id`, `source`, `specversion` or `type` is missing, or any attribute is empty; if
`specversion` is not 1.0; if `time` is not RFC 3339, with offset; if `datacontenttype` is not a media type; if an
extension does not have its type; if an event has both `data` and `data_base64`; and if the source has fields, and the
`datacontenttype` is not one of JSON. Batches (`application/cloudevents-batch`) and formats of structured events other
than JSON are also bad records. Undeclared extensions are ignored.

A sink needs the attributes `id`, `source` and `type`, as columns or in `attributes`; `specversion` is 1.0. A NULL is an
attribute that the event does not have. `ce_id` must be a column: events are written once, so their ids may not be
random. If no column of yours identifies an event, make one of the place of its record: `metadata: {topic: t,
partition: p, offset: o}` in the source, and `ce_id: concat_ws('-', t, p, o)` in a `select`. The data is the object of
the other columns, `application/json` unless `ce_datacontenttype` is set; or `ce_data`, which in binary mode is the
value, so that NULL is a tombstone.

```yaml
sources:
  orders:
    topic: orders
    format: cloudevents
    schema: {order: bigint, amount: "decimal(10,2)", ce_partitionkey: string}
    event_time: ce_time
steps:
  - name: priced
    from: orders
    select: {ce_id: ce_id, ce_time: ce_time, ce_partitionkey: ce_partitionkey, order: order, net: amount * 0.8}
sinks:
  copy:
    from: priced
    topic: priced
    format: cloudevents
    cloudevents: {mode: structured, attributes: {type: com.acme.priced, source: /shop/prices}}
    key: ce_partitionkey
```

In structured mode, `ce_data` in binary is written as `data_base64`. As a string it is a text, or, if
`datacontenttype` is not set or is one of JSON, a JSON text. A row whose event would be invalid is a bad record
(`INVALID_EVENT`). The record key is that of `key`, as in every format: `partitionkey` is just an attribute, and becomes
the key with `key: ce_partitionkey`. A sink does not pass on headers that it writes itself (`headers` of the sink).
"""

    @override
    def read_columns(self, declared: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        check_columns(declared)
        return {f"{PREFIX}{name}": kind for name, kind in CORE.items()} | dict(declared)

    @override
    def written_columns(self, columns: Schema, options: FormatOptions = NO_OPTIONS) -> Schema:
        check_columns(columns)
        constants = read_settings(SinkSection, options).attributes
        self._check_constants(columns, constants)
        for name in REQUIRED:
            if f"{PREFIX}{name}" not in columns and name not in constants and name != "specversion":
                remedy = f"add the column `{PREFIX}{name}`, or set it in `cloudevents: {{attributes: ...}}`"
                if name == "id":
                    remedy = (
                        "add the column `ce_id`, for instance concat_ws('-', topic, partition, offset) of `metadata`"
                    )
                raise FormatRefusal(
                    f"events need the attribute `{name}`, but there is no column `{PREFIX}{name}`", remedy
                )
        return columns

    def _check_constants(self, columns: Schema, constants: dict[str, str]) -> None:
        try:
            check_columns({f"{PREFIX}{name}": CORE.get(name, STRING) for name in constants})
        except FormatRefusal as refusal:
            raise FormatRefusal(refusal.message, refusal.remedy, "attributes") from refusal
        for name, text in constants.items():
            message = remedy = ""
            if f"{PREFIX}{name}" in columns:
                message, remedy = f"there is also a column `{PREFIX}{name}`", "keep one of them"
            elif name in ("id", "time"):
                message, remedy = f"`{name}` differs from event to event", f"make it a column, `{PREFIX}{name}`"
            elif name == "specversion" and text != SPECVERSION:
                message, remedy = f"`specversion` is {text!r}", f"remove it: events are written in {SPECVERSION}"
            if message:
                raise FormatRefusal(message, remedy, "attributes")

    @override
    def written_headers(self, columns: Schema, options: FormatOptions) -> tuple[str, ...]:
        constants = read_settings(SinkSection, options).attributes
        names = dict.fromkeys([*CORE, *attributes_of(columns), *constants])
        return (*(f"{PREFIX}{name}" for name in names), CONTENT_TYPE)

    @override
    def from_plain(self, value: Any, options: FormatOptions = NO_OPTIONS) -> bytes:
        """Encodes the value as JSON: the data of an event whose attributes are headers, or a structured event."""
        return super().from_plain(value, options)

    @override
    def decoder(self, declared: Columns, output: Columns, options: FormatOptions, schemas: Schemas) -> Decoder:
        from tidegate.formats.kinds.cloudevents.reader import EventDecoder

        return EventDecoder(declared, output, options)

    @override
    def encoder(self, columns: Columns, options: FormatOptions) -> Encoder:
        from tidegate.formats.kinds.cloudevents.writer import make_encoder

        settings = read_settings(SinkSection, options)
        return make_encoder(columns, settings.attributes, structured=settings.mode == STRUCTURED_MODE)


FORMAT: Final = CloudEventsFormat()
