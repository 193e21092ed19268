"""Whether files have changed since they were read: certificates are replaced while a daemon runs for years."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def stamp_files(files: Iterable[str]) -> tuple[tuple[int, int, int], ...]:
    """Differs when one of them has changed; of a folder, when something in it was added, removed or renamed."""
    return tuple(map(_look, files))


def _look(file: str) -> tuple[int, int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size
