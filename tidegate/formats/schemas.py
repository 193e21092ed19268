"""Schemas as text: what a format's decoder and encoder need besides columns. Plain values, sent as part of the plan.

A schema comes from a file next to the pipeline file, or from a registry (`tidegate/registry/`), which assigns the id
that records carry. Only the daemon connects to the registry. In a slot, `Schemas` provides the schemas known so far.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
from typing_extensions import override


class SchemaKind(StrEnum):
    """Schema languages; upper case in a registry's answers."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class SchemaText(msgspec.Struct, frozen=True):
    """A schema in its own language, with everything that it refers to."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, SchemaText], ...] = ()
    """The name by which the text refers to each schema, and that schema."""
    id: int = 0
    """Id in the registry; 0 if it has none or it is not known yet."""
    subject: str = ""
    """Subject in the registry; empty for a schema that was found by its id."""
    version: int = 0
    message: str = ""
    """Full name of the message that a source reads or a sink writes, if the schema has several."""


def is_serialized(text: str) -> bool:
    """Returns whether the text of a Protobuf schema is a base64 descriptor rather than that of a `.proto` file."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


class IdPlace(StrEnum):
    """Where a record names the schema with which it was written."""

    PREFIX = "prefix"
    """In front of the value: a zero byte, then the id in four bytes (Confluent's wire format)."""
    HEADER = "header"
    """In a header of the record (`schema_ids.py`); in front of the value if there is no such header."""
    NONE = "none"
    """Nowhere: all records have the schema that the pipeline file names."""


class Registration(StrEnum):
    """How a start handles the schema that a sink writes."""

    AUTO = "auto"
    """Registers it unless the subject has it. If the registry rejects it as incompatible, the start fails."""
    EXISTING = "existing"
    """Requires that the subject already has it."""


class UnknownFields(StrEnum):
    """How fields are handled that have no column in their source."""

    SKIP = "skip"
    """They are skipped."""
    FAIL = "fail"
    """The record is bad."""
    KEEP = "keep"
    """They are kept in a column of their own."""


class FormatOptions(msgspec.Struct, frozen=True):
    """Options of a format in the pipeline file besides columns."""

    schema: SchemaText | None = None
    """The reader's schema of a source, or the schema that a sink writes."""
    ids: IdPlace = IdPlace.PREFIX
    unknown_fields: UnknownFields = UnknownFields.SKIP
    """For sources of JSON."""
    rest: str = ""
    """The declared column, a map of strings, that keeps such fields."""
    timestamps: str = ""  # "ms" | "us"
    """Unit of integers that stand for timestamps in a changelog; if empty, they are rejected."""
    timestamps_of: tuple[tuple[str, str], ...] = ()
    """Units by column; they take precedence over `timestamps`."""
    decimals: str = ""  # "text" | "base64"
    """How text stands for decimals in a changelog: `text` or `base64`. If empty, only a record's schema tells."""
    row_kinds: bool = False
    """Rows of a changelog have their kind and, for updates, the row before (`row_kinds.py`). An update without that row
    is bad.
    """
    settings: dict[str, Any] = {}
    """What the section with the format's name sets, as plain values. `contract.read_settings` restores the section."""
    columns: tuple[str, ...] = ()
    """The columns of a source, for `Format.from_plain`; decoders get them as arguments."""

    def describes(self, register: Registration | None = None) -> list[str]:
        """Returns schema, settings and how values were written as lines of text."""
        texts = {"timestamps": self.timestamps or dict(self.timestamps_of), "decimals": self.decimals}
        parts = [f"{part} as {_render_text(text)}" for part, text in texts.items() if text]
        written = [f"written: {', '.join(parts)}"] if parts else []
        set_ = [f"{name} {msgspec.json.encode(value).decode()}" for name, value in self.settings.items()]
        written += [f"format settings: {', '.join(set_)}"] if set_ else []
        one = self.schema
        if one is None:
            return written
        known = [f"version {one.version}"] if one.version else []
        known += [f"id {one.id}"] if one.id else []
        known += [f"register: {register}"] if register is not None else []
        return [
            ", ".join([f"schema of {one.subject or 'the file'}", *known]) + f": {one.message or one.text}",
            *written,
        ]


def _render_text(written: str | dict[str, str]) -> str:
    return (
        written
        if isinstance(written, str)
        else f"{{{', '.join(f'{column}: {unit}' for column, unit in written.items())}}}"
    )


NO_OPTIONS: Final = FormatOptions()


class UnknownSchema(Exception):
    """The registry has no schema with this id: the record is bad (`UNKNOWN_SCHEMA`)."""

    def __init__(self, schema_id: int | str) -> None:
        what = f"the GUID {schema_id}" if isinstance(schema_id, str) else f"the id {schema_id}"
        super().__init__(f"the registry has no schema with {what}")
        self.schema_id = schema_id


class Schemas(Protocol):
    """Schemas by id, or by the GUID from a header, in a slot."""

    def get(self, schema_id: int | str, /) -> SchemaText | None:
        """Returns a schema without blocking; None if it was requested and has not arrived yet.

        In that case, the decoder returns WaitingForSchema. A schema never changes, so a decoder may cache what it
        derives from it. Raises UnknownSchema.
        """

    def refuse(self, schema_id: int | str, why: str, /) -> None:
        """Reports that the decoder cannot read records of a schema, so that all of them are bad."""


class KnownSchemas(Schemas):
    """A fixed set of schemas."""

    def __init__(self, schemas: Mapping[int, SchemaText] | None = None) -> None:
        self._schemas = dict(schemas or {})

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        """Raises UnknownSchema for every GUID."""
        try:
            return self._schemas[schema_id]  # type: ignore[index]  # a GUID is not a key
        except KeyError:
            raise UnknownSchema(schema_id) from None

    @override
    def refuse(self, _schema_id: int | str, _why: str, /) -> None:
        """Does nothing: the bad records themselves are the only report."""


def known_schemas(options: FormatOptions) -> KnownSchemas:
    """Returns the schema that the pipeline file names."""
    schema = options.schema
    return KnownSchemas({} if schema is None else {schema.id: schema})
