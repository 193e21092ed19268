"""The daemon's temporary directory: Spark's local files, the JVMs' own temporary files, the token for orders.

Nothing that must survive. It is removed when the daemon ends, however it ends; what a killed one has left the next
daemon of this user on this machine removes. Its owner holds a lock on it, so that containers which share a temporary
directory, where process ids mean nothing, leave one another's alone (and so do cleaners such as systemd-tmpfiles).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from pathlib import Path
from typing import Final

from tidegate.errors import TidegateError
from tidegate.spark.processes import is_alive
from tidegate.storage.problems import is_lasting_errno

_NAME: Final = re.compile(r"tidegate-([0-9]+)-[a-z0-9_]+")
MARK: Final = "made-by-tidegate"
"""A file in each: a directory of somebody's that happens to have such a name is nobody's to remove."""
SWEPT_MAX: Final = 1000


class WorkDirectoryUnusable(TidegateError):
    """The daemon has no place for its temporary files, and will have none before somebody changes something."""

    code = "work-directory-unusable"
    exit_code = 2


class WorkDirectoryFull(TidegateError):
    """No place just now: the disk is full, or fails."""

    code = "work-directory-full"
    exit_code = 1
    retriable = True


class WorkDirectory:
    """A new directory below `parent` (the system's temporary directory), after sweeping there.

    Raises WorkDirectoryUnusable, WorkDirectoryFull.
    """

    def __init__(self, parent: Path | None = None) -> None:
        base = temporary_directory() if parent is None else parent
        sweep_work_directories(base)
        self.path = _make(base)
        lock = _lock(self.path)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def remove(self) -> None:
        """Remove it with everything inside, once; when nobody does, the end of the interpreter does."""
        self._finalizer()


def temporary_directory() -> Path:
    """Where work directories are; `TMPDIR` names another one than the system's.

    Where Python finds none that it can write to, the one that should be: using it says why not.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - it is not used but for the error


def _make(base: Path) -> Path:
    try:
        made = Path(tempfile.mkdtemp(prefix=f"tidegate-{os.getpid()}-", dir=base))
        (made / MARK).touch()
    except OSError as error:
        kind = WorkDirectoryUnusable if is_lasting_errno(error.errno) else WorkDirectoryFull
        raise kind(
            f"{base}: no temporary directory can be made there: {error.strerror or error}; let TMPDIR name a directory "
            "that this user can write to, with 100 MB to spare",
            directory=str(base),
        ) from error
    return made


def find_work_directories(parent: Path) -> list[Path]:
    """Those of this user; of everybody for the superuser. A link to one is none."""
    own = os.geteuid()
    return [
        entry
        for entry in sorted(parent.glob("tidegate-*"))
        if _NAME.fullmatch(entry.name)
        and (owner := _owner(entry)) is not None
        and own in (owner, 0)
        and (entry / MARK).is_file()
    ]


def sweep_work_directories(parent: Path) -> list[Path]:
    """Remove this user's directories whose daemons are gone; those that were removed."""
    removed = []
    for entry in find_work_directories(parent)[:SWEPT_MAX]:
        match = _NAME.fullmatch(entry.name)
        if match is None or _owner(entry) != os.geteuid():
            continue
        maker = int(match[1])
        if maker != os.getpid() and is_alive(maker):  # our own id is also that of who ran in this container before us
            continue
        try:
            lock = _lock(entry)
        except OSError:
            continue  # its daemon lives, under another process id of ours; or another one sweeps it
        _remove(entry, lock)
        if not entry.exists():
            removed.append(entry)
    return removed


def _owner(entry: Path) -> int | None:
    """The user id; None of what is not a directory, or is gone."""
    try:
        found = entry.lstat()
    except FileNotFoundError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else None


def _lock(directory: Path) -> int:
    """A descriptor that holds the lock. Raises OSError, BlockingIOError when somebody else has it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(directory: Path, lock: int) -> None:
    """The mark last: by it what is left is found when this is killed."""
    try:
        for entry in (one for one in directory.glob("*") if one.name != MARK):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
