"""A file system that all processes share, including what a power cut leaves of it.

Pure: it has no time or randomness of its own. The contents of a file are durable after an fsync of the file, and a name
is durable after an fsync of its folder. Anything else may be lost or kept independently. Real file systems lose less;
programs may rely on no more than this.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

ROOT_MODE: Final = 0o755


class File:
    """A file's contents, and which of them are durable."""

    __slots__ = ("changed_s", "data", "mode", "synced")

    def __init__(self, changed_s: float, mode: int) -> None:
        self.data = b""
        self.synced = b""
        self.mode = stat.S_IFREG | mode
        self.changed_s = changed_s


class Folder:
    """Entries, and which of them are durable."""

    __slots__ = ("changed_s", "entries", "mode", "synced")

    def __init__(self, changed_s: float, mode: int) -> None:
        self.entries: dict[str, Node] = {}
        self.synced: dict[str, Node] = {}
        self.mode = stat.S_IFDIR | mode
        self.changed_s = changed_s


Node = File | Folder


class Disk:
    """Files by absolute path. Every call raises OSError as the system does."""

    def __init__(self) -> None:
        self._root = Folder(0.0, ROOT_MODE)

    def find(self, path: Path) -> Node:
        """Returns the file or folder at a path."""
        return self._find(path, path.parts)

    def create(self, path: Path, now_s: float, mode: int) -> File:
        """Creates an empty file."""
        folder = self._parent(path)
        if path.name in folder.entries:
            raise failure(errno.EEXIST, path)
        made = File(now_s, mode)
        folder.entries[path.name] = made
        return made

    def mkdir(self, path: Path, now_s: float, mode: int) -> None:
        """Creates a folder."""
        folder = self._parent(path)
        if path.name in folder.entries:
            raise failure(errno.EEXIST, path)
        folder.entries[path.name] = Folder(now_s, mode)

    def rmdir(self, path: Path) -> None:
        """Removes an empty folder."""
        folder, node = self._parent(path), self.find(path)
        if not isinstance(node, Folder):
            raise failure(errno.ENOTDIR, path)
        if node.entries:
            raise failure(errno.ENOTEMPTY, path)
        del folder.entries[path.name]

    def unlink(self, path: Path) -> None:
        """Removes the name of a file."""
        folder = self._parent(path)
        if isinstance(self.find(path), Folder):
            raise failure(errno.EISDIR, path)
        del folder.entries[path.name]

    def link(self, path: Path, other: Path) -> None:
        """Adds a second name to a file."""
        node, folder = self.find(path), self._parent(other)
        if other.name in folder.entries:
            raise failure(errno.EEXIST, other)
        folder.entries[other.name] = node

    def replace(self, path: Path, other: Path) -> None:
        """Renames a file atomically."""
        node, folder, before = self.find(path), self._parent(other), self._parent(path)
        if isinstance(folder.entries.get(other.name), Folder):
            raise failure(errno.EISDIR, other)
        folder.entries[other.name] = node
        del before.entries[path.name]

    def copy(self, path: Path, other: Path) -> None:
        """Copies the current contents of a folder durably."""
        folder = self.find(path)
        assert isinstance(folder, Folder)
        self._parent(other).entries[other.name] = copied = _copied(folder)
        self._parent(other).synced[other.name] = copied

    def mount(self, path: Path, folder: Folder) -> Folder:
        """Replaces the folder at a path and returns the previous one. Open files are not affected."""
        parent, before = self._parent(path), self.find(path)
        assert isinstance(before, Folder)
        parent.entries[path.name] = parent.synced[path.name] = folder
        return before

    def walk(self, path: Path) -> Iterator[tuple[str, File]]:
        """Yields all files below a folder with their relative names; none if the folder does not exist."""
        try:
            folder = self.find(path)
        except FileNotFoundError:
            return
        assert isinstance(folder, Folder)
        yield from _walk(folder, "")

    def cut_power(self, keeps: Callable[[], bool]) -> None:
        """Cuts the power. Only durable data is sure to survive; `keeps` decides about everything else."""
        _settle(self._root, keeps, set())

    def _find(self, path: Path, parts: tuple[str, ...]) -> Node:
        node: Node = self._root
        for part in parts[1:]:
            if not isinstance(node, Folder):
                raise failure(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                raise failure(errno.ENOENT, path)
            node = found
        return node

    def _parent(self, path: Path) -> Folder:
        folder = self._find(path, path.parts[:-1])
        if not isinstance(folder, Folder):
            raise failure(errno.ENOTDIR, path)
        return folder


def sync(node: Node) -> None:
    """Makes a file or folder durable, as fsync does."""
    if isinstance(node, File):
        node.synced = node.data
    else:
        node.synced = dict(node.entries)


def failure(code: int, path: Path | None = None) -> OSError:
    """Builds the error that the system would raise."""
    return OSError(code, os.strerror(code), None if path is None else str(path))


def _copied(folder: Folder) -> Folder:
    made = Folder(folder.changed_s, 0)
    made.mode = folder.mode
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            made.entries[name] = _copied(node)
            continue
        file = File(node.changed_s, 0)
        file.mode, file.data, file.synced = node.mode, node.data, node.data
        made.entries[name] = file
    made.synced = dict(made.entries)
    return made


def _walk(folder: Folder, prefix: str) -> Iterator[tuple[str, File]]:
    for name, node in sorted(folder.entries.items()):
        if isinstance(node, File):
            yield prefix + name, node
        else:
            yield from _walk(node, f"{prefix}{name}/")


def _settle(node: Node, keeps: Callable[[], bool], seen: set[int]) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, File):
        if node.data != node.synced and not keeps():
            node.data = node.synced if keeps() else node.data[: len(node.data) // 2]
        node.synced = node.data
        return
    for name in sorted(node.entries.keys() | node.synced.keys()):
        now, durable = node.entries.get(name), node.synced.get(name)
        left = now if now is durable or keeps() else durable
        if left is None:
            node.entries.pop(name, None)
        else:
            node.entries[name] = left
            _settle(left, keeps, seen)
    node.synced = dict(node.entries)
