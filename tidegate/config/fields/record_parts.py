"""Settings of the parts of a Kafka record besides its value: key, headers, partition, tombstones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Discriminator, Field, Tag

from tidegate.config.fields.base import Settings
from tidegate.config.fields.schemas import COLUMNS, NAMED, NamedSchema, form_of
from tidegate.config.fields.types import (
    Column,
    ColumnType,
    ExpressionText,
    ValueCheck,
    check_below,
    choice,
    refusal,
    require_text,
)
from tidegate.datatypes import DataType

ALL: Final = "all"
NONE: Final = "none"
_WORDS_REMEDY: Final = "write all, none, or a list of names: [trace, source]"


def _name(value: object) -> str:
    """Checks the name of a header: any text, even empty, that the Kafka client does not truncate."""
    name = "" if value == "" else require_text(value, "the name of a header")
    if "\0" in name:
        raise refusal("the name of the header has a NUL character", "remove it: the Kafka client ends the name there")
    return name


def _list(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise refusal("expected names of headers", "write [trace, source]")
    return tuple(dict.fromkeys(map(_name, items)))


def _passed(value: object) -> str | tuple[str, ...]:
    if isinstance(value, list):
        return _list(value)
    text = require_text(value, "all, none or a list of names", _WORDS_REMEDY)
    if text not in (ALL, NONE):
        raise refusal(f"`{text[:60]}` is not one of the choices", _WORDS_REMEDY)
    return text


def _renamed(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not value:
        raise refusal("expected a mapping of headers to their new names", "write {old: new}")
    return {_name(old): check_below(old, _name, new) for old, new in value.items()}


def _key_schema(value: object) -> DataType:
    """Parses a type, or the fields of an object."""
    kind: Any = ColumnType.__metadata__[0]  # type: ignore[attr-defined]  # of an Annotated
    name: Any = Column.__metadata__[0]  # type: ignore[attr-defined]  # of an Annotated
    if not isinstance(value, Mapping):
        found: DataType = kind.check(value)
        return found
    if not value:
        raise refusal("is empty", "name the fields of the key, for instance {id: bigint}")
    return DataType(
        "struct",
        fields=tuple((name.check(field), check_below(field, kind.check, text)) for field, text in value.items()),
    )


_NAMES_SCHEMA: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_TYPE_SCHEMA: Final = {"type": "string", "examples": ["bigint", "array<string>"]}

KeyType = Annotated[
    DataType,
    ValueCheck(
        _key_schema,
        {"anyOf": [_TYPE_SCHEMA, {"type": "object", "additionalProperties": _TYPE_SCHEMA, "minProperties": 1}]},
    ),
]
KeySchema = Annotated[Annotated[KeyType, Tag(COLUMNS)] | Annotated[NamedSchema, Tag(NAMED)], Discriminator(form_of)]
PassedHeaders = Annotated[
    str | tuple[str, ...], ValueCheck(_passed, {"anyOf": [{"type": "string", "enum": [ALL, NONE]}, _NAMES_SCHEMA]})
]
HeaderNames = Annotated[tuple[str, ...], ValueCheck(_list, {"anyOf": [{"type": "string"}, _NAMES_SCHEMA]})]
RenamedHeaders = Annotated[
    dict[str, str],
    ValueCheck(_renamed, {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
]


class MetadataSettings(Settings):
    """Columns of a source for the parts of its records other than the value: the name of a column for each part that is
    wanted. They are ordinary columns. A column that no step reads is not read from the records, except keys, headers
    and timestamps, which could be malformed.
    """

    key: Annotated[
        Column | None, Field(description="The record's key as `key_format` says; NULL if there is none.")
    ] = None
    headers: Annotated[
        Column | None,
        Field(
            description="`array<struct<key: string, value: binary>>`: all headers in their order, including "
            "repeated ones; the value may be NULL. A name that is not UTF-8 makes the record bad. The Kafka "
            "client cuts a name off at a NUL character."
        ),
    ] = None
    timestamp: Annotated[
        Column | None,
        Field(
            description="`timestamp`: of the record, whichever of Kafka's two it is. NULL if there is none; a "
            "negative number counts as none, because Kafka's clients write -1 for it. A timestamp after the year "
            "9999 makes the record bad. `event_time` may name it."
        ),
    ] = None
    partition: Annotated[Column | None, Field(description="`int`.")] = None
    offset: Annotated[Column | None, Field(description="`bigint`.")] = None
    topic: Annotated[Column | None, Field(description="`string`.")] = None

    @property
    def parts(self) -> dict[str, str]:
        """The requested parts -> the names of their columns."""
        found = {part: getattr(self, part) for part in type(self).model_fields}
        return {part: column for part, column in found.items() if column is not None}


class HeaderSettings(Settings):
    """Headers of the records that a sink writes: first those that are passed on, in their order, then those that are
    added, in theirs. Without this section none are written.
    """

    pass_: Annotated[
        PassedHeaders,
        Field(
            alias="pass",
            description="Headers of the source record that a row came from: `all`, `none`, or the names of "
            "some. Their order, repeated names and NULL values are kept. `all` leaves out `__value_schema_id` "
            "and `__key_schema_id` if the sink writes with another schema or none, unless `rename` has them. "
            "Refused after steps whose rows are made of several records.",
        ),
    ] = NONE
    drop: Annotated[HeaderNames, Field(description="Names of headers that are not passed on.")] = ()
    rename: Annotated[RenamedHeaders, Field(description="New names of headers that are passed on.")] = {}
    add: Annotated[
        dict[Annotated[str, ValueCheck(_name, {"type": "string"})], ExpressionText],
        Field(
            description="Headers by Spark SQL expressions over the columns that arrive, strings or binary; NULL "
            "is a header with a NULL value. A header of the same name that is passed on stays, unless `drop` has "
            "it."
        ),
    ] = {}


class TombstoneSettings(Settings):
    """Rows that a sink writes as tombstones: a key and a NULL value, which deletes the key in a compacted topic."""

    TITLE: ClassVar[str] = "Tombstones"
    column: Annotated[
        Column,
        Field(
            description="A boolean column: if it is true, the row is a tombstone. It is not part of the value. "
            "A tombstone without a key is a bad record."
        ),
    ]
    write: Annotated[str, choice("tombstone"), Field(description="How these rows are written.")] = "tombstone"
