"""Copies of schemas on disk, for starts while the registry is unavailable and for checking a file without it.

They are read only if the registry is not used or does not answer, since a registry that was set up again assigns old
ids to new schemas. A copy that cannot be read counts as missing. Failure to write one is not an error.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.formats.schemas import SchemaText
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal, unseal

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
            logger.warning("no copy of a schema was kept in %s: %s", self._directory, error)


def _version_name(subject: str, version: str | int) -> str:
    return f"version-{_digest(subject)}-{version}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
