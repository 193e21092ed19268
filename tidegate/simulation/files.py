"""The system calls of one process on the simulated disk. They can be late, fail, or be the last action of the process.

Each call is a fault point. Calls that create, remove or read an object are named after the storage operation:
`put_if_absent` is the link, `put` the rename, `get` the opening, `delete` the removal of a name, and `list` the reading
of a folder. The others are `create`, `write`, `fsync` and `mkdir`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from typing_extensions import override

from tidegate.simulation.disk import Disk, File, Folder, Node, failure, sync
from tidegate.simulation.kernel import SimKilled, VirtualProcess, generator
from tidegate.storage.files import FileTools, SystemCalls
from tidegate.storage.local import UNFINISHED

if TYPE_CHECKING:
    from tidegate.simulation.faults import FaultPlan
    from tidegate.simulation.port import StorageOutage

T = TypeVar("T")

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
FULL: Final = frozenset({"create", "write", "mkdir"})
"""Operations that a full disk refuses."""


class SimFileTools(FileTools):
    """The file tools of one process."""

    def __init__(self, process: VirtualProcess, disk: Disk, faults: FaultPlan, outage: StorageOutage) -> None:
        self.calls = SimCalls(process, disk, faults, outage)
        self._process = process
        self._tokens = 0

    @override
    def make_token(self) -> str:
        self._tokens += 1
        return f"{self._process.name}-{self._tokens}"


class _Open:
    """An open file descriptor."""

    __slots__ = ("at", "node", "path")

    def __init__(self, node: Node, path: Path) -> None:
        self.node = node
        self.path = path
        self.at = 0


class SimCalls(SystemCalls):
    """System calls on the simulated disk. An effect happens at one moment, and only while the process is alive."""

    def __init__(self, process: VirtualProcess, disk: Disk, faults: FaultPlan, outage: StorageOutage) -> None:
        self._process = process
        self._kernel = process.kernel
        self._disk = disk
        self._faults = faults
        self._outage = outage
        self._random = generator(process.kernel.seed, f"storage/{process.name}")
        self._opened: dict[int, _Open] = {}
        self._last = 2

    @override
    def open(self, path: Path, flags: int, mode: int = 0o777, /) -> int:
        if flags & os.O_CREAT:
            node: Node = self._call("create", path, lambda: self._disk.create(path, self._now_s, mode))
        elif flags & os.O_DIRECTORY:
            node = self._at_once(lambda: self._disk.find(path))
        else:
            node = self._call("get", path, lambda: self._disk.find(path), slow=True)
        self._last += 1
        self._opened[self._last] = _Open(node, path)
        return self._last

    @override
    def read(self, descriptor: int, length: int, /) -> bytes:
        opened = self._opened[descriptor]
        if not isinstance(opened.node, File):
            raise failure(errno.EISDIR, opened.path)
        part = opened.node.data[opened.at : opened.at + length]
        opened.at += len(part)
        return part

    @override
    def pread(self, descriptor: int, length: int, offset: int, /) -> bytes:
        opened = self._opened[descriptor]
        if not isinstance(opened.node, File):
            raise failure(errno.EISDIR, opened.path)
        return opened.node.data[offset : offset + length]

    @override
    def write(self, descriptor: int, data: memoryview, /) -> int:
        """Appends data to a file."""
        opened = self._opened[descriptor]
        node = opened.node
        assert isinstance(node, File)

        def effect() -> int:
            node.data += bytes(data)
            node.changed_s = self._now_s
            return len(data)

        return self._call("write", opened.path, effect)

    @override
    def fsync(self, descriptor: int, /) -> None:
        opened = self._opened[descriptor]
        self._call("fsync", opened.path, lambda: sync(opened.node), slow=isinstance(opened.node, File))

    @override
    def close(self, descriptor: int, /) -> None:
        del self._opened[descriptor]

    @override
    def fchmod(self, descriptor: int, mode: int, /) -> None:
        self._opened[descriptor].node.mode = stat.S_IFREG | mode

    @override
    def chmod(self, path: Path, mode: int, /) -> None:
        self._at_once(lambda: self._disk.find(path)).mode = stat.S_IFDIR | mode

    @override
    def stat(self, path: Path, /) -> Any:
        return _stat_of(self._at_once(lambda: self._disk.find(path)))

    @override
    def scandir(self, path: Path, /) -> _Entries:
        folder = self._call("list", path, lambda: self._disk.find(path), slow=True)
        if not isinstance(folder, Folder):
            raise failure(errno.ENOTDIR, path)
        return _Entries(path, dict(folder.entries))

    @override
    def mkdir(self, path: Path, mode: int = 0o777, /) -> None:
        self._call("mkdir", path, lambda: self._disk.mkdir(path, self._now_s, mode))

    @override
    def rmdir(self, path: Path, /) -> None:
        self._at_once(lambda: self._disk.rmdir(path))

    @override
    def unlink(self, path: Path, /) -> None:
        if path.parent.name == UNFINISHED:
            self._at_once(lambda: self._disk.unlink(path))
        else:
            self._call("delete", path, lambda: self._disk.unlink(path), slow=True)

    @override
    def link(self, path: Path, other: Path, /) -> None:
        self._call("put_if_absent", other, lambda: self._disk.link(path, other), slow=True)

    @override
    def replace(self, path: Path, other: Path, /) -> None:
        self._call("put", other, lambda: self._disk.replace(path, other), slow=True)

    @property
    def _now_s(self) -> float:
        return self._kernel.clock.now_ms() / 1000

    def _at_once(self, effect: Callable[[], T]) -> T:
        self._kernel.check_alive()
        return effect()

    def _call(self, point: str, path: Path, effect: Callable[[], T], *, slow: bool = False) -> T:
        kernel, process = self._kernel, self._process
        kernel.check_alive()
        fault = self._faults.strike(f"{process.kind}.storage.{point}")
        kind = ""
        if fault is not None:
            kind = fault.kind
            kernel.trace.tell(f"{process.name}: {fault} ({path})")
        if kind == "crash-before":
            process.kill(str(fault))
            raise SimKilled
        if slow or kind == "slow":
            kernel.block(self._way_s() + (fault.seconds if fault is not None and kind == "slow" else 0.0))
        if kind == "lose-before" or self._outage.away > kernel.now:
            full = point in FULL and self._random.random() < 0.5
            raise failure(errno.ENOSPC if full else errno.EIO, path)
        try:
            result = effect()
        except OSError as error:
            if slow:
                kernel.trace.tell(f"{process.name} {point} {path}: {errno.errorcode[error.errno or 0]}")
            raise
        if slow and point not in ("list", "fsync"):
            kernel.trace.tell(f"{process.name} {point} {path}")
        if kind == "crash-after":
            process.kill(str(fault))
            raise SimKilled
        if point in ("put_if_absent", "put"):
            kernel.block(self._way_s())
        if kind == "lose-after":
            raise failure(errno.EIO, path)
        return result

    def _way_s(self) -> float:
        return self._random.uniform(*self._outage.way_s)


class _Entries:
    """The result of `scandir`: a context manager over its entries."""

    def __init__(self, path: Path, entries: dict[str, Node]) -> None:
        self._found = [_Entry(path, name, node) for name, node in entries.items()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __iter__(self) -> Iterator[_Entry]:
        return iter(self._found)


class _Entry:
    """The part of `os.DirEntry` that is used."""

    def __init__(self, folder: Path, name: str, node: Node) -> None:
        self.name = name
        self.path = f"{folder}/{name}"
        self._node = node

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:  # noqa: ARG002 - there are no symbolic links
        """Returns whether the entry is a folder."""
        return isinstance(self._node, Folder)

    def stat(self, *, follow_symlinks: bool = True) -> Any:  # noqa: ARG002 - there are no symbolic links
        """Returns the part of `os.stat_result` that is used."""
        return _stat_of(self._node)


class Objects(MutableMapping[str, bytes]):
    """The objects in a folder of the disk, for code outside the product that reads or damages them."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = Path(folder)

    def __getitem__(self, name: str) -> bytes:
        return self._file(name).data

    def __setitem__(self, name: str, data: bytes) -> None:
        path = self._folder / name
        for folder in reversed(path.parents):
            try:
                self._disk.find(folder)
            except FileNotFoundError:
                self._disk.mkdir(folder, 0.0, FOLDER_MODE)
        file = self._file(name) if name in self else self._disk.create(path, 0.0, FILE_MODE)
        file.data = file.synced = data

    def __delitem__(self, name: str) -> None:
        self._disk.unlink(self._folder / name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._disk.walk(self._folder) if not name.startswith(f"{UNFINISHED}/"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _file(self, name: str) -> File:
        try:
            found = self._disk.find(self._folder / name)
        except FileNotFoundError as error:
            raise KeyError(name) from error
        if isinstance(found, Folder):
            raise KeyError(name)
        return found


def _stat_of(node: Node) -> Any:
    return SimpleNamespace(st_mode=node.mode, st_mtime=node.changed_s, st_dev=0, st_ino=id(node))
