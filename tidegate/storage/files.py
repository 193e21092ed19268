"""The system calls of a storage in a directory: those of `os`, or replacements in the simulation."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import Any, Final, Protocol

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
