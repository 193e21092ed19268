"""The machines of a world: each process has its own, with its own clocks and mounts."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.simulation.disk import Disk
from tidegate.simulation.files import Objects, SimFileTools
from tidegate.simulation.kernel import SimClock, VirtualProcess, generator
from tidegate.state.rocks import RocksLimits, RocksState

if TYPE_CHECKING:
    from tidegate.simulation.kernel import VirtualProcess
    from tidegate.simulation.world import World
    from tidegate.state.base import GroupsOf
    from tidegate.state.declaration import StateDeclaration

IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a directory of our own is created there
LIMITS: Final = RocksLimits(cache_bytes=1 << 20, write_buffer_bytes=1 << 20)


class LocalDisks:
    """The local disks of one world: real RocksDB in a temporary directory, in memory if possible.

    Their contents are removed with their process or with the world.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._opened: list[_State] = []

    def open(
        self, process: VirtualProcess, operator: str, declaration: StateDeclaration, groups_of: GroupsOf, retained: int
    ) -> RocksState[Any]:
        """Opens a new state for a process."""
        if self._directory is None:
            base = IN_MEMORY if IN_MEMORY.is_dir() else None
            self._directory = Path(tempfile.mkdtemp(prefix="tidegate-simulated-", dir=base))
        state = _State(operator, declaration, groups_of, retained, parent=self._directory, limits=LIMITS)
        self._opened.append(state)
        process.at_death.append(state.close)
        return state

    def close(self) -> None:
        """Removes everything."""
        for state in self._opened:
            state.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


class _State(RocksState[Any]):
    """A state that is closed once, by its process or after its death."""

    _closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            super().close()


BOOTED_S: Final = 1e6
"""Maximum uptime of a machine at virtual second 0."""


class Machines:
    """The machines of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disk = Disk()
        """Holds the checkpoint directory and savepoints; all processes mount it."""
        self.local_disks = LocalDisks()
        self.unshared: set[str] = set()
        """Slots whose machines have nothing mounted at the checkpoint directory."""
        self.apart: set[VirtualProcess] = set()
        """Processes that have started on such a machine."""

    @property
    def files(self) -> Objects:
        """All files on the disk, by absolute paths."""
        return Objects(self.disk, "/")

    def file_tools(self, process: VirtualProcess) -> SimFileTools:
        """Creates the file tools for the storages of a process."""
        unshared = process.alias in self.unshared
        if unshared:
            self.apart.add(process)
        return SimFileTools(process, Disk() if unshared else self.disk, self._world.faults, self._world.storage_outage)

    def set_clock(self, process: VirtualProcess) -> None:
        """Gives a process clocks with errors of their own."""
        seed, workload = self._world.schedule.seed, self._world.schedule.workload
        random = generator(seed, f"clock/{process.name}")
        skew_ms = random.randint(-workload.skew_ms, workload.skew_ms)
        drift = random.uniform(-workload.drift, workload.drift)
        process.clock = SimClock(process.kernel, skew_ms, drift, random.uniform(0.0, BOOTED_S))
