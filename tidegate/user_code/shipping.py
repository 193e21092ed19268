"""Transfers the files of `code:` from the daemon's machine to the checkpoint storage, and from there to the executors.

    code/<sha256>/000000                       a part of a file in the checkpoint storage
    TMPDIR/tidegate-code-<user id>/<sha256>/   on a machine: `content/<name>`, and `unpacked/` of a wheel

Both are found by content, so nothing is transferred twice, and a daemon and its predecessor may use different files of
one name. Every attempt puts what is missing into the storage before its slots start, and deletes what its plan does not
name. So if a daemon that was just superseded deletes a file, the next attempt puts it back. A file is complete in the
storage if it has all of its parts; the last one is written when the content of all parts is known to be right.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from tidegate.errors import AttemptFailed, PipelineStopped
from tidegate.storage.base import Storage, StorageReader
from tidegate.storage.files import own_root, sweep_folders, take_folder, write_all
from tidegate.storage.names import CODE_PREFIX, code_name
from tidegate.user_code.files import NO_FILES, CodeFile, CodeFiles, LocalFile, is_unpacked, unpack_wheel

PART_BYTES: Final = 16 << 20
"""A file is transferred in parts of this size: one is in memory at a time."""
PREFIX: Final = "tidegate-code-"
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class CodeFileChanged(PipelineStopped):
    """A file of `code:` is not what it was when the daemon started, and the storage does not have it either."""

    code = "code-file-changed"
    exit_code = 2


class CodeFileDamaged(PipelineStopped):
    """A file of `code:` in the checkpoint storage is not what the daemon has put there."""

    code = "code-file-damaged"


class CodeDirectoryFull(AttemptFailed):
    """An executor's machine cannot hold the files of `code:`."""

    code = "code-directory-full"


# -- storage -----------------------------------------------------------------------------------------------------------


def put_code(storage: Storage, files: Sequence[LocalFile]) -> int:
    """Puts files into the storage that it does not have, and deletes those that are not listed. Returns the number of
    bytes written.

    Called by the owner of the pipeline only. Raises CodeFileChanged, StorageError.
    """
    there = frozenset(storage.list(CODE_PREFIX))
    wanted: set[str] = set()
    written = 0
    for one in files:
        names = _part_names(one.file)
        wanted.update(names)
        if not there.issuperset(names):
            _put(storage, one, names)
            written += one.file.size_bytes
    storage.delete_all(sorted(there - wanted))
    return written


def read_code(storage: StorageReader, file: CodeFile) -> Iterator[bytes]:
    """Yields the parts of a file in the storage. Raises StorageError."""
    for name in _part_names(file):
        yield storage.get(name)


def _part_names(file: CodeFile) -> list[str]:
    return [code_name(file.sha256, part) for part in range(max(1, -(-file.size_bytes // PART_BYTES)))]


def _put(storage: Storage, one: LocalFile, names: Sequence[str]) -> None:
    digest = hashlib.sha256()
    try:
        with one.path.open("rb") as stream:
            for name in names:
                data = stream.read(PART_BYTES)
                digest.update(data)
                if name == names[-1] and digest.hexdigest() != one.file.sha256:
                    raise _changed(one, "has changed since the start")
                storage.put(name, data)
    except OSError as error:
        raise _changed(one, f"can no longer be read: {error.strerror or error}") from error


def _changed(one: LocalFile, what: str) -> CodeFileChanged:
    return CodeFileChanged(
        f"`code`: {one.path} {what}, and the checkpoint directory does not have its former content; start the daemon "
        "again to use the file as it is now",
        file=one.file.name,
    )


# -- machines ----------------------------------------------------------------------------------------------------------


class CodeDirectory:
    """A directory of this machine that holds files of `code:` by content, shared by all processes of this user.

    Nothing in it is trusted: whatever does not match its checksum is replaced. Raises OSError.
    """

    def __init__(self, base: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if base is None else base
        self._root = own_root(parent, PREFIX)
        sweep_folders(parent, PREFIX)
        self._used = ExitStack()

    def fetch(self, file: CodeFile, read: Callable[[], Iterable[bytes]]) -> Path:
        """Returns the path of a file. Reads its content if it is not here. Raises CodeFileDamaged, OSError."""
        folder = self._use(file)
        path = folder / "content" / file.name
        if _is_intact(path, file):
            return path
        with _locked(folder):
            if not _is_intact(path, file):  # another process may have fetched it meanwhile
                path.parent.mkdir(mode=0o700, exist_ok=True)
                unfinished = folder / "unfinished"
                if _write(unfinished, read()) != file.sha256:
                    raise CodeFileDamaged(
                        f"`code`: {file.name} in the checkpoint directory does not match its checksum; delete the "
                        f"folder {CODE_PREFIX}{file.sha256} there: the next start puts it back",
                        file=file.name,
                    )
                unfinished.replace(path)
        return path

    def unpack(self, file: CodeFile, wheel: Path) -> Path:
        """Returns a directory with the content of a wheel. Raises OSError."""
        folder = self._use(file)
        directory, unfinished = folder / "unpacked", folder / "unpacking"
        if is_unpacked(wheel, directory):
            return directory
        with _locked(folder):
            if not is_unpacked(wheel, directory):
                for former in (directory, unfinished):
                    shutil.rmtree(former, ignore_errors=True)
                unpack_wheel(wheel, unfinished)
                unfinished.rename(directory)
        return directory

    def close(self) -> None:
        """Ends the use of the folders; they stay for the next process."""
        self._used.close()

    def _use(self, file: CodeFile) -> Path:
        """Returns the folder of a content. Nobody removes it before `close`."""
        folder = self._root / file.sha256
        self._used.callback(os.close, take_folder(folder))
        return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other processes from changing a folder."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def fetch_code(storage: StorageReader, files: Sequence[CodeFile], base: Path | None = None) -> CodeFiles:
    """Returns the files of a plan on this machine, fetched from the storage if they are not here yet.

    Raises CodeFileDamaged, CodeDirectoryFull, StorageError.
    """

    def fetch(directory: CodeDirectory, file: CodeFile) -> Path:
        return directory.fetch(file, lambda: read_code(storage, file))

    return _open(files, fetch, base)


def local_code(files: Sequence[LocalFile], base: Path | None = None) -> CodeFiles:
    """Returns the files on the machine that has the pipeline file. Data files stay where they are.

    Raises CodeDirectoryFull.
    """
    paths = {one.file: one.path for one in files}
    if not any(file.is_wheel for file in paths):
        return CodeFiles({file.name: path for file, path in paths.items()})
    return _open([one.file for one in files], lambda _, file: paths[file], base)


def _open(files: Sequence[CodeFile], locate: Callable[[CodeDirectory, CodeFile], Path], base: Path | None) -> CodeFiles:
    if not files:
        return NO_FILES
    data: dict[str, Path] = {}
    wheels: list[Path] = []
    with ExitStack() as opened:
        try:
            directory = CodeDirectory(base)
            opened.callback(directory.close)
            for file in files:
                path = locate(directory, file)
                if file.is_wheel:
                    wheels.append(directory.unpack(file, path))
                else:
                    data[file.name] = path
        except OSError as failure:
            raise CodeDirectoryFull(
                f"the files of `code` cannot be kept below the temporary directory of this machine (TMPDIR): {failure}"
            ) from failure
        return CodeFiles(data, wheels, opened.pop_all().close)


def _is_intact(path: Path, file: CodeFile) -> bool:
    with suppress(OSError), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    return False


def _write(path: Path, parts: Iterable[bytes]) -> str:
    """Writes a file and returns the digest of its content. Unsynced: a damaged file is replaced by the next process."""
    digest = hashlib.sha256()
    descriptor = os.open(path, _NEW_FILE, 0o600)
    try:
        for data in parts:
            digest.update(data)
            write_all(os, descriptor, data)
    finally:
        os.close(descriptor)
    return digest.hexdigest()
