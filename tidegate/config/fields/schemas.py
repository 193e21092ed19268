"""Settings of schemas: where a source's comes from, how a sink's is registered, and the registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Discriminator, Field, SecretStr, Tag

from tidegate.config.fields.base import Settings
from tidegate.config.fields.columns import TypeProblem, derive_type
from tidegate.config.fields.types import (
    Column,
    ColumnType,
    File,
    StepName,
    ValueCheck,
    check_address,
    choice,
    describe_value,
    duration,
    refusal,
    refusal_of_flag,
    require_text,
)

COLUMNS: Final = "<columns>"
NAMED: Final = "<named>"
"""Tags of the two forms of a source's `schema` in pydantic's paths; they do not occur in a file."""
LATEST: Final = "latest"

_TEXT: Final = {"type": "string"}
_MESSAGE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SUBJECT = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
_NAMING: Final = ("file", "registry")
_WORDS: Final = frozenset({*_NAMING, "version", "message"})


def _schema_file(value: object) -> str:
    text = require_text(value, "a file", "for instance order.avsc, next to the pipeline file")
    if "\0" in text:
        raise refusal(f"{text[:60]!r} is not a file", "for instance order.avsc, next to the pipeline file")
    return text


def _subject(value: object) -> str:
    text = require_text(value, "a subject of the registry", "for instance orders-value")
    if not _SUBJECT.fullmatch(text):
        raise refusal(f"{text[:60]!r} is not a subject", "for instance orders-value")
    return text


def _message(value: object) -> str:
    text = require_text(value, "the full name of a message", "for instance shop.Order")
    if not _MESSAGE.fullmatch(text):
        raise refusal(f"{text[:60]!r} is not the full name of a message", "for instance shop.Order")
    return text


def _version(value: object) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31:
        return int(value)
    if value == LATEST:
        return LATEST
    raise refusal(f"{describe_value(value)} is not a version", "use latest, or a number from 1 on")


def _url(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    if not items:
        raise refusal("the list is empty", "name at least one")
    login_remedy = "write `username` and `password` next to `url`"
    return tuple(check_address(item, "http://registry:8081", login_remedy) for item in items)


def _user(value: object) -> str:
    return require_text(value, "the name of a user")


def _secret(value: object) -> SecretStr:
    if isinstance(value, SecretStr):
        text = value.get_secret_value().strip()
    elif isinstance(value, bool):
        raise refusal_of_flag()
    else:
        text = str(value) if isinstance(value, int | float) else require_text(value, "a secret")
    if not text or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise refusal("the secret is empty, or has a control character", "one line of text")
    return SecretStr(text)


SchemaFile = Annotated[str, ValueCheck(_schema_file, _TEXT)]
SchemaMessage = Annotated[str, ValueCheck(_message, _TEXT)]
Subject = Annotated[str, ValueCheck(_subject, _TEXT)]
Version = Annotated[str | int, ValueCheck(_version, {"anyOf": [{"const": LATEST}, {"type": "integer", "minimum": 1}]})]
SchemaId = Annotated[str, choice("prefix", "header", "none")]
WrittenSchemaId = Annotated[
    SchemaId, Field(description="As for a source: where records have their schema's id; `header` writes the id.")
]
Urls = Annotated[
    tuple[str, ...],
    ValueCheck(_url, {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}], "examples": ["http://registry:8081"]}),
]
Secret = Annotated[SecretStr, ValueCheck(_secret, {"type": ["string", "number"]})]
Secrets = Annotated[
    dict[StepName, Secret],
    Field(description="Keys for `aes_encrypt` and `aes_decrypt`, named there by `secret('name')`: `${file:...}`."),
]


class NamedSchema(Settings):
    """Instead of columns: a schema in the language of the format, from a `file` or the `registry`. Its fields are the
    columns. A mapping of these keys whose value is the name of a type is columns: `{file: string}` is one column.
    """

    TITLE: ClassVar[str] = "Schemas of sources"
    file: Annotated[SchemaFile | None, Field(description="File with the schema, relative to the pipeline file.")] = None
    registry: Annotated[Subject | None, Field(description="Subject of the registry that has the schema.")] = None
    version: Annotated[
        Version,
        Field(
            description="Version of the subject: a number, or `latest`, which is looked up at every start. "
            "Records that were written with other versions are converted by the rules of the format."
        ),
    ] = LATEST
    message: Annotated[
        SchemaMessage | None,
        Field(
            description="The message of a Protobuf schema, by its full name (`shop.Order`); default: the first one of "
            "its file."
        ),
    ] = None


def form_of(value: object) -> str:
    """Returns the form of a schema: columns, or a reference."""
    if isinstance(value, NamedSchema):
        return NAMED
    if not isinstance(value, Mapping) or not set(value) <= _WORDS:
        return COLUMNS
    naming = [value[key] for key in _NAMING if key in value]
    return NAMED if naming and not any(map(_is_type, naming)) else COLUMNS


def _is_type(value: Any) -> bool:
    try:
        derive_type(require_text(value, "a type"))
    except (TypeProblem, ValueError):  # pydantic's errors are ValueErrors
        return False
    return True


SourceSchema = Annotated[
    Annotated[dict[Column, ColumnType], Field(min_length=1), Tag(COLUMNS)] | Annotated[NamedSchema, Tag(NAMED)],
    Discriminator(form_of),
]


class WrittenSchema(Settings):
    """The schema that a sink's records are written with, for formats with schemas. By default it is made of the
    columns and registered, under the name of the topic and `-value`.
    """

    TITLE: ClassVar[str] = "Schemas of sinks"
    file: Annotated[
        SchemaFile | None,
        Field(description="File with the schema, relative to the pipeline file. The columns have to fit."),
    ] = None
    registry: Annotated[
        Subject | None,
        Field(
            description="Subject of the registry. With `register: existing` and no `file`, records are written "
            "with its schema, and the columns have to fit."
        ),
    ] = None
    version: Annotated[
        Version, Field(description="Version of the subject, with `register: existing` and no `file`.")
    ] = LATEST
    message: Annotated[
        SchemaMessage | None,
        Field(description="The message of a Protobuf schema, as for a source."),
    ] = None
    register_: Annotated[
        str,
        choice("auto", "existing"),
        Field(
            alias="register",
            description="`auto`: a start registers the schema if the subject does not have it; `existing`: the "
            "subject must have it. In both cases a start is refused if the registry refuses.",
        ),
    ] = "auto"
    subject: Annotated[
        str,
        choice("topic", "record", "topic-record"),
        Field(
            description="Name of the subject if `registry` does not set it: `<topic>-value`, the full name of "
            "the record, or both with `-` between them. For a sink with `topic.expression` only `record`."
        ),
    ] = "topic"


class RegistrySettings(Settings):
    """The schema registry: Confluent's, or another with the same REST interface. The daemon alone talks to it."""

    url: Annotated[
        Urls, Field(description="Its address; a list names several addresses of one registry, which are tried in turn.")
    ]
    username: Annotated[
        str | None, ValueCheck(_user, _TEXT), Field(description="For basic authentication; with `password`.")
    ] = None
    password: Annotated[Secret | None, Field(description="Best as `${file:...}`.")] = None
    token: Annotated[Secret | None, Field(description="A bearer token, instead of user and password.")] = None
    ca: Annotated[File | None, Field(description="Certificates to trust, in PEM; default: those of the machine.")] = (
        None
    )
    certificate: Annotated[
        File | None, Field(description="Certificate of the daemon as a client, in PEM; with `key`.")
    ] = None
    key: Annotated[File | None, Field(description="Key of `certificate`, in PEM, without a password.")] = None
    timeout_ms: Annotated[
        int, duration("100ms", "5m"), Field(alias="timeout", description="Timeout of one request.")
    ] = 10_000
