"""Models what a power cut may leave of a directory: only what was synced is certain.

The content of a file is certain as of its last fsync, the names in a folder as of the folder's last fsync (POSIX
guarantees no more). What was not synced may or may not survive. Two extremes are produced: nothing of it, and all names
without their contents.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.support.crash_tracer import Call

_SYNCS: Final = frozenset({"fsync", "fdatasync"})
_MAKES: Final = frozenset({"open", "openat", "creat", "mkdir", "mkdirat"})

Names = dict[str, int]


class Disk:
    """Tracks the calls on `root`, whose initial content is certain."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, Names] = {}
        self._folders: set[int] = set()
        for place in [root, *root.rglob("*")]:
            self._note(place)

    def after(self, call: Call) -> None:
        """Notes that a call was made; uncounted calls may have preceded it."""
        place = self._root / call.path
        if call.name in _SYNCS and place.exists():
            self._note(place)
        elif call.name in _MAKES and place.exists():
            number = place.stat().st_ino  # the inode may have been reused
            self._contents.pop(number, None)
            self._names.pop(number, None)
            (self._folders.add if place.is_dir() else self._folders.discard)(number)

    def write_image(self, target: Path, *, names_survive: bool) -> None:
        """Creates a directory as this one may look after a power cut."""
        if names_survive:
            names = {
                place.stat().st_ino: _list(place) for place in [self._root, *self._root.rglob("*")] if place.is_dir()
            }
        else:
            names = self._names
        self._folders |= names.keys()
        self._write(self._root.stat().st_ino, target, names)

    def _write(self, folder: int, target: Path, names: dict[int, Names]) -> None:
        target.mkdir()
        for name, number in names.get(folder, {}).items():
            if number in self._folders:
                self._write(number, target / name, names)
            else:
                (target / name).write_bytes(self._contents.get(number, b""))

    def _note(self, place: Path) -> None:
        number = place.stat().st_ino
        if place.is_dir():
            self._folders.add(number)
            self._names[number] = _list(place)
        else:
            self._contents[number] = place.read_bytes()


def _list(folder: Path) -> Names:
    return {place.name: place.stat().st_ino for place in sorted(folder.iterdir())}
