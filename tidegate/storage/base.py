"""What a checkpoint storage can do. Object names are relative paths with `/`; bytes in, bytes out; nothing cached."""

from __future__ import annotations

from typing import Protocol

from tidegate.errors import TidegateError


class StorageError(TidegateError):
    """The storage refused or failed; the message names the object and the directory."""

    code = "storage"
    exit_code = 1
    retriable = True


class ObjectMissing(StorageError):
    """There is no object of that name."""

    code = "storage-missing"


class ObjectCorrupt(StorageError):
    """The object's content does not match its checksum: truncated, bit-flipped or not ours."""

    code = "storage-corrupt"
    exit_code = 4
    retriable = False


class Storage(Protocol):
    """Durable objects. When a writing call has returned, the object survives a power cut."""

    location: str
    """For messages: the directory or bucket as the user wrote it."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object whole or not at all; False when the name exists already (whatever its content)."""

    def put(self, name: str, data: bytes) -> None:
        """Create or replace, atomically."""

    def get(self, name: str) -> bytes:
        """Raises ObjectMissing."""

    def list(self, prefix: str) -> list[str]:
        """Names that start with `prefix`, sorted; unfinished writes never appear."""

    def delete(self, name: str) -> None:
        """Idempotent: deleting what is not there is no error."""

    def probe(self) -> None:
        """Write, read and delete a small object; put_if_absent must refuse a second write. Raises StorageError."""
