"""Checkpoint storage in a directory, local or on a network file system that every executor mounts.

An object is written to a private folder, synced, and then appears under its name in one step: by a hard link, which
fails when the name exists (put_if_absent), or by a rename (put). The folders on the way are synced before the call
returns, so that neither the content nor the name can be lost to a power cut.

What is created is its owner's alone: 0600 in 0700. In a directory that is shared with a group (rwx for the group, and
setgid) it is the group's, too, for executors that run as another user.
"""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from tidegate.storage.base import StorageError
from tidegate.storage.patience import open_patiently
from tidegate.storage.problems import describe_failure

UNFINISHED: Final = ".unfinished"
"""Private folder of writes under way. Names with a leading dot are never objects."""

STALE_AFTER_S: Final = 3600.0
SWEPT_MAX: Final = 10_000
_TRIES: Final = 20

T = TypeVar("T")


class LocalStorage:
    """See the module and `Storage`. Safe to use from several threads and processes at a time.

    `url` is `file:///directory` or a path; the directory is created. With `create` False it is only read: nothing is
    touched, and an absent directory is an empty one. Raises StorageError.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.location: str = url
        self._root = directory_of(url)
        self._shared = False
        if create:
            self._guard("create", "the directory", self._prepare)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """See Storage. Also when the answer is False the existing object is durable."""
        target = self._path(name)

        def link(unfinished: Path) -> bool:
            try:
                os.link(unfinished, target)
            except FileExistsError:
                return False
            return True

        return self._guard("write", name, lambda: self._publish(target, data, link))

    def put(self, name: str, data: bytes) -> None:
        """See Storage."""
        target = self._path(name)

        def rename(unfinished: Path) -> bool:
            unfinished.replace(target)
            return True

        self._guard("write", name, lambda: self._publish(target, data, rename))

    def get(self, name: str) -> bytes:
        """See Storage."""
        path = self._path(name)
        return self._guard("read", name, lambda: open_patiently(path.read_bytes))

    def list(self, prefix: str) -> list[str]:
        """See Storage."""
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self._root
        names = self._guard("list", prefix or "everything", lambda: list(self._walk(start)))
        return sorted(name for name in names if name.startswith(prefix))

    def delete(self, name: str) -> None:
        """See Storage. A folder that becomes empty goes too, or they would pile up one per checkpoint."""
        target = self._path(name)

        def remove() -> None:
            target.unlink(missing_ok=True)
            self._prune(target.parent)

        self._guard("delete", name, remove)

    def probe(self) -> None:
        """See Storage."""
        name = f"probe/{uuid.uuid4().hex}"
        if not self.put_if_absent(name, b"probe"):
            raise StorageError(f"{self.location}: a new name was taken already: {name}", location=self.location)
        try:
            if self.get(name) != b"probe":
                raise StorageError(f"{self.location}: {name} reads differently than written", location=self.location)
            if self.put_if_absent(name, b"other"):
                raise StorageError(
                    f"{self.location}: the file system let an existing file be created again; two daemons could both "
                    "win there: choose another file system",
                    location=self.location,
                )
        finally:
            self.delete(name)

    def _prepare(self) -> None:
        unfinished = self._root / UNFINISHED
        self._make_folder(unfinished)
        self._shared = _is_shared(self._root)
        oldest = time.time() - STALE_AFTER_S
        with os.scandir(unfinished) as entries:
            for entry, _ in zip(entries, range(SWEPT_MAX), strict=False):
                try:
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry.path).unlink(missing_ok=True)
                except FileNotFoundError:
                    continue  # its writer has just finished

    def _publish(self, target: Path, data: bytes, appear: Callable[[Path], bool]) -> bool:
        """Write aside, sync, let it appear, sync the folders. Somebody may prune an empty folder in between."""
        unfinished = self._root / UNFINISHED / uuid.uuid4().hex
        try:
            _write_synced(unfinished, data, shared=self._shared)
            for _ in range(_TRIES):
                try:
                    self._make_folder(target.parent)
                    appeared = appear(unfinished)
                    break
                except FileNotFoundError:
                    continue
            else:
                self._make_folder(target.parent)
                appeared = appear(unfinished)
            self._sync_up(target.parent)
            return appeared
        finally:
            unfinished.unlink(missing_ok=True)

    def _make_folder(self, folder: Path) -> None:
        """Create with all parents; what is created is synced into its parent."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for child in reversed(missing):
            child.mkdir(0o700, exist_ok=True)
            if _is_shared(child.parent) and not _is_shared(child):
                child.chmod(stat.S_ISGID | 0o770)
            _sync_folder(child.parent)

    def _sync_up(self, folder: Path) -> None:
        """Sync a folder and those above it: another process may have created one and not have synced it yet."""
        while True:
            _sync_folder(folder)
            if folder == self._root:
                return
            folder = folder.parent

    def _prune(self, folder: Path) -> None:
        """Up to, but without, the first level: those few are used all the time."""
        while folder not in (self._root, self._root / folder.relative_to(self._root).parts[0]):
            try:
                folder.rmdir()
            except OSError:
                return  # not empty, or gone already: both are what we want
            folder = folder.parent

    def _walk(self, folder: Path) -> Iterator[str]:
        try:
            entries = sorted(open_patiently(lambda: os.scandir(folder)), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(Path(entry.path))
            else:
                yield Path(entry.path).relative_to(self._root).as_posix()

    def _path(self, name: str) -> Path:
        parts = name.split("/")
        if any(not part or part.startswith(".") or "\0" in part for part in parts):
            raise ValueError(f"not an object name: {name!r} (relative, parts not empty, none begins with a dot)")
        return self._root.joinpath(*parts)

    def _guard(self, operation: str, name: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as failure:
            raise describe_failure(self.location, operation, name, failure) from failure


def directory_of(url: str) -> Path:
    """The directory that `file:///directory` or a path means. Raises StorageError."""
    path = url
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise StorageError(f"{url}: a file address has three slashes and an absolute path: file:///directory")
        path = unquote(parts.path)
    if "\0" in path:
        raise StorageError(f"{path!r}: no path has a NUL byte: name another directory")
    return Path(path).absolute()


def _is_shared(folder: Path) -> bool:
    """With a group, by whoever made it."""
    mode = folder.stat().st_mode
    return bool(mode & stat.S_ISGID) and mode & stat.S_IRWXG == stat.S_IRWXG


def _write_synced(path: Path, data: bytes, *, shared: bool) -> None:
    """Create and sync a file; after an error nothing is left of it."""
    descriptor = open_patiently(lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with os.fdopen(descriptor, "wb") as file:
        if shared:
            os.fchmod(descriptor, 0o660)  # whatever the umask is
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = open_patiently(lambda: os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
