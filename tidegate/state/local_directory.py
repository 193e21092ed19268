"""Directories for state on local disk. Each is private to its process, removed with it, and never read by another one.

Each directory contains a file that its process keeps locked. The next process can therefore remove what a killed
process has left, even where process ids are meaningless (containers that share a directory).
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
        taking.rename(self.path / _LOCK)  # other processes only examine the directory from now on

    def close(self) -> None:
        """Removes the directory with its contents. Must be called only once."""
        _remove(self.path)
        os.close(self._lock)


def sweep(parent: Path) -> list[Path]:
    """Removes this user's directories whose processes no longer exist. Returns the removed ones."""
    removed: list[Path] = []
    for entry in sorted(parent.glob(f"{PREFIX}*/{_LOCK}"))[:SWEPT_MAX]:
        try:
            found = entry.parent.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(entry, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # removed in the meantime
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(entry.parent)
            removed.append(entry.parent)
        except BlockingIOError:
            continue  # its process is alive
        finally:
            os.close(lock)
    return removed


def _remove(directory: Path) -> None:
    """Removes the lock last, so that if this process is killed, the next one still recognizes what is left."""
    for entry in _held(directory):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                entry.unlink()
    if not _held(directory):
        shutil.rmtree(directory, ignore_errors=True)


def _held(directory: Path) -> list[Path]:
    """Returns the contents of a directory except the lock."""
    try:
        return [entry for entry in directory.iterdir() if entry.name != _LOCK]
    except OSError:
        return []  # removed in the meantime
