"""What a storage of checkpoints has to do, for whoever writes another one (docs/extending.md).

A `Storage` holds objects: bytes under names that are relative paths with `/`. Checkpoints, the journal and savepoints
are written by nothing else, and exactly once rests on three promises of it: what a writing call has returned from
survives, `put_if_absent` lets one of several writers win, and `get` and `list` answer what was written last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol

from tidegate.errors import TidegateError
from tidegate.storage.options import StorageOptions


class StorageError(TidegateError):
    """The storage refused or failed; the message names the object and the directory."""

    code = "storage"
    exit_code = 1
    retriable = True


class StorageUnsupported(StorageError):
    """The address asks for a kind of storage that this release, or this installation, cannot use."""

    code = "storage-unsupported"
    exit_code = 2
    retriable = False


class ObjectMissing(StorageError):
    """There is no object of that name."""

    code = "storage-missing"


class ObjectCorrupt(StorageError):
    """The object's content does not match its checksum: truncated, bit-flipped or not ours."""

    code = "storage-corrupt"
    exit_code = 4
    retriable = False


class StorageReader(Protocol):
    """Where objects are read from, and nothing else is asked."""

    location: str
    """For messages: the directory or bucket as the user wrote it."""

    def get(self, name: str) -> bytes:
        """The whole content. Raises ObjectMissing."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """So many bytes of the content from a place on; fewer, or none, where it ends before. Raises ObjectMissing.

        Nothing else of the object is transferred: it is for the beginnings and parts of objects of many megabytes.
        """


class Storage(StorageReader, Protocol):
    """Durable objects. When a writing call has returned, the object survives a power cut.

    Used by several threads and processes at a time, on several machines. Calls block, for a bounded time, and raise
    StorageError for whatever prevents them: `retriable` is what another attempt may find cured. Nothing is cached: an
    object that another process has written is seen by the next call.
    """

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Create the object whole or not at all; False when the name exists already (whatever its content).

        Of several callers with one name exactly one gets True, also when they are on different machines: the journal is
        one object per entry, and whoever creates the next one owns the pipeline. After an error it is not known.
        """

    def put(self, name: str, data: bytes) -> None:
        """Create or replace, atomically: a reader sees the former content or the new one."""

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name now."""

    def list(self, prefix: str) -> list[str]:
        """Names that start with `prefix`, sorted; unfinished writes never appear.

        Without a prefix a name that ends with a slash is a folder that may not be read.
        """

    def delete(self, name: str) -> None:
        """Idempotent: deleting what is not there is no error."""

    def delete_all(self, names: Sequence[str]) -> None:
        """As `delete` of each, in any order; after an error some are deleted."""

    def probe(self) -> None:
        """Write, read and delete a small object; put_if_absent must refuse a second write. Raises StorageError.

        Asked before anything starts, so what it says is what the user has to correct.
        """


class StoreKind(ABC):
    """A kind of storage, by the schemes of its addresses; its module in `storage/kinds` has an instance, `STORE`."""

    schemes: ClassVar[tuple[str, ...]]
    """In lower case, without `://`."""
    example: ClassVar[str]
    """An address, for remedies."""
    options: ClassVar[frozenset[str]] = frozenset()
    """Those of `StorageOptions` that it takes."""

    def check(self, address: str) -> str:  # noqa: ARG002 - for kinds whose addresses can be wrong by their text alone
        """What is wrong with the text of an address in a pipeline file; empty if nothing is. Asks nothing outside."""
        return ""

    @abstractmethod
    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:
        """With `create` False it is only to be read: nothing is touched, and what is not there is empty. Else what can
        be known to be wrong with it is reported now.

        With `stays` a `put` fails where the address stands for another place than when it was opened.

        Raises StorageError; never with a text of the address that may hold a credential.
        """
