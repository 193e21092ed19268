"""The machines of a world: each process has its own, with its own clocks and mounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.simulation.chance import generator
from tidegate.simulation.disk import Disk
from tidegate.simulation.files import Objects, SimFileTools
from tidegate.simulation.kernel import SimClock, VirtualProcess
from tidegate.simulation.local_disk import LocalDisks

if TYPE_CHECKING:
    from tidegate.simulation.world import World

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
