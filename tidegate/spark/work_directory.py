"""The daemon's temporary directory, with Spark's local files and the token for commands; its processes; the cache.

It holds nothing that must survive, and is removed when the daemon ends in any way. The next daemon of this user on this
machine removes what a killed one has left. The owner holds a lock on the directory, so that containers that share a
temporary directory, where process ids are meaningless, do not remove each other's (nor do cleaners such as
systemd-tmpfiles). Whether a daemon lives, and which processes are its slots, is read from /proc.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.errors import TidegateError
from tidegate.slot.fork_guard import SERVER
from tidegate.storage.base import is_lasting_errno


def cache_directory() -> Path:
    """Returns `$TIDEGATE_CACHE`, else `$XDG_CACHE_HOME/tidegate`, else `~/.cache/tidegate`. It need not exist yet."""
    own, shared = os.environ.get("TIDEGATE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "tidegate"


_SERVES: Final = re.compile(rf"(^| )-m ({re.escape(SERVER)}|pyspark\.daemon)( |$)")
"""Matches the command line of a fork server and its forks. The driver's JVM has the module's name in a setting."""
_ZOMBIE = "Z"


class OsProcess(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    state: str
    command: str


def read_processes() -> dict[int, OsProcess]:
    """Reads all visible processes, including zombies (state Z)."""
    found: dict[int, OsProcess] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        found[int(entry.name)] = OsProcess(int(entry.name), int(fields[1]), fields[0], command)
    return found


def is_alive(pid: int) -> bool:
    """Returns whether the process is running or stopped, and not a zombie."""
    process = read_processes().get(pid)
    return process is not None and process.state != _ZOMBIE


def find_descendants(root: int) -> list[OsProcess]:
    """Lists all descendants of a process, parents first."""
    table = read_processes()
    found: list[OsProcess] = []
    wanted = [root]
    while wanted:
        parent = wanted.pop(0)
        below = [process for process in table.values() if process.parent == parent and process.state != _ZOMBIE]
        found += below
        wanted += [process.pid for process in below]
    return found


def find_slots(root: int) -> list[int]:
    """Lists the Python workers: forks of an executor's fork server, with its command line."""
    return choose_slots(find_descendants(root))


def choose_slots(below: Sequence[OsProcess]) -> list[int]:
    """Selects the forks of servers. A server's parent is the daemon, or its guard."""
    forked = {process.pid: process for process in below if _SERVES.search(process.command)}
    servers = {pid for pid, process in forked.items() if process.parent not in forked}
    return [pid for pid, process in forked.items() if process.parent in servers]


_NAME: Final = re.compile(r"tidegate-([0-9]+)-[a-z0-9_]+")
MARK: Final = "made-by-tidegate"
"""A file in each work directory; a directory without it that happens to have such a name is never removed."""
SWEPT_MAX: Final = 1000


class WorkDirectoryUnusable(TidegateError):
    """The daemon has no place for its temporary files, and will not have one until a person intervenes."""

    code = "work-directory-unusable"
    exit_code = 2


class WorkDirectoryFull(TidegateError):
    """There is no place for temporary files for now: the disk is full or fails."""

    code = "work-directory-full"
    exit_code = 1
    retriable = True


class WorkDirectory:
    """A new directory below `parent` (the system's temporary directory), created after removing abandoned ones there.

    Raises WorkDirectoryUnusable, WorkDirectoryFull.
    """

    def __init__(self, parent: Path | None = None) -> None:
        base = temporary_directory() if parent is None else parent
        sweep_work_directories(base)
        self.path = _make(base)
        lock = _lock(self.path)
        self._finalizer = weakref.finalize(self, _remove, self.path, lock)

    def remove(self) -> None:
        """Removes it with its content, once. If this is not called, the exit of the interpreter removes it."""
        self._finalizer()


def temporary_directory() -> Path:
    """Returns the parent of work directories: the system's temporary directory, or `TMPDIR`.

    If Python finds none that is writable, it returns the configured one, so that using it raises the reason.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - only used for the error


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
    """Finds the work directories of this user, or of all users for the superuser. Links to them are skipped."""
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
    """Removes this user's directories whose daemons have ended; returns those that were removed."""
    removed = []
    for entry in find_work_directories(parent)[:SWEPT_MAX]:
        match = _NAME.fullmatch(entry.name)
        if match is None or _owner(entry) != os.geteuid():
            continue
        maker = int(match[1])
        # Our own id may also be that of an earlier process in this container.
        if maker != os.getpid() and is_alive(maker):
            continue
        try:
            lock = _lock(entry)
        except OSError:
            # Its daemon is alive in another container, or another daemon is removing it.
            continue
        _remove(entry, lock)
        if not entry.exists():
            removed.append(entry)
    return removed


def _owner(entry: Path) -> int | None:
    """Returns the owner's user id; None if it is not a directory or no longer exists."""
    try:
        found = entry.lstat()
    except FileNotFoundError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else None


def _lock(directory: Path) -> int:
    """Returns a descriptor that holds the lock. Raises OSError, and BlockingIOError if another process holds it."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(directory: Path, lock: int) -> None:
    """Removes a directory. The mark is removed last, so that an interrupted removal can be resumed."""
    try:
        for entry in (one for one in directory.glob("*") if one.name != MARK):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)
