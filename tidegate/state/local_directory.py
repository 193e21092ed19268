"""Directories for state on local disk: private to a process, gone with it, never read by another one.

Each holds a file that its process keeps locked, so that whoever comes next removes what a killed one has left, also
where process ids mean nothing (containers that share a directory).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Final

PREFIX: Final = "tidegate-state-"
_LOCK: Final = "lock"
SWEPT_MAX: Final = 1000


class LocalDirectory:
    """A new directory below `parent`; `close` removes it. Raises OSError."""

    def __init__(self, parent: Path) -> None:
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        taking = self.path / f".{_LOCK}"
        self._lock = os.open(taking, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        taking.rename(self.path / _LOCK)  # only now others look at it

    def close(self) -> None:
        """Remove it with everything inside, once."""
        _remove(self.path)
        os.close(self._lock)


def sweep(parent: Path) -> list[Path]:
    """Remove this user's directories whose processes are gone; those that were removed."""
    removed: list[Path] = []
    for entry in sorted(parent.glob(f"{PREFIX}*/{_LOCK}"))[:SWEPT_MAX]:
        try:
            found = entry.parent.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(entry, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # gone meanwhile
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(entry.parent)
            removed.append(entry.parent)
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(lock)
    return removed


def _remove(directory: Path) -> None:
    """The lock goes last: a process that is killed meanwhile leaves nothing that the next one does not see."""
    for entry in _held(directory):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
    if not _held(directory):
        shutil.rmtree(directory, ignore_errors=True)


def _held(directory: Path) -> list[Path]:
    """What is there besides the lock."""
    try:
        return [entry for entry in directory.iterdir() if entry.name != _LOCK]
    except OSError:
        return []  # gone meanwhile
