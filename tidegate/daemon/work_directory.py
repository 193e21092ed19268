"""The daemon's temporary directory: Spark's local files and what the JVM is configured by. Nothing that must survive.

Its name carries the process id, so that the next daemon on this machine removes what a killed one has left.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tidegate.daemon.processes import is_alive
from tidegate.errors import TidegateError
from tidegate.storage.problems import is_lasting_errno

_NAME: Final = re.compile(r"tidegate-([0-9]+)-[a-z0-9_]+")


class WorkDirectoryUnusable(TidegateError):
    """The daemon has no place for its temporary files, and will have none before somebody changes something."""

    code = "work-directory-unusable"
    exit_code = 2


class WorkDirectoryFull(TidegateError):
    """No place just now: the disk is full, or fails."""

    code = "work-directory-full"
    exit_code = 1
    retriable = True


def make_work_directory(parent: Path | None = None) -> Path:
    """A directory of this process below `parent` (the system's temporary directory), after sweeping there.

    Raises WorkDirectoryUnusable, WorkDirectoryFull.
    """
    base = parent if parent is not None else _temporary_directory()
    sweep_work_directories(base)
    try:
        return Path(tempfile.mkdtemp(prefix=f"tidegate-{os.getpid()}-", dir=base))
    except OSError as error:
        kind = WorkDirectoryUnusable if is_lasting_errno(error.errno) else WorkDirectoryFull
        raise kind(
            f"{base}: no temporary directory can be made there: {error.strerror or error}; let TMPDIR name a directory "
            "that this user can write to, with 100 MB to spare",
            directory=str(base),
        ) from error


def _temporary_directory() -> Path:
    """The system's. Where Python finds none that it can write to, the one that should be: using it says why not."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - it is not used but for the error


def sweep_work_directories(parent: Path) -> list[Path]:
    """Remove directories of daemons that are gone, as far as they are ours to remove; those that were removed."""
    left = [
        entry
        for entry in parent.glob("tidegate-*")
        if (match := _NAME.fullmatch(entry.name)) and entry.is_dir() and not is_alive(int(match[1]))
    ]
    for entry in left:
        shutil.rmtree(entry, ignore_errors=True)  # another user's stays
    return [entry for entry in left if not entry.exists()]
