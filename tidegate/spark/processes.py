"""Which processes belong to a daemon, read from /proc: slots, executors. Linux only, as Spark's executors are here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

FORK_SERVER: Final = "tidegate.slot.fork_server"
"""The module that executors fork slots from, unless a pipeline file names Spark's own."""
_SERVES: Final = re.compile(rf"(^| )-m ({re.escape(FORK_SERVER)}|pyspark\.daemon)( |$)")
"""In the command line of a fork server and of its forks. The driver's JVM has the module's name in a setting."""
_ZOMBIE = "Z"


class OsProcess(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    state: str
    command: str


def read_processes() -> dict[int, OsProcess]:
    """All processes that can be read; zombies included (state Z)."""
    found: dict[int, OsProcess] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        found[int(entry.name)] = OsProcess(int(entry.name), int(fields[1]), fields[0], command)
    return found


def is_alive(pid: int) -> bool:
    """Running or stopped, not a zombie."""
    process = read_processes().get(pid)
    return process is not None and process.state != _ZOMBIE


def find_descendants(root: int) -> list[OsProcess]:
    """Everything below a process, parents first."""
    table = read_processes()
    found: list[OsProcess] = []
    wanted = [root]
    while wanted:
        parent = wanted.pop(0)
        below = [process for process in table.values() if process.parent == parent and process.state != _ZOMBIE]
        found += below
        wanted += [process.pid for process in below]
    return found


def find_slots(root: int) -> list[int]:
    """Python workers: forks of an executor's fork server, with its command line."""
    return choose_slots(find_descendants(root))


def choose_slots(below: Sequence[OsProcess]) -> list[int]:
    """Those that were forked from a server. A server's parent is a JVM, of an executor or, with none, of the driver."""
    forked = {process.pid: process for process in below if _SERVES.search(process.command)}
    servers = {pid for pid, process in forked.items() if process.parent not in forked}
    return [pid for pid, process in forked.items() if process.parent in servers]
