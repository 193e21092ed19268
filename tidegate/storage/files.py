"""The system calls of a storage in a directory: those of `os`, or replacements in the simulation; and folders of this
user in a temporary directory, which processes share and which outlive them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from tidegate.clock import SYSTEM_CLOCK, Clock

READ_BYTES: Final = 1 << 20


class SystemCalls(Protocol):
    """The functions of the module `os` that are used; all raise OSError."""

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        """Returns a descriptor of a file or folder."""

    def read(self, descriptor: int, length: int, /) -> bytes:
        """Returns the next bytes; empty at the end."""

    def pread(self, descriptor: int, length: int, offset: int, /) -> bytes:
        """Returns bytes from an offset on; empty at the end."""

    def write(self, descriptor: int, data: memoryview, /) -> int:
        """Returns how many bytes were written."""

    def fsync(self, descriptor: int, /) -> None:
        """Makes written data durable; for a folder, its entries."""

    def close(self, descriptor: int, /) -> None:
        """Closes a descriptor."""

    def fchmod(self, descriptor: int, mode: int, /) -> None:
        """Changes the mode, regardless of the umask."""

    def chmod(self, path: Path, mode: int, /) -> None:
        """Changes the mode of a path."""

    def stat(self, path: Path, /) -> os.stat_result:
        """Returns kind, mode and modification time."""

    def scandir(self, path: Path, /) -> Any:
        """Returns a context manager of the entries of a folder, in any order."""

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        """Creates a folder."""

    def rmdir(self, path: Path, /) -> None:
        """Removes an empty folder."""

    def unlink(self, path: Path, /) -> None:
        """Removes a name."""

    def link(self, path: Path, other: Path, /) -> None:
        """Adds a name for a file; raises FileExistsError if it is taken."""

    def replace(self, path: Path, other: Path, /) -> None:
        """Renames a file and replaces an existing one."""


class FileTools:
    """The environment of a storage in a directory; this is the real one."""

    calls: SystemCalls = os

    def make_token(self) -> str:
        """Returns a unique name."""
        return uuid.uuid4().hex


FILE_TOOLS: Final = FileTools()


_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Opening a pipe or device instead of a file must not block; O_NONBLOCK has no effect on files."""


def read_all(calls: SystemCalls, path: Path) -> bytes:
    """Reads a whole file. Raises OSError."""
    descriptor = calls.open(path, _READING)
    try:
        parts = []
        while part := calls.read(descriptor, READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        calls.close(descriptor)


def read_range(calls: SystemCalls, path: Path, start: int, length: int) -> bytes:
    """Reads up to `length` bytes of a file from `start` on; returns no bytes of a pipe. Raises OSError."""
    descriptor = calls.open(path, _READING)
    try:
        parts = []
        while length > 0 and (part := calls.pread(descriptor, min(length, READ_BYTES), start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return b"".join(parts)
    except OSError as failure:
        if failure.errno != errno.ESPIPE:
            raise
        return b""  # as `read_all` of a pipe without a writer; the caller detects missing data
    finally:
        calls.close(descriptor)


def write_all(calls: SystemCalls, descriptor: int, data: bytes) -> None:
    """Writes all data, in as many calls as necessary. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[calls.write(descriptor, rest) :]


# -- folders in a temporary directory ----------------------------------------------------------------------------------
#     TMPDIR/<prefix><user id>/<folder>
#
# A process that uses a folder holds a shared lock on it. A folder that no process uses and that was not written to for
# a day is removed by `sweep_folders`.

STALE_S: Final = 86_400.0
SWEPT_MAX: Final = 1000
_TRIES: Final = 10
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def own_root(base: Path, prefix: str) -> Path:
    """Returns a folder that only this user may write to, since temporary directories are shared. Raises OSError."""
    root = base / f"{prefix}{os.geteuid()}"
    with suppress(FileExistsError):
        root.mkdir(0o700)
    found = root.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(1, f"{root.name} is not a directory of this user alone")
    return root


def take_folder(folder: Path) -> int:
    """Creates a folder of `own_root`. Returns a descriptor that holds a shared lock on it. Raises OSError."""
    for _ in range(_TRIES):
        with suppress(FileExistsError):
            folder.mkdir(0o700)
        descriptor = os.open(folder, _FOLDER)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(OSError):
            os.utime(folder)
            if folder.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # it was removed before it was locked
    raise FileNotFoundError(2, f"{folder} was removed again and again")


def sweep_folders(base: Path, prefix: str, clock: Clock = SYSTEM_CLOCK) -> list[Path]:
    """Removes this user's unused folders below `base`; returns those removed."""
    removed: list[Path] = []
    for entry in sorted((base / f"{prefix}{os.geteuid()}").glob("*"))[:SWEPT_MAX]:
        try:
            descriptor = os.open(entry, _FOLDER)
        except OSError:
            continue  # gone meanwhile, or not ours
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid() and found.st_mtime < clock.now_ms() / 1000 - STALE_S:
                shutil.rmtree(entry, ignore_errors=True)
                removed.append(entry)
        except BlockingIOError:
            continue  # a process uses it
        finally:
            os.close(descriptor)
    return removed
