"""Checkpoint storage in a directory, local or on a network file system that every executor mounts.

An object is written to a private folder, synced, and then published under its name atomically: by a hard link, which
fails if the name exists (put_if_absent), or by a rename (put). The parent folders are synced before the call returns,
so that a power failure loses neither the content nor the name.

Files are accessible to their owner only: 0600 in 0700. In a directory that is shared with a group (rwx for the group,
and setgid), files are also accessible to the group, for executors that run as another user.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from typing_extensions import override

from tidegate.storage.base import Storage, StorageError, check_name, describe_failure
from tidegate.storage.files import FILE_TOOLS, FileTools, read_all, read_range, write_all

UNFINISHED: Final = ".unfinished"
"""Private folder of unfinished writes. Names with a leading dot are never objects."""

STALE_AFTER_S: Final = 3600.0
SWEPT_MAX: Final = 10_000
_TRIES: Final = 20
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS})
"""Errors of link(2) on FAT or through FUSE. The file was just written there, so permissions are not the cause."""
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

T = TypeVar("T")
DESCRIPTOR_WAIT_S: Final = 30.0
DESCRIPTOR_PAUSE_S: Final = 0.05
_NONE_LEFT: Final = frozenset({errno.EMFILE, errno.ENFILE})


class LocalStorage(Storage):
    """A directory as checkpoint storage. Safe for concurrent use by several threads and processes.

    `url` is `file:///directory` or a path; the directory is created. If `create` is False, it is opened for reading
    only: nothing is written, and a missing directory counts as empty. With `stays`, a `put` fails if the directory is
    no longer the one that was opened, for example after its volume was unmounted. Raises StorageError.
    """

    def __init__(self, url: str, *, create: bool = True, stays: bool = False, tools: FileTools = FILE_TOOLS) -> None:
        self.location: str = url
        self._tools = tools
        self._calls = tools.calls
        self._root = directory_of(url)
        self._shared = False
        self._named: set[Path] = set()
        """Folders of the first level whose names are known to be durable."""
        if create:
            self._guard("create", "the directory", self._prepare)
        self._opened = self._guard("look at", "the directory", self._identity) if stays else None

    @override
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """If the result is False, the existing object is durable as well."""
        target = self._path(name)

        def link(unfinished: Path) -> bool:
            try:
                self._calls.link(unfinished, target)
            except FileExistsError:  # also if a server has executed a repeated request the first time: see link(2)
                return self._is_one_file(unfinished, target)
            except OSError as failure:
                if failure.errno not in _NO_LINKS:
                    raise
                raise OSError(errno.ENOTSUP, f"no hard link: {failure.strerror}") from failure
            return True

        return self._guard("write", name, lambda: self._publish(target, data, link))

    @override
    def put(self, name: str, data: bytes) -> None:
        target = self._path(name)

        def rename(unfinished: Path) -> bool:
            self._calls.replace(unfinished, target)
            return True

        self._guard("write", name, lambda: self._publish(target, data, rename))
        if self._opened is not None and self._guard("look at", "the directory", self._identity) != self._opened:
            raise StorageError(
                f"{self.location}: cannot write {name}: the directory is not the one that was opened; if its volume "
                "was unmounted, mount it again",
                location=self.location,
                operation="write",
                name=name,
                errno=errno.errorcode[errno.ESTALE],
            )

    @override
    def get(self, name: str) -> bytes:
        path = self._path(name)
        return self._guard("read", name, lambda: _open_patiently(lambda: read_all(self._calls, path)))

    @override
    def get_range(self, name: str, start: int, length: int) -> bytes:
        path = self._path(name)
        return self._guard("read", name, lambda: _open_patiently(lambda: read_range(self._calls, path, start, length)))

    @override
    def exists(self, name: str) -> bool:
        path = self._path(name)

        def look() -> bool:
            try:
                return stat.S_ISREG(self._calls.stat(path).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

        return self._guard("look for", name, look)

    @override
    def list(self, prefix: str) -> list[str]:
        """With a prefix, an unreadable folder is an error, since nothing of the journal and of state may be left out.

        Without a prefix, unrelated folders such as `lost+found` may be unreadable.
        """
        folder, slash, _ = prefix.rpartition("/")
        start = self._path(folder) if folder else self._root
        walk = self._walk(start, folder + slash, names_unreadable=not prefix)
        names = self._guard("list", prefix or "everything", lambda: list(walk))
        return sorted(name for name in names if name.startswith(prefix))

    @override
    def delete(self, name: str) -> None:
        """Also removes folders that become empty, since one per checkpoint would accumulate."""
        target = self._path(name)

        def remove() -> None:
            self._unlink(target)
            self._prune(target.parent)

        self._guard("delete", name, remove)

    @override
    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    @override
    def probe(self) -> None:
        """Also makes the directory itself durable."""
        self._guard("sync", "the directories above", self._sync_above)
        name = f"probe/{self._tools.make_token()}"
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

    def _identity(self) -> tuple[int, int]:
        return self._identity_of(self._root)

    def _identity_of(self, path: Path) -> tuple[int, int]:
        found = self._calls.stat(path)
        return found.st_dev, found.st_ino

    def _is_one_file(self, path: Path, other: Path) -> bool:
        """Returns whether both names refer to one file. `probe` rejects a file system where any two do."""
        try:
            return self._identity_of(path) == self._identity_of(other)
        except FileNotFoundError:
            return False

    def _prepare(self) -> None:
        unfinished = self._root / UNFINISHED
        self._make_folder(unfinished)
        self._shared = self._is_shared(self._root)
        with self._calls.scandir(unfinished) as entries:
            left = [Path(entry.path) for entry, _ in zip(entries, range(SWEPT_MAX), strict=False)]
        if left:
            self._sweep(unfinished, left)

    def _sweep(self, unfinished: Path, left: Iterable[Path]) -> None:
        """Removes abandoned files, by the clock that stamps them: the local clock may be wrong by hours."""
        stamp = unfinished / self._tools.make_token()
        self._calls.close(_open_patiently(lambda: self._calls.open(stamp, _NEW_FILE, 0o600)))
        oldest = self._calls.stat(stamp).st_mtime - STALE_AFTER_S
        self._unlink(stamp)
        for path in left:
            try:
                if self._calls.stat(path).st_mtime < oldest:
                    self._unlink(path)
            except FileNotFoundError:
                continue  # its writer has just finished

    def _publish(self, target: Path, data: bytes, appear: Callable[[Path], bool]) -> bool:
        """Writes to a private file, syncs it, publishes it, and syncs the folders.

        Retries if an empty folder is pruned concurrently.
        """
        unfinished = self._root / UNFINISHED / self._tools.make_token()
        try:
            self._write_synced(unfinished, data)
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
            self._unlink(unfinished)

    def _unlink(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._calls.unlink(path)

    def _make_folder(self, folder: Path) -> None:
        """Creates a folder with its parents, each synced into its parent."""
        missing = []
        while not self._is_folder(folder):
            missing.append(folder)
            folder = folder.parent
        for child in reversed(missing):
            try:
                self._calls.mkdir(child, 0o700)
            except FileExistsError:
                if not self._is_folder(child):
                    raise
            if self._is_shared(child.parent) and not self._is_shared(child):
                self._calls.chmod(child, stat.S_ISGID | 0o770)
            self._sync_folder(child.parent)

    def _sync_up(self, folder: Path) -> None:
        """Syncs a folder and its parents: another process may have created one without having synced it yet.

        The folders of the first level are never removed, so it is enough to sync the name of each once.
        """
        below = folder
        while True:
            self._sync_folder(folder)
            if folder == self._root:
                self._named.add(below)
                return
            if folder in self._named:
                return
            below, folder = folder, folder.parent

    def _sync_above(self) -> None:
        """Syncs the folders above the root: their creator may have crashed before it synced them.

        Stops at unreadable folders, which Tidegate has not created, and at mount points: not every file system above
        one can be synced.
        """
        device = self._calls.stat(self._root).st_dev
        with suppress(PermissionError):
            for folder in self._root.parents:
                if self._calls.stat(folder).st_dev != device:
                    return
                self._sync_folder(folder)

    def _prune(self, folder: Path) -> None:
        """Removes empty folders up to, but not including, the first level, whose few folders are in constant use."""
        while self._root not in (folder, folder.parent):
            try:
                self._calls.rmdir(folder)
            except OSError:
                return  # not empty or already removed
            folder = folder.parent

    def _walk(self, folder: Path, prefix: str, *, names_unreadable: bool) -> Iterator[str]:
        try:
            entries = sorted(_open_patiently(lambda: self._calls.scandir(folder)), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except PermissionError:
            if not (names_unreadable and prefix):
                raise
            yield prefix
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                below = folder / entry.name
                yield from self._walk(below, f"{prefix}{entry.name}/", names_unreadable=names_unreadable)
            else:
                yield prefix + entry.name

    def _path(self, name: str) -> Path:
        check_name(name)
        return self._root / name

    def _is_folder(self, path: Path) -> bool:
        try:
            return stat.S_ISDIR(self._calls.stat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _is_shared(self, folder: Path) -> bool:
        """Returns whether the folder's creator has shared it with a group."""
        mode = self._calls.stat(folder).st_mode
        return bool(mode & stat.S_ISGID) and mode & stat.S_IRWXG == stat.S_IRWXG

    def _write_synced(self, path: Path, data: bytes) -> None:
        descriptor = _open_patiently(lambda: self._calls.open(path, _NEW_FILE, 0o600))
        try:
            if self._shared:
                self._calls.fchmod(descriptor, 0o660)  # regardless of the umask
            write_all(self._calls, descriptor, data)
            self._calls.fsync(descriptor)
        finally:
            self._calls.close(descriptor)

    def _sync_folder(self, folder: Path) -> None:
        descriptor = _open_patiently(lambda: self._calls.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        try:
            self._calls.fsync(descriptor)
        finally:
            self._calls.close(descriptor)

    def _guard(self, operation: str, name: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except OSError as failure:
            raise describe_failure(self.location, operation, name, failure) from failure


def remove_empty(url: str) -> None:
    """Removes a directory whose objects were all deleted; keeps one that contains anything."""
    root = directory_of(url)
    for folder in (*(entry for entry in root.iterdir() if entry.is_dir()), root):
        with suppress(OSError):
            folder.rmdir()


def directory_of(url: str) -> Path:
    """Returns the directory of a path or `file:///directory`. Raises StorageError."""
    path = url
    if url.startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
            raise StorageError(f"{url}: a file address has three slashes and an absolute path: file:///directory")
        path = unquote(parts.path)
    if "\0" in path:
        raise StorageError(f"{path!r}: a path cannot hold a NUL byte: name another directory")
    return Path(path).absolute()


def _open_patiently(opening: Callable[[], T]) -> T:
    """Returns the result of `opening`; waits while the process or the machine has run out of descriptors.

    Others release descriptors within moments (a flood of connections, another process's burst). If a journal append
    failed for this reason, the attempt would end. `opening` must have had no effect when it fails. Raises OSError.
    """
    deadline = time.monotonic() + DESCRIPTOR_WAIT_S
    while True:
        try:
            return opening()
        except OSError as failure:
            if failure.errno not in _NONE_LEFT or time.monotonic() >= deadline:
                raise
        time.sleep(DESCRIPTOR_PAUSE_S)
