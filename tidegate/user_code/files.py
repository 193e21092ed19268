"""Wheels and data files that a pipeline file lists under `code:`, identified by name and content."""

from __future__ import annotations

import hashlib
import os
import stat
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidegate.user_code.modules import UserCodeProblem
from tidegate.user_code.wheels import SUFFIX, check_wheel, distribution_of

BYTES_MAX: Final = 1 << 30
"""The maximum size of a file."""
DIGEST_SHOWN: Final = 12
_IMAGE: Final = "put it into the image of the executors, or on a volume that they mount, and open it by its path there"


class CodeFile(msgspec.Struct, frozen=True):
    """A file of `code:`, as the slots know it."""

    name: str
    """Without directories; unique in a pipeline."""
    sha256: str
    size_bytes: int

    @property
    def is_wheel(self) -> bool:
        """True if its modules can be imported; all other files are data."""
        return self.name.endswith(SUFFIX)

    def __str__(self) -> str:
        return f"{self.name} {self.sha256[:DIGEST_SHOWN]}"


class LocalFile(msgspec.Struct, frozen=True):
    """A file of `code:` on the machine that has the pipeline file."""

    file: CodeFile
    path: Path


def _hold_nothing() -> None:
    """The release of files that nothing has to be kept for."""


class CodeFiles:
    """The files of `code:` where user code runs: paths of data files, and directories that hold the unpacked wheels."""

    def __init__(
        self, data: Mapping[str, Path], wheels: Sequence[Path] = (), release: Callable[[], None] = _hold_nothing
    ) -> None:
        """`release` is called once, by `close` or when this object is no longer used."""
        self.wheels = tuple(wheels)
        self._data = dict(data)
        self._release = weakref.finalize(self, release)

    def path(self, name: str) -> Path:
        """Returns the path of a data file. Raises FileNotFoundError, which is for the author of the user code."""
        try:
            return self._data[name]
        except KeyError:
            known = ", ".join(f"`{one}`" for one in self._data)
            have = f"it lists {known}" if known else "it lists no data files"
            raise FileNotFoundError(f"`code` of the pipeline file lists no data file `{name}`; {have}") from None

    def close(self) -> None:
        """Ends the use of the files."""
        self._release()


NO_FILES: Final = CodeFiles({})


def read_code_files(directory: Path, paths: Sequence[str]) -> tuple[tuple[LocalFile, ...], dict[int, UserCodeProblem]]:
    """Reads the files at these paths, relative to the directory. Returns the problems of others by their place."""
    found: list[LocalFile] = []
    problems: dict[int, UserCodeProblem] = {}
    for place, path in enumerate(paths):
        try:
            _check_names(path, paths[:place])
            found.append(read_code_file(directory / path))
        except UserCodeProblem as problem:
            problems[place] = problem
    return tuple(found), problems


def read_code_file(path: Path) -> LocalFile:
    """Reads, checks and hashes a file. Raises UserCodeProblem."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserCodeProblem(f"{path} is a directory", "list its files, or make a wheel of a package")
        if not stat.S_ISREG(mode):
            raise UserCodeProblem(f"{path} is not a regular file", "list files only")
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > BYTES_MAX:
                raise UserCodeProblem(f"{path} is larger than {BYTES_MAX >> 30} GiB", _IMAGE)
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            file = CodeFile(path.name, digest, stream.tell())
    except OSError as error:
        raise UserCodeProblem(
            f"{path} cannot be read: {error.strerror or error}",
            "a path is relative to the directory of the pipeline file",
        ) from error
    if file.is_wheel:
        check_wheel(path)
    return LocalFile(file, path.absolute())


def _check_names(path: str, others: Sequence[str]) -> None:
    """Checks that a file has another name than those listed before it. Raises UserCodeProblem."""
    name = Path(path).name
    for other in others:
        if Path(other).name == name:
            raise UserCodeProblem(f"`{other}` has the same name, `{name}`", "rename one: steps open it by this name")
        both = name.endswith(SUFFIX) and other.endswith(SUFFIX)
        if both and distribution_of(name) == distribution_of(Path(other).name):
            raise UserCodeProblem(f"`{other}` is also a wheel of `{distribution_of(name)}`", "list one of them")
