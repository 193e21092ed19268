"""Files that are replaced while a daemon runs for years, mainly certificates (ADR 70)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from tidegate.errors import TidegateError

T = TypeVar("T")


class Renewed(Generic[T]):
    """A value made from files, and made again when one of them has changed.

    If the files cannot be used (for example because one is half written), the former value remains in use, and
    `complain` is called with the reason. The constructor raises what `make` raises.
    """

    def __init__(self, files: Iterable[str | None], make: Callable[[], T], complain: Callable[[str], None]) -> None:
        self._files = [file for file in files if file is not None]
        self._make = make
        self._complain = complain
        self._stamp = stamp_files(self._files)
        self._made = make()

    def get(self) -> T:
        """Returns the value for the current files."""
        stamp = stamp_files(self._files)
        if stamp != self._stamp:
            try:
                self._made, self._stamp = self._make(), stamp
            except TidegateError as refused:
                self._complain(f"{refused.message}; the former ones stay in use")
        return self._made


def stamp_files(files: Iterable[str]) -> tuple[tuple[int, int, int], ...]:
    """Returns a stamp that differs if a file has changed, or if an entry of a folder was added, removed or renamed."""
    return tuple(map(_look, files))


def _look(file: str) -> tuple[int, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size
