"""`tidegate run` with a small disk of its own: `python -m tests.support.small_disk DIRECTORY MIB FILE`.

DIRECTORY is a tmpfs of that size in a mount namespace of the daemon and what it starts: no right is needed beyond that
to make a namespace, and the disk is gone when they are. From outside it is seen through /proc (`view`).
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
    """The directory as that process sees it."""
    return Path(f"/proc/{pid}/root{directory.absolute()}")


def fill(directory: Path) -> int:
    """Take all space that is left; bytes taken."""
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
    """Give it back."""
    (directory / FILLER).unlink(missing_ok=True)


def main() -> None:
    """Become the daemon, in the namespace."""
    directory, mib, file = sys.argv[1:]
    Path(directory).mkdir(parents=True, exist_ok=True)
    own = ["--map-root-user"] if os.geteuid() else []
    run = [sys.executable, "-m", "tidegate", "run", file]
    os.execvp("unshare", ["unshare", "--mount", *own, "sh", "-c", SCRIPT, "sh", directory, mib, *run])


if __name__ == "__main__":
    main()
