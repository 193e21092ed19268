"""Folders of this user in a temporary directory, which processes share and which outlive them.

    TMPDIR/<prefix><user id>/<folder>

A process that uses a folder holds a shared lock on it. A folder that no process uses and that was not written to for a
day is removed by `sweep_folders`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from tidegate.clock import SYSTEM_CLOCK, Clock

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
