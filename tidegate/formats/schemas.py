"""Schemas as texts: what a format's decoder and encoder know besides columns. Plain values, they travel in the plan.

A schema comes from a file beside the pipeline file or from a registry (`tidegate/registry/`), where it has an id that
records carry. The daemon alone talks to the registry; in a slot `Schemas` says what is known by now.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
from typing_extensions import override


class SchemaKind(StrEnum):
    """The languages that schemas are written in; upper case in a registry's answers."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class SchemaText(msgspec.Struct, frozen=True):
    """A schema in its own language, with all that it refers to."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, SchemaText], ...] = ()
    """What the text calls each, and what it is."""
    id: int = 0
    """Of the registry; 0: it has none, or none is known yet."""
    subject: str = ""
    """In the registry. Of a schema that was found by its id: empty."""
    version: int = 0
    message: str = ""
    """The full name of the message, where a schema has several: the one that a source reads, or a sink writes."""


def is_serialized(text: str) -> bool:
    """Whether the text of a Protobuf schema is the base64 of a descriptor; the other form is that of `.proto` files."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


class IdPlace(StrEnum):
    """Where a record says which schema it was written with."""

    PREFIX = "prefix"
    """In front of the value: a zero byte, then the id in four bytes (Confluent's wire format)."""
    HEADER = "header"
    """In a header of the record (`header_ids.py`); in front of the value where there is none."""
    NONE = "none"
    """Nowhere: all records have the schema that the pipeline file names."""


class Registration(StrEnum):
    """What a start does about the schema that a sink writes."""

    AUTO = "auto"
    """Registers it, unless the subject has it; what the registry refuses as incompatible refuses the start."""
    EXISTING = "existing"
    """The subject has to have it."""


class UnknownFields(StrEnum):
    """What becomes of a record with fields that the columns of its source do not name."""

    SKIP = "skip"
    """They are left out."""
    FAIL = "fail"
    """The record is bad."""
    KEEP = "keep"
    """They are in a column of their own."""


class FormatOptions(msgspec.Struct, frozen=True):
    """What the pipeline file says to a format besides columns."""

    schema: SchemaText | None = None
    """Of a source: the reader's. Of a sink: what is written."""
    ids: IdPlace = IdPlace.PREFIX
    unknown_fields: UnknownFields = UnknownFields.SKIP
    """Of a source of JSON."""
    rest: str = ""
    """The declared column that keeps them, a map of strings."""
    timestamps: str = ""  # "ms" | "us"
    """The unit of whole numbers that stand for timestamps, in a changelog; empty: they are refused."""
    timestamps_of: tuple[tuple[str, str], ...] = ()
    """The same by column, in place of that."""
    decimals: str = ""  # "text" | "base64"
    """What texts that stand for decimals are, in a changelog: `text` or `base64`; else only a record's schema knows."""
    row_kinds: bool = False
    """Rows of a changelog have their kind and, of updates, the row before (`row_kinds.py`). A change without it is
    bad."""

    def explains(self) -> dict[str, Any]:
        """The schema for `explain --format json`, and how values were written; nothing where the file says nothing."""
        written = {"timestamps": self.timestamps or dict(self.timestamps_of), "decimals": self.decimals}
        said = (
            {"written_as": {word: value for word, value in written.items() if value}} if any(written.values()) else {}
        )
        one = self.schema
        if one is None:
            return said
        found = {"kind": one.kind, "subject": one.subject, "version": one.version, "id": one.id, "text": one.text}
        return {"schema": found, "schema_id": self.ids, **said}

    def describes(self, register: Registration | None = None) -> list[str]:
        """The same as lines of text."""
        words = [f"{word} as {_in_words(text)}" for word, text in self.explains().get("written_as", {}).items()]
        written = [f"written: {', '.join(words)}"] if words else []
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


def _in_words(written: str | dict[str, str]) -> str:
    return (
        written
        if isinstance(written, str)
        else f"{{{', '.join(f'{column}: {unit}' for column, unit in written.items())}}}"
    )


NO_OPTIONS: Final = FormatOptions()


class UnknownSchema(Exception):
    """The registry has no schema of this id: the record is bad (`UNKNOWN_SCHEMA`)."""

    def __init__(self, schema_id: int | str) -> None:
        what = f"the GUID {schema_id}" if isinstance(schema_id, str) else f"the id {schema_id}"
        super().__init__(f"the registry has no schema with {what}")
        self.schema_id = schema_id


class Schemas(Protocol):
    """Schemas by id, or by the GUID that a header has, in a slot."""

    def get(self, schema_id: int | str, /) -> SchemaText | None:
        """At once. None: it was asked for, and is not there yet; the decoder answers WaitingForSchema.

        Raises UnknownSchema. A schema never changes, so what a decoder has made of one it may keep.
        """

    def refuse(self, schema_id: int | str, why: str, /) -> None:
        """The decoder cannot read what was written with a schema, and every such record is bad: people should know."""


class KnownSchemas(Schemas):
    """See Schemas. There are these and no others."""

    def __init__(self, schemas: Mapping[int, SchemaText] | None = None) -> None:
        self._schemas = dict(schemas or {})

    @override
    def get(self, schema_id: int | str, /) -> SchemaText | None:
        """Of none a GUID is known."""
        try:
            return self._schemas[schema_id]  # type: ignore[index]  # a GUID is no key
        except KeyError:
            raise UnknownSchema(schema_id) from None

    @override
    def refuse(self, _schema_id: int | str, _why: str, /) -> None:
        """There is nobody but those who see the bad records."""


def known_schemas(options: FormatOptions) -> KnownSchemas:
    """The one that the pipeline file names."""
    schema = options.schema
    return KnownSchemas({} if schema is None else {schema.id: schema})
