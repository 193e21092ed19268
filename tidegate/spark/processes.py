"""Which processes belong to a daemon, read from /proc: slots, executors. Linux only, as Spark's executors are here."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

FORK_SERVER: Final = "tidegate.slot.fork_server"
"""The module that executors fork slots from, unless a pipeline file names Spark's own."""
_FORK_SERVERS: Final = (FORK_SERVER, "pyspark.daemon")
_ZOMBIE = "Z"


class Process(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    state: str
    command: str


def read_processes() -> dict[int, Process]:
    """All processes that can be read; zombies included (state Z)."""
    found: dict[int, Process] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended meanwhile
            continue
        found[int(entry.name)] = Process(int(entry.name), int(fields[1]), fields[0], command)
    return found


def is_alive(pid: int) -> bool:
    """Running or stopped, not a zombie."""
    process = read_processes().get(pid)
    return process is not None and process.state != _ZOMBIE


def find_descendants(root: int) -> list[Process]:
    """Everything below a process, parents first."""
    table = read_processes()
    found: list[Process] = []
    wanted = [root]
    while wanted:
        parent = wanted.pop(0)
        below = [process for process in table.values() if process.parent == parent and process.state != _ZOMBIE]
        found += below
        wanted += [process.pid for process in below]
    return found


def find_slots(root: int) -> list[int]:
    """Python workers: forks of an executor's fork server, with its command line."""
    below = find_descendants(root)
    forked = [process for process in below if any(module in process.command for module in _FORK_SERVERS)]
    servers = {process.pid for process in forked}
    return [process.pid for process in forked if process.parent in servers]
