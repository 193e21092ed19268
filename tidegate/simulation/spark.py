"""Spark as Tidegate sees it: a job starts slots, notices after a while that one is gone, and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidegate.simulation.slot import SimSlot

if TYPE_CHECKING:
    from tidegate.simulation.kernel import VirtualProcess
    from tidegate.simulation.world import World
    from tidegate.slot.bootstrap import SlotBootstrap

START_S: Final = (0.02, 0.2)
NOTICE_S: Final = (0.05, 0.8)
KILL_S: Final = (0.2, 2.5)
"""Time until Spark has killed the remaining slots of a job that failed or was cancelled."""


class SimSparkHost:
    """The part of `tidegate.spark.host.SparkHost` that the product uses."""

    jvm_alive = True

    def __init__(self, world: World, daemon: VirtualProcess) -> None:
        self._world = world
        self._daemon = daemon

    def job(self, bootstrap: SlotBootstrap, parallelism: int, ended: Callable[[str | None], None]) -> SimJob:
        """Creates a job."""
        return SimJob(self._world, self._daemon, bootstrap, parallelism, ended)


class SimJob:
    """The part of `tidegate.spark.host.SparkJob` that the product uses."""

    def __init__(
        self,
        world: World,
        daemon: VirtualProcess,
        bootstrap: SlotBootstrap,
        parallelism: int,
        ended: Callable[[str | None], None],
    ) -> None:
        self._world = world
        self._kernel = world.kernel
        self._daemon = daemon
        self._bootstrap = bootstrap
        self._parallelism = parallelism
        self._ended: Callable[[str | None], None] | None = ended
        self._slots: list[SimSlot] = []
        self._left = parallelism
        self._random = daemon.random
        daemon.at_death.append(self.cancel)

    def start(self) -> None:
        """Starts the slots one by one."""
        for partition in range(self._parallelism):
            self._kernel.at(self._random.uniform(*START_S), lambda partition=partition: self._start(partition))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def cancel(self) -> None:
        """Kills the remaining slots after a while."""
        for slot in self._slots:
            process = slot.process
            if process.alive:
                self._kernel.at(self._random.uniform(*KILL_S), lambda process=process: process.kill("Spark kills it"))  # type: ignore[misc]  # see above

    def _start(self, partition: int) -> None:
        if self._ended is None or not self._daemon.alive:
            return
        process = self._kernel.process("slot", f"slot-{self._bootstrap.attempt}-{partition}")
        slot = SimSlot(self._world, process, self._bootstrap, partition)
        self._slots.append(slot)
        process.at_death.append(lambda: self._gone(slot))

    def _gone(self, slot: SimSlot) -> None:
        self._left -= 1
        if not slot.returned:
            self._kernel.at(self._random.uniform(*NOTICE_S), lambda: self._end(f"{slot.process.name} was lost"))
        elif not self._left:
            self._kernel.at(self._random.uniform(0.001, 0.01), lambda: self._end(None))

    def _end(self, error: str | None) -> None:
        ended, self._ended = self._ended, None
        if ended is None:
            return
        if error is not None:
            self.cancel()
        self._kernel.at(0.0, lambda: ended(error), self._daemon)
