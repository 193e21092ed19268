"""The contract of checkpoint storage, for authors of further kinds (docs/extending.md).

A `Storage` holds objects: bytes under names, which are relative paths with `/` (`check_name`). Checkpoints, the
journal and savepoints are written only through it. Exactly once depends on three guarantees: data is durable once a
writing call returns, `put_if_absent` lets exactly one of several writers succeed, and `get` and `list` reflect the
latest write. Errors of the operating system become a StorageError with place, operation, reason and remedy.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

import msgspec

from tidegate.errors import TidegateError


class StorageOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options without secrets, since they are sent to the slots and displayed. If empty, the environment applies."""

    endpoint: str = ""
    region: str = ""
    account: str = ""
    credentials_file: str = ""
    """A path; each process that opens the store reads the file itself."""
    ca: str = ""
    """A path to certificates."""


NO_OPTIONS: Final = StorageOptions()


class StorageError(TidegateError):
    """The storage rejected a call or failed; the message names the object and the directory."""

    code = "storage"
    exit_code = 1
    retriable = True


class StorageUnsupported(StorageError):
    """The address requires a kind of storage that this release or installation does not support."""

    code = "storage-unsupported"
    exit_code = 2
    retriable = False


class ObjectMissing(StorageError):
    """There is no object with this name."""

    code = "storage-missing"


class ObjectCorrupt(StorageError):
    """The object's content does not match its checksum: truncated, corrupted, or not written by Tidegate."""

    code = "storage-corrupt"
    exit_code = 4
    retriable = False


def check_name(name: str) -> None:
    """Raises ValueError for a name that a directory could not have, or that is not below it.

    Every kind of storage refuses the same names, so that a pipeline can move from one to another.
    """
    if any(not part or part.startswith(".") or "\0" in part for part in name.split("/")):
        raise ValueError(f"not an object name: {name!r} (relative, parts not empty, none begins with a dot)")


class StorageReader(Protocol):
    """Read access to objects."""

    location: str
    """The directory or bucket as the user wrote it, for messages."""

    def get(self, name: str) -> bytes:
        """Returns the whole content. Raises ObjectMissing."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Returns `length` bytes of the content from `start` on; fewer if it ends before. Raises ObjectMissing.

        Transfers nothing else of the object, so that parts of objects of many megabytes can be read.
        """


class Storage(StorageReader, Protocol):
    """Durable objects. Once a writing call has returned, the object survives a power failure.

    Several threads and processes on several machines use a storage at the same time. Calls block for a bounded time,
    and raise StorageError for any failure; `retriable` marks errors that may be gone in another attempt. Nothing is
    cached: a call sees every object that another process has written before.
    """

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Creates the object atomically; returns False if the name already exists, whatever its content.

        If several callers use the same name, exactly one of them gets True, even on different machines. The journal
        relies on this: each entry is an object, and whoever creates the next one owns the pipeline. After an error, it
        is unknown whether the object was created.
        """

    def put(self, name: str, data: bytes) -> None:
        """Creates or replaces the object atomically: a reader sees either the former content or the new one."""

    def exists(self, name: str) -> bool:
        """Returns whether an object with this name exists."""

    def list(self, prefix: str) -> list[str]:
        """Returns the names that start with `prefix`, sorted; unfinished writes never appear.

        Without a prefix, a name that ends with a slash is a folder that cannot be read.
        """

    def delete(self, name: str) -> None:
        """Deletes an object; does nothing if it does not exist."""

    def delete_all(self, names: Sequence[str]) -> None:
        """Deletes each object, in any order; after an error, some are deleted."""

    def probe(self) -> None:
        """Writes, reads and deletes a small object, and checks that put_if_absent rejects a second write.

        Raises StorageError. It runs before anything starts, so its errors are for the user to resolve.
        """


class StoreKind(ABC):
    """A kind of storage, selected by the scheme of an address. Its module in `storage/kinds` defines `STORE`."""

    schemes: ClassVar[tuple[str, ...]]
    """In lower case, without `://`."""
    example: ClassVar[str]
    """An example address, for remedies."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The fields of `StorageOptions` that this kind supports."""

    def check(self, address: str) -> str:  # noqa: ARG002 - for kinds whose addresses can be wrong by their text alone
        """Returns what is wrong with an address in a pipeline file, judged by its text alone; empty if nothing is."""
        return ""

    @abstractmethod
    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:
        """Opens the storage at an address.

        If `create` is False, the storage is opened for reading only: nothing is written, and a missing directory counts
        as empty. Otherwise problems that can be detected are reported now. With `stays`, a `put` fails if the address
        no longer refers to the place that was opened.

        Raises StorageError, whose text never contains a part of the address that may hold a credential.
        """


_PERMISSION: Final = (
    "give the user of the daemon and of the executors read and write permission on the directory; when these are two "
    "users, share it with a group of theirs before the first start: chgrp GROUP DIRECTORY; chmod 2770 DIRECTORY"
)
_REMEDIES: Final = {
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.ENOSPC: "free space or inodes on the file system, or lower `checkpoints.retained`",
    errno.EDQUOT: "raise the quota of the user, or lower `checkpoints.retained`",
    errno.ENOENT: "the directory or its parent was removed: create it again, or choose another one",
    errno.EIO: "check the disk and the kernel log; the directory may have to move to another disk",
    errno.EROFS: "mount the file system read-write (after an I/O error the kernel may have made it read-only)",
    errno.ENOTDIR: "a part of the path is a file: choose another directory in `checkpoints.directory`",
    errno.EEXIST: "a part of the path is a file: choose another directory in `checkpoints.directory`",
    errno.EISDIR: "an object's name is taken by a directory: remove what is not Tidegate's from the directory",
    errno.ENAMETOOLONG: "choose a shorter directory or shorter names in the pipeline file",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files of the system",
    errno.ESTALE: "the network file system lost the directory: mount it again",
    errno.EXDEV: "the directory spans two file systems: hard links must be possible within it",
    errno.ENOTSUP: "the file system cannot make hard links: choose one that can (ext4, xfs, NFS)",
}
_OTHER: Final = "check the directory and the kernel log"

_LASTING: Final = frozenset({
    errno.EACCES,
    errno.EEXIST,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTSUP,
    errno.EPERM,
    errno.EROFS,
    errno.EXDEV,
})  # fmt: skip
"""Errors that only a change of the file, the directory or the mount can resolve. All others (a full or failing disk, an
unavailable network file system) may be temporary.
"""


def is_lasting_errno(number: int | None) -> bool:
    """Returns whether another start would fail with the same error of the operating system."""
    return number in _LASTING


def is_lasting(error: StorageError) -> bool:
    """Returns whether another start would fail in the same way; errors without this information are assumed to."""
    if isinstance(error, ObjectMissing):
        return False
    if "lasting" in error.fields:
        return bool(error.fields["lasting"])
    label = error.fields.get("errno")
    return label is None or label in {errno.errorcode[number] for number in _LASTING}


def describe_failure(location: str, operation: str, name: str, failure: OSError) -> StorageError:
    """Creates the StorageError for a failed system call; `operation` is a verb such as `write`."""
    reason = failure.strerror or str(failure)
    if failure.errno == errno.ENOENT and operation == "read":
        return ObjectMissing(f"{location}: there is no {name}", location=location, name=name)
    code = failure.errno if failure.errno is not None else 0
    remedy = _REMEDIES.get(code, _OTHER)
    label = errno.errorcode.get(code, "unknown error")
    return StorageError(
        f"{location}: cannot {operation} {name}: {reason} ({label}); {remedy}",
        location=location,
        operation=operation,
        name=name,
        errno=label,
    )
