"""Wheels and data files that a pipeline file lists under `code:`, identified by name and content.

Wheels are pure Python. They are unpacked by content, and imported ahead of installed packages.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import stat
import sys
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from tidegate.user_code.modules import UserCodeProblem

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


# -- wheels ------------------------------------------------------------------------------------------------------------

SUFFIX: Final = ".whl"
UNPACKED_BYTES_MAX: Final = 1 << 30
MEMBERS_MAX: Final = 50_000
_INSTALL: Final = "it belongs in the image of the executors: install it there with pip"
_COMPILED: Final = (".so", ".pyd", ".dylib", ".dll")
_DATA: Final = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
_METADATA: Final = (".dist-info", ".data")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_BROKEN: Final = (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError, UnicodeError)
"""What `zipfile` raises for files that are damaged, encrypted, or compressed in another way."""

_installed: list[str] = []
"""The directories of wheels on `sys.path` of this process."""


def distribution_of(name: str) -> str:
    """Returns the normalized name of the package in a wheel of this file name."""
    return re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower()


def check_wheel(path: Path) -> None:
    """Checks that a wheel is pure Python, and hides no module of Python or Tidegate. Raises UserCodeProblem."""
    parts = path.name.removesuffix(SUFFIX).split("-")
    if len(parts) not in (5, 6):
        raise UserCodeProblem(
            f"`{path.name}` is not the name of a wheel", "build one with `pip wheel .`, and keep its name"
        )
    if parts[-2:] != ["none", "any"]:
        raise UserCodeProblem(f"`{path.name}` is not pure Python, whose wheels end in `-none-any{SUFFIX}`", _INSTALL)
    try:
        with zipfile.ZipFile(path) as wheel:
            members = dict(_members(wheel))
            damaged = wheel.testzip()
    except _BROKEN as error:
        raise UserCodeProblem(f"{path} cannot be read as a wheel: {error}", "build it again") from error
    if damaged is not None:
        raise UserCodeProblem(f"{path} is damaged: {damaged} does not match its checksum", "build it again")
    compiled = next((name for name in members if name.endswith(_COMPILED)), None)
    if compiled is not None:
        raise UserCodeProblem(f"`{path.name}` has a compiled part: {compiled}", _INSTALL)
    for top in sorted(_top_levels(members)):
        if top in sys.stdlib_module_names:
            raise UserCodeProblem(f"`{top}` of `{path.name}` would replace Python's own `{top}`", "rename it")
        if top in _used_by_tidegate():
            raise UserCodeProblem(
                f"`{top}` of `{path.name}` would replace the `{top}` that Tidegate itself uses", "leave it out"
            )


def unpack_wheel(path: Path, directory: Path) -> None:
    """Unpacks a wheel that `check_wheel` has accepted. Raises OSError."""
    try:
        with zipfile.ZipFile(path) as wheel:
            for name, member in _members(wheel):
                target = directory / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(wheel.read(member))
    except UserCodeProblem as problem:
        raise OSError(f"{path}: {problem.message}") from problem
    except _BROKEN as error:
        raise OSError(f"{path} cannot be unpacked: {error}") from error


def is_unpacked(path: Path, directory: Path) -> bool:
    """Returns whether a directory holds all that is in a wheel, byte for byte."""
    try:
        with zipfile.ZipFile(path) as wheel:
            return all((directory / name).read_bytes() == wheel.read(member) for name, member in _members(wheel))
    except OSError:
        return False


def install_wheels(directories: Sequence[Path]) -> None:
    """Makes the modules in these directories importable, ahead of installed modules of the same names.

    A process that has run another deployment forgets the modules of that one.
    """
    wanted = [str(directory) for directory in directories]
    if wanted == _installed:
        return
    for former in _installed:
        sys.path[:] = [one for one in sys.path if one != former]
        _forget(Path(former))
    for directory in directories:
        _forget(directory)
    _installed[:] = wanted
    sys.path[:0] = wanted
    importlib.invalidate_caches()


@contextmanager
def isolate_wheels(directories: Sequence[Path]) -> Iterator[None]:
    """Within the block, modules of these directories are imported anew; afterwards the previous ones are restored."""
    before = {name: sys.modules[name] for one in directories for name in _modules_in(one) if name in sys.modules}
    install_wheels(())
    try:
        yield
    finally:
        install_wheels(())
        sys.modules.update(before)


def _forget(directory: Path) -> None:
    """Removes the modules of a directory from the loaded ones, and no others of a namespace that several share."""
    for name in _modules_in(directory):
        sys.modules.pop(name, None)


def _modules_in(directory: Path) -> Iterator[str]:
    for path in directory.rglob("*.py"):
        parts = path.relative_to(directory).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _members(wheel: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yields the files of a wheel by where they are unpacked. Raises UserCodeProblem."""
    infos = [one for one in wheel.infolist() if not one.is_dir()]
    if len(infos) > MEMBERS_MAX or sum(one.file_size for one in infos) > UNPACKED_BYTES_MAX:
        raise UserCodeProblem(
            f"{wheel.filename} is larger than {UNPACKED_BYTES_MAX >> 30} GiB or {MEMBERS_MAX:,} files when unpacked",
            _INSTALL,
        )
    for member in infos:
        parts = PurePosixPath(member.filename).parts
        if member.filename.startswith("/") or ".." in parts or "\\" in member.filename or _is_link(member):
            raise UserCodeProblem(f"{wheel.filename} has an unsafe entry: {member.filename!r}", "build it again")
        yield _DATA.sub("", member.filename, count=1), member


def _is_link(member: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(member.external_attr >> 16)


def _top_levels(names: dict[str, zipfile.ZipInfo]) -> set[str]:
    """Returns the names by which the modules of a wheel are imported."""
    tops = {PurePosixPath(name).parts[0].removesuffix(".py") for name in names if name.endswith(".py")}
    return {top for top in tops if not top.endswith(_METADATA)}


@cache
def _used_by_tidegate() -> frozenset[str]:
    """Returns the import names of Tidegate and of everything that it requires, without namespaces."""
    tops, waiting, seen = {"tidegate"}, ["tidegate"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # required on other platforms only
            continue
        for path in map(PurePosixPath, found.files or ()):
            if len(path.parts) == 1 and path.suffix == ".py":
                tops.add(path.stem)
            elif path.parts[1:] == ("__init__.py",):
                tops.add(path.parts[0])
        required = [_REQUIREMENT.match(one) for one in found.requires or () if "extra ==" not in one]
        waiting += [one[0] for one in required if one is not None]
    return frozenset(tops)
