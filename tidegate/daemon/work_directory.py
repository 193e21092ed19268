"""The daemon's temporary directory: Spark's local files and what the JVM is configured by. Nothing that must survive.

Its name carries the process id, so that the next daemon on this machine removes what a killed one has left.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tidegate.daemon.processes import is_alive

_NAME: Final = re.compile(r"tidegate-([0-9]+)-[a-z0-9_]+")


def make_work_directory(parent: Path | None = None) -> Path:
    """A directory of this process below `parent` (the system's temporary directory), after sweeping there."""
    base = parent if parent is not None else Path(tempfile.gettempdir())
    sweep_work_directories(base)
    return Path(tempfile.mkdtemp(prefix=f"tidegate-{os.getpid()}-", dir=base))


def sweep_work_directories(parent: Path) -> list[Path]:
    """Remove directories of daemons that are gone, as far as they are ours to remove; those that were removed."""
    left = [
        entry
        for entry in parent.glob("tidegate-*")
        if (match := _NAME.fullmatch(entry.name)) and entry.is_dir() and not is_alive(int(match[1]))
    ]
    for entry in left:
        shutil.rmtree(entry, ignore_errors=True)  # another user's stays
    return [entry for entry in left if not entry.exists()]
