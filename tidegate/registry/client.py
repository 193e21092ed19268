"""The registry's interface as schemas: by id, by subject and version, looked up, tried and registered.

A schema comes with everything that it refers to. What was read by an id is kept in memory, since an id never changes,
and as a copy on disk (`cache.py`).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.parse import quote

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.formats.schemas import SchemaKind, SchemaText, is_serialized
from tidegate.registry.cache import SchemaCopies
from tidegate.registry.errors import RegistryPathMissing, RegistryRefused, SchemaIncompatible, SchemaMissing

if TYPE_CHECKING:
    from tidegate.registry.transport import Transport

SCHEMA_BYTES_MAX: Final = 1 << 20
REFERENCES_MAX: Final = 200
"""Of a schema, those of its references included, each once."""
KNOWN_MAX: Final = 10_000

_PROTOBUF: Final = "PROTOBUF"

T = TypeVar("T")


class _Reference(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int


class _Schema(msgspec.Struct):
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's word
    references: list[_Reference] | None = None
    id: int = 0
    version: int = 0


class _Registered(msgspec.Struct):
    id: int


class _Compatible(msgspec.Struct):
    is_compatible: bool
    messages: list[str] | None = None


class SchemaRegistry:
    """See the module. To be entered before it is used; belongs to one event loop. All methods raise RegistryUnavailable
    and RegistryRefused.
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
        """Returns when it answers."""
        await self._ask("GET", "/schemas/types", list[str])

    async def read(self, schema_id: int | str) -> SchemaText:
        """The schema of an id, or of a GUID, which not every registry knows. Raises SchemaMissing."""
        if schema_id not in self._known:
            of_guid = isinstance(schema_id, str)
            found = await self._read(f"/schemas/{'guids' if of_guid else 'ids'}/{schema_id}")
            schema = await self._whole(found, {})
            if isinstance(schema_id, int):
                schema = msgspec.structs.replace(schema, id=schema_id)
            self._copies.keep(schema_id, schema)
            self._remember(schema_id, schema)
        return self._known[schema_id]

    async def read_version(self, subject: str, version: str | int) -> SchemaText:
        """A version of a subject; `latest` is one, too. Raises SchemaMissing."""
        found = await self._read(f"{_subject(subject)}/versions/{version}")
        schema = msgspec.structs.replace(await self._whole(found, {}), id=found.id)
        if found.id:
            self._copies.keep(found.id, schema)
        schema = msgspec.structs.replace(schema, subject=subject, version=found.version)
        self._copies.keep_version(subject, version, schema)
        return schema

    async def look_up(self, subject: str, schema: SchemaText) -> SchemaText:
        """The same schema with its id and version in a subject. Raises SchemaMissing where that does not have it."""
        found = await self._ask("POST", f"{_subject(subject)}?normalize=true", _Schema, _request(schema))
        return msgspec.structs.replace(schema, id=found.id, subject=subject, version=found.version)

    async def register(self, subject: str, schema: SchemaText) -> SchemaText:
        """The same schema with its id; nothing changes where the subject has it. Raises SchemaIncompatible."""
        path = f"{_subject(subject)}/versions?normalize=true"
        registered = await self._ask("POST", path, _Registered, _request(schema))
        return msgspec.structs.replace(schema, id=registered.id, subject=subject)

    async def check(self, subject: str, schema: SchemaText) -> None:
        """Whether a subject would take a schema. Raises SchemaIncompatible with the registry's words."""
        path, body = f"/compatibility{_subject(subject)}/versions", _request(schema)
        try:
            try:
                found = await self._ask("POST", f"{path}?verbose=true", _Compatible, body)
            except RegistryPathMissing:  # Redpanda and Karapace only compare with a version that is named
                found = await self._ask("POST", f"{path}/latest?verbose=true", _Compatible, body)
        except SchemaMissing:  # a new subject takes anything
            return
        if not found.is_compatible:
            words = "; ".join(found.messages or ()) or "it gives no reason"
            raise SchemaIncompatible(f"the schema is not compatible with those of `{subject}`: {words}")

    def copy(self, schema_id: int | str) -> SchemaText | None:
        """As it was once read by its id, from the disk."""
        return self._copies.of_id(schema_id)

    def copy_of_version(self, subject: str, version: str | int) -> SchemaText | None:
        """As copy, of `read_version`."""
        return self._copies.of_version(subject, version)

    def keep_text(self, subject: str, schema: SchemaText, found: SchemaText) -> None:
        """Keep what the registry has made of a schema: `found` has an id."""
        self._copies.keep_version(subject, _text_name(schema), found)

    def copy_of_text(self, subject: str, schema: SchemaText) -> SchemaText | None:
        """The same schema with the id that it has had in a subject; the message stays its own."""
        copy = self._copies.of_version(subject, _text_name(schema))
        if copy is None:
            return None
        return msgspec.structs.replace(schema, id=copy.id, subject=subject, version=copy.version)

    async def _read(self, path: str) -> _Schema:
        """A schema; of Protobuf the descriptor, where the registry has one or makes one of the text."""
        found = await self._ask("GET", path, _Schema)
        if found.schemaType != _PROTOBUF or is_serialized(found.schema):
            return found
        return await self._ask("GET", f"{path}?format=serialized", _Schema)

    def _remember(self, schema_id: int | str, schema: SchemaText) -> None:
        self._known[schema_id] = schema
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    async def _whole(
        self, found: _Schema, read: dict[_Reference, SchemaText], above: tuple[_Reference, ...] = ()
    ) -> SchemaText:
        """With its references. What several refer to comes with its own at the first, and again only where the
        outermost one names it. `read`: all of the outermost one so far; `above`: those that lead here.
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
                raise RegistryRefused(f"the schema `{one.subject}` version {one.version} refers to itself")
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
        except SchemaMissing as missing:  # what refers to it is there
            what = f"a schema refers to `{one.subject}` version {one.version}, which the registry does not have"
            raise RegistryRefused(f"{what}: {missing.message}", error_code=missing.error_code) from missing

    async def _ask(self, method: str, path: str, kind: type[T], body: Any = None) -> T:
        answer = await self._transport.ask(method, path, body)
        try:
            return msgspec.json.decode(answer, type=kind)
        except UNDECODABLE as error:
            shown = answer[:80].decode(errors="replace")
            raise RegistryRefused(
                f"what answers is no schema registry: {path.partition('?')[0]} is {shown!r}",
                remedy="is `url` complete? Some registries serve this interface below a path",
            ) from error


def _text_name(schema: SchemaText) -> str:
    return f"text-{hashlib.sha256(schema.text.encode()).hexdigest()}"


def _subject(name: str) -> str:
    return f"/subjects/{quote(name, safe='')}"


def _request(schema: SchemaText) -> dict[str, Any]:
    for name, one in schema.references:
        if not one.subject:
            remedy = "register it after what it imports, and name its subject with `register: existing`"
            raise RegistryRefused(f"the schema imports `{name}`, of which no subject is known", remedy=remedy)
    references = [{"name": name, "subject": one.subject, "version": one.version} for name, one in schema.references]
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind.upper()}
    return {**body, "references": references} if references else body
