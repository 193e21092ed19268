"""Files that are replaced while a daemon runs for years, certificates above all (ADR 70)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from tidegate.errors import TidegateError

T = TypeVar("T")


class Renewed(Generic[T]):
    """What is made of files, and made again when one of them has changed.

    Files that cannot be used (half of them is written) leave in use what was made of the former ones, and `complain` is
    called with the reason. Raises what `make` raises, when it is made.
    """

    def __init__(self, files: Iterable[str | None], make: Callable[[], T], complain: Callable[[str], None]) -> None:
        self._files = [file for file in files if file is not None]
        self._make = make
        self._complain = complain
        self._stamp = stamp_files(self._files)
        self._made = make()

    def get(self) -> T:
        """Of the files as they are now."""
        stamp = stamp_files(self._files)
        if stamp != self._stamp:
            try:
                self._made, self._stamp = self._make(), stamp
            except TidegateError as refused:
                self._complain(f"{refused.message}; the former ones stay in use")
        return self._made


def stamp_files(files: Iterable[str]) -> tuple[tuple[int, int, int], ...]:
    """Differs when one of them has changed; of a folder, when something in it was added, removed or renamed."""
    return tuple(map(_look, files))


def _look(file: str) -> tuple[int, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size
