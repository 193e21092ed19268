"""The registry's interface in terms of schemas: read by id or by subject and version, look up, check and register.

A schema includes everything that it refers to. A schema that was read by id is cached in memory, since ids are never
reassigned, and as a copy on disk: for starts while the registry is unavailable, and for checking a file without it.
Copies are read only if the registry is not used or does not answer, since a registry that was set up again assigns old
ids to new schemas. A copy that cannot be read counts as missing. Failure to write one is not an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
from collections import OrderedDict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import SchemaKind, SchemaText, is_serialized
from tidegate.registry.transport import RegistryPathMissing, RegistryRefused, SchemaIncompatible, SchemaMissing
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal, unseal

if TYPE_CHECKING:
    from tidegate.registry.transport import Transport

SCHEMA_BYTES_MAX: Final = 1 << 20
REFERENCES_MAX: Final = 200
"""Maximum number of references of a schema, including those of its references, each counted once."""
KNOWN_MAX: Final = 10_000

_PROTOBUF: Final = "PROTOBUF"

T = TypeVar("T")


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: list[_Reference] | None = None
    id: int = 0
    version: int = 0


class _Registered(msgspec.Struct):
    id: int


class _Compatible(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class SchemaRegistry:
    """The registry in terms of schemas. Used as an async context manager, in one event loop.

    All methods that send requests raise RegistryUnavailable and RegistryRefused.
    """

    def __init__(self, transport: Transport, copies: SchemaCopies) -> None:
        self._transport = transport
        self._copies = copies
        self._known: OrderedDict[int | str, SchemaText] = OrderedDict()

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, trace)

    async def ping(self) -> None:
        """Returns when the registry answers."""
        await self._ask("GET", "/schemas/types", list[str])

    async def read(self, schema_id: int | str) -> SchemaText:
        """Reads the schema of an id, or of a GUID, which not every registry supports. Raises SchemaMissing."""
        if schema_id not in self._known:
            of_guid = isinstance(schema_id, str)
            found = await self._read(f"/schemas/{'guids' if of_guid else 'ids'}/{schema_id}")
            schema = await self._compile(await self._whole(found, {}))
            if isinstance(schema_id, int):
                schema = msgspec.structs.replace(schema, id=schema_id)
            self._copies.keep(schema_id, schema)
            self._remember(schema_id, schema)
        return self._known[schema_id]

    async def read_version(self, subject: str, version: str | int) -> SchemaText:
        """Reads a version of a subject, possibly `latest`. Raises SchemaMissing."""
        found = await self._read(f"{_subject(subject)}/versions/{version}")
        schema = msgspec.structs.replace(await self._compile(await self._whole(found, {})), id=found.id)
        if found.id:
            self._copies.keep(found.id, schema)
        schema = msgspec.structs.replace(schema, subject=subject, version=found.version)
        self._copies.keep_version(subject, version, schema)
        return schema

    async def look_up(self, subject: str, schema: SchemaText) -> SchemaText:
        """Returns a schema with its id and version in a subject. Raises SchemaMissing if the subject lacks it."""
        found = await self._ask("POST", f"{_subject(subject)}?normalize=true", _Schema, _request(schema))
        return msgspec.structs.replace(schema, id=found.id, subject=subject, version=found.version)

    async def register(self, subject: str, schema: SchemaText) -> SchemaText:
        """Registers a schema and returns it with its id.

        Nothing changes if the subject already has it. Raises SchemaIncompatible.
        """
        path = f"{_subject(subject)}/versions?normalize=true"
        registered = await self._ask("POST", path, _Registered, _request(schema))
        return msgspec.structs.replace(schema, id=registered.id, subject=subject)

    async def check(self, subject: str, schema: SchemaText) -> None:
        """Checks that a subject accepts a schema. Raises SchemaIncompatible with the registry's message."""
        path, body = f"/compatibility{_subject(subject)}/versions", _request(schema)
        try:
            try:
                found = await self._ask("POST", f"{path}?verbose=true", _Compatible, body)
            except RegistryPathMissing:  # Redpanda and Karapace only compare with a named version
                found = await self._ask("POST", f"{path}/latest?verbose=true", _Compatible, body)
        except SchemaMissing:  # a new subject accepts anything
            return
        if not found.is_compatible:
            reasons = "; ".join(found.messages or ()) or "without a reason"
            raise SchemaIncompatible(f"the schema is not compatible with those of `{subject}`: {reasons}")

    def copy(self, schema_id: int | str) -> SchemaText | None:
        """Returns the copy on disk of a schema that was read by its id."""
        return self._copies.of_id(schema_id)

    def copy_of_version(self, subject: str, version: str | int) -> SchemaText | None:
        """Returns the copy on disk of a schema that was read by subject and version."""
        return self._copies.of_version(subject, version)

    def keep_text(self, subject: str, schema: SchemaText, found: SchemaText) -> None:
        """Stores the schema that the registry has returned for a text; `found` has an id."""
        self._copies.keep_version(subject, _text_name(schema), found)

    def copy_of_text(self, subject: str, schema: SchemaText) -> SchemaText | None:
        """Returns a schema with the id that it once had in a subject; it keeps its own message."""
        copy = self._copies.of_version(subject, _text_name(schema))
        if copy is None:
            return None
        return msgspec.structs.replace(schema, id=copy.id, subject=subject, version=copy.version)

    async def _read(self, path: str) -> _Schema:
        """Reads a schema; for Protobuf the descriptor, if the registry has one or can derive it from the text."""
        found = await self._ask("GET", path, _Schema)
        if found.schemaType != _PROTOBUF or is_serialized(found.schema):
            return found
        return await self._ask("GET", f"{path}?format=serialized", _Schema)

    async def _compile(self, schema: SchemaText) -> SchemaText:
        """Compiles the text of a `.proto` file, if the registry has no descriptor of it."""
        if schema.kind is not SchemaKind.PROTOBUF or is_serialized(schema.text):
            return schema
        return await asyncio.to_thread(FORMATS["protobuf"].compile_schema, schema)

    def _remember(self, schema_id: int | str, schema: SchemaText) -> None:
        self._known[schema_id] = schema
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def _whole(
        self, found: _Schema, read: dict[_Reference, SchemaText], above: tuple[_Reference, ...] = ()
    ) -> SchemaText:
        """Returns a schema with its references.

        A schema to which several others refer includes its own references only at the first occurrence, and is repeated
        only if the outermost schema refers to it.

        :param read: all schemas read for the outermost one so far.
        :param above: the references that lead to this schema.
        """
        try:
            kind = SchemaKind(found.schemaType.lower())
        except ValueError:
            raise RegistryRefused(f"the registry has a schema of the type {found.schemaType[:60]!r}") from None
        if len(found.schema) > SCHEMA_BYTES_MAX:
            raise RegistryRefused(f"a schema has more than {SCHEMA_BYTES_MAX >> 10} KiB")
        references = []
        for one in dict.fromkeys(found.references or ()):
            if any((one.subject, one.version) == (other.subject, other.version) for other in above):
                raise RegistryRefused(f"the schema `{one.subject}` version {one.version} references itself")
            if one in read:
                if not above:
                    references.append((one.name, read[one]))
                continue
            if len(read) + len(above) >= REFERENCES_MAX:
                raise RegistryRefused(f"a schema has more than {REFERENCES_MAX} references")
            whole = await self._whole(await self._read_reference(one), read, (*above, one))
            whole = msgspec.structs.replace(whole, subject=one.subject, version=one.version)
            references.append((one.name, whole))
            read[one] = msgspec.structs.replace(whole, references=())
        return SchemaText(kind, found.schema, tuple(references))

    async def _read_reference(self, one: _Reference) -> _Schema:
        try:
            return await self._read(f"{_subject(one.subject)}/versions/{one.version}")
        except SchemaMissing as missing:  # the referring schema exists
            what = f"a schema references `{one.subject}` version {one.version}, which the registry does not have"
            raise RegistryRefused(f"{what}: {missing.message}", error_code=missing.error_code) from missing

    async def _ask(self, method: str, path: str, kind: type[T], body: Any = None) -> T:
        answer = await self._transport.ask(method, path, body)
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNDECODABLE as error:
            shown = answer[:80].decode(errors="replace")
            raise RegistryRefused(
                f"the server is not a schema registry: {path.partition('?')[0]} is {shown!r}",
                remedy="is `url` complete? Some registries serve this interface below a path",
            ) from error


def _text_name(schema: SchemaText) -> str:
    return f"text-{hashlib.sha256(schema.text.encode()).hexdigest()}"


def _subject(name: str) -> str:
    return f"/subjects/{quote(name, safe='')}"


def _request(schema: SchemaText) -> dict[str, Any]:
    for name, one in schema.references:
        if not one.subject:
            remedy = "register it after its imports, and name its subject with `register: existing`"
            raise RegistryRefused(f"the schema imports `{name}`, whose subject is unknown", remedy=remedy)
    references = [{"name": name, "subject": one.subject, "version": one.version} for name, one in schema.references]
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind.upper()}
    return {**body, "references": references} if references else body


logger = logging.getLogger(__name__)

_DIGEST_CHARACTERS: Final = 32


class SchemaCopies:
    """Copies of one registry, identified by its (first) address. Files are written atomically."""

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory / _digest(address)

    def of_id(self, schema_id: int | str) -> SchemaText | None:
        """Returns the schema that the registry once returned for an id."""
        return self._read(f"id-{schema_id}")

    def of_version(self, subject: str, version: str | int) -> SchemaText | None:
        """Returns the schema that the registry once returned for a version; `latest` is the one that was the latest
        then.
        """
        return self._read(_version_name(subject, version))

    def keep(self, schema_id: int | str, schema: SchemaText) -> None:
        """Stores a schema under its id or GUID."""
        self._write(f"id-{schema_id}", schema)

    def keep_version(self, subject: str, version: str | int, schema: SchemaText) -> None:
        """Stores a schema under its subject and version, which may be `latest`."""
        self._write(_version_name(subject, version), schema)

    def _read(self, name: str) -> SchemaText | None:
        path = self._directory / name
        try:
            return msgspec.json.decode(unseal(name, path.read_bytes()), type=SchemaText)
        except FileNotFoundError:
            return None
        except (OSError, ObjectCorrupt, *UNDECODABLE) as error:
            logger.warning("the copy of a schema in %s cannot be used: %s", path, error)
            return None

    def _write(self, name: str, schema: SchemaText) -> None:
        data = seal(msgspec.json.encode(schema))
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(dir=self._directory, prefix=".new-") as work:
                new = Path(work) / name
                new.write_bytes(data)
                new.replace(self._directory / name)
        except OSError as error:
            logger.warning("no copy of a schema could be written to %s: %s", self._directory, error)


def _version_name(subject: str, version: str | int) -> str:
    return f"version-{_digest(subject)}-{version}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
