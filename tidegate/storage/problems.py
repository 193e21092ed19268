"""Errors of the operating system as StorageError: place, operation, reason and remedy."""

from __future__ import annotations

import errno
from typing import Final

from tidegate.storage.base import ObjectMissing, StorageError

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
