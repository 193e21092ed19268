"""`tidegate run` with a small disk of its own: `python -m tests.support.small_disk DIRECTORY MIB FILE`.

DIRECTORY is a tmpfs of that size in a mount namespace of the daemon and its child processes. This requires no
permission except to create a namespace, and the disk disappears with the processes. It is accessible from outside
through /proc (`view`).
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Final

SCRIPT: Final = 'mount -t tmpfs -o size="$2"m tmpfs "$1" && shift 2 && exec "$@"'
FILLER: Final = "filler"
_BLOCK: Final = bytes(1 << 16)


def view(pid: int, directory: Path) -> Path:
    """Returns the directory as that process sees it."""
    return Path(f"/proc/{pid}/root{directory.absolute()}")


def fill(directory: Path) -> int:
    """Fills the disk and returns the number of bytes written."""
    taken = 0
    with (directory / FILLER).open("ab", buffering=0) as file:
        for block in (_BLOCK, _BLOCK[:512]):
            try:
                while True:
                    taken += file.write(block)
            except OSError as full:
                if full.errno != errno.ENOSPC:
                    raise
    return taken


def empty(directory: Path) -> None:
    """Frees the space again."""
    (directory / FILLER).unlink(missing_ok=True)


def main() -> None:
    """Becomes the daemon in the namespace."""
    directory, mib, file = sys.argv[1:]
    Path(directory).mkdir(parents=True, exist_ok=True)
    own = ["--map-root-user"] if os.geteuid() else []
    run = [sys.executable, "-m", "tidegate", "run", file]
    os.execvp("unshare", ["unshare", "--mount", *own, "sh", "-c", SCRIPT, "sh", directory, mib, *run])


if __name__ == "__main__":
    main()
