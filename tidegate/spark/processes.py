"""Finds the processes of a daemon in /proc: slots and executors. Linux only, as are the local executors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidegate.slot.fork_guard import SERVER

_SERVES: Final = re.compile(rf"(^| )-m ({re.escape(SERVER)}|pyspark\.daemon)( |$)")
"""Matches the command line of a fork server and its forks. The driver's JVM has the module's name in a setting."""
_ZOMBIE = "Z"


class OsProcess(NamedTuple):
    """One row of the process table."""

    pid: int
    parent: int
    state: str
    command: str


def read_processes() -> dict[int, OsProcess]:
    """Reads all visible processes, including zombies (state Z)."""
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
    """Returns whether the process is running or stopped, and not a zombie."""
    process = read_processes().get(pid)
    return process is not None and process.state != _ZOMBIE


def find_descendants(root: int) -> list[OsProcess]:
    """Lists all descendants of a process, parents first."""
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
    """Lists the Python workers: forks of an executor's fork server, with its command line."""
    return choose_slots(find_descendants(root))


def choose_slots(below: Sequence[OsProcess]) -> list[int]:
    """Selects the forks of servers. A server's parent is the daemon, or its guard."""
    forked = {process.pid: process for process in below if _SERVES.search(process.command)}
    servers = {pid for pid, process in forked.items() if process.parent not in forked}
    return [pid for pid, process in forked.items() if process.parent in servers]
