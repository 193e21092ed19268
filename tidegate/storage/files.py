"""The system calls that a storage in a directory makes. The real ones are those of `os`; the simulation has others."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import Any, Final, Protocol

READ_BYTES: Final = 1 << 20


class SystemCalls(Protocol):
    """What is used of the module `os`; all raise OSError."""

    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        """A descriptor of a file or a folder."""

    def read(self, descriptor: int, length: int, /) -> bytes:
        """The next bytes, none at the end."""

    def pread(self, descriptor: int, length: int, offset: int, /) -> bytes:
        """The next bytes from a place on, none at the end."""

    def write(self, descriptor: int, data: memoryview, /) -> int:
        """How many were written."""

    def fsync(self, descriptor: int, /) -> None:
        """What was written is durable; of a folder its entries."""

    def close(self, descriptor: int, /) -> None:
        """Give it back."""

    def fchmod(self, descriptor: int, mode: int, /) -> None:
        """Change the mode, whatever the umask is."""

    def chmod(self, path: Path, mode: int, /) -> None:
        """As `fchmod`."""

    def stat(self, path: Path, /) -> os.stat_result:
        """Kind, mode, time of the last change."""

    def scandir(self, path: Path, /) -> Any:
        """The entries of a folder, in any order; a context manager."""

    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        """A new folder."""

    def rmdir(self, path: Path, /) -> None:
        """Remove an empty folder."""

    def unlink(self, path: Path, /) -> None:
        """Remove a name."""

    def link(self, path: Path, other: Path, /) -> None:
        """Give a file another name; FileExistsError when that is taken."""

    def replace(self, path: Path, other: Path, /) -> None:
        """Give a file another name, whether that is taken or not."""


class FileTools:
    """What a storage in a directory works with. These are the real ones."""

    calls: SystemCalls = os

    def make_token(self) -> str:
        """A name that nobody has."""
        return uuid.uuid4().hex


FILE_TOOLS: Final = FileTools()


_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A pipe or a device in the place of a file must not be waited for; to files the last flag means nothing."""


def read_all(calls: SystemCalls, path: Path) -> bytes:
    """The content of a file. Raises OSError."""
    descriptor = calls.open(path, _READING)
    try:
        parts = []
        while part := calls.read(descriptor, READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        calls.close(descriptor)


def read_range(calls: SystemCalls, path: Path, start: int, length: int) -> bytes:
    """So many bytes of a file from a place on, or those that there are; none of a pipe. Raises OSError."""
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
        return b""  # as `read_all` of one that nobody writes into: what is missing is for the reader to find
    finally:
        calls.close(descriptor)


def write_all(calls: SystemCalls, descriptor: int, data: bytes) -> None:
    """Whatever a single call takes. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[calls.write(descriptor, rest) :]
