"""The operator of the pipeline, who restarts daemons, restores savepoints, and moves to another directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidegate.coordinator.ownership import OwnershipConflict
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.restore_point import RestoreOption
from tidegate.simulation.daemon import CHECKPOINTS, SimDaemon
from tidegate.simulation.files import Objects
from tidegate.simulation.kernel import generator
from tidegate.simulation.releases import Releases
from tidegate.simulation.workload import plan_of

if TYPE_CHECKING:
    from tidegate.simulation.world import World

RESTART_S: Final = (0.1, 1.5)
STOPPED: Final = (2, 4)
"""Exit codes after which a daemon is restarted only once something has been repaired."""


class Operations:
    """The operation of one world's pipeline, including the options with which its daemons are started."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.daemons: list[SimDaemon] = []
        """All daemons that were started, oldest first."""
        self.starting = False
        """Another daemon is about to be started."""
        self.parallelism = world.schedule.workload.parallelism
        self.directory = CHECKPOINTS
        """The checkpoint directory in which the pipeline continues; it may have been moved."""
        self.origin = ""
        """The origin that the journal last restored. If it is requested again, a daemon just continues."""
        self.savepoints: list[str] = []
        """Paths of finished savepoints."""
        self.restore: RestoreOption | None = None
        self.going_back: tuple[str, frozenset[int]] | None = None
        """The origin that the journal will name, and the records processed up to there."""
        self.refusals: list[str] = []
        """Messages of daemons that rightly stopped for good because of a damaged file, which is then put back."""
        self._not_insisted: tuple[str, frozenset[int]] | None = None
        """`going_back` of a refused restore. The restore may have been written to a volume that comes back."""
        self._dropped: RestoreOption | None = None
        """The restore option that was refused."""
        self._random = generator(world.schedule.seed, "operator")
        self._releases = Releases(world.schedule.seed)

    @property
    def daemon(self) -> SimDaemon | None:
        """The newest daemon that is alive. An older one may still be alive, or win against it."""
        return next((daemon for daemon in reversed(self.daemons) if daemon.process.alive), None)

    @property
    def is_running(self) -> bool:
        """True if an attempt of the newest daemon is running."""
        return self.daemon is not None and self.daemon.is_running

    @property
    def objects(self) -> Objects:
        """The objects in the checkpoint directory."""
        return Objects(self._world.machines.disk, self.directory)

    def start(self) -> None:
        """Starts a daemon with the current options."""
        self.starting = False
        self._start_in(self.directory, self.restore)

    def start_later(self, seconds: float) -> None:
        """Starts a daemon after some time."""
        self.starting = True
        self._world.kernel.at(seconds, self.start)

    def start_copy(self, directory: str, restore: RestoreOption | None) -> None:
        """Starts a daemon with a copy of the checkpoint directory."""
        self._world.kernel.at(0.0, lambda: self._start_in(directory, restore))

    def _start_in(self, directory: str, restore: RestoreOption | None) -> None:
        world, workload = self._world, self._world.schedule.workload
        plan = plan_of(
            workload.topology,
            self.parallelism,
            workload.exactly_once,
            workload.bounded,
            workload.from_latest,
            workload.windows,
            len(self.daemons) % 2 if workload.renamed else None,
            workload.changed,
            self._releases.draw(restore, alone=self.daemon is None) if workload.changed else 0,
            workload.locations,
        )
        if workload.renamed and self.daemons:
            world.reach.note("daemons started with other names of steps")
        if not world.clusters.are_reachable(world.kernel.now):
            world.reach.note("daemons started while a cluster is away")
        daemon = SimDaemon(world, len(self.daemons) + 1, plan, restore, directory)
        self.daemons.append(daemon)
        world.trace.tell(f"{daemon.process.name} starts with {self.parallelism} slots")
        daemon.process.at_death.append(lambda: self._on_daemon_gone(daemon))

    def _on_daemon_gone(self, daemon: SimDaemon) -> None:
        """Restarts the daemon, unless it has finished or must not go on."""
        world = self._world
        world.course.on_ended(finished=daemon.over and daemon.error is None)
        if daemon.over and daemon.error is not None and daemon.error.exit_code in STOPPED:
            if not self._accepts(daemon):
                world.problems.append(f"{daemon.process.name} stopped for good: {daemon.error!r}")
                world.kernel.at(0.0, world.kernel.stop)
                return
            self.refusals.append(daemon.error.message)
        away_s, world.faults.away_s = world.faults.away_s, 0.0
        if not self.starting and self.daemon is None and not world.course.finished:
            self.start_later(away_s or self._random.uniform(*RESTART_S))

    def _accepts(self, daemon: SimDaemon) -> bool:
        """Returns whether a daemon was right to stop for good, and repairs what can be repaired."""
        world = self._world
        assert daemon.error is not None
        if world.clusters.replaced:
            return world.striker.repair(daemon.error)
        refused = isinstance(daemon.error, RestoreRefused)
        elsewhere = world.striker.goes_on_elsewhere(daemon) if isinstance(daemon.error, OwnershipConflict) else ""
        if elsewhere:
            world.reach.note("refused with a copy of the directory")
            self._go_on_in(elsewhere)
        elif refused and self.going_back is not None and daemon.restore is self.restore:
            # The checkpoint is no longer retained, so the request is dropped.
            self._dropped, self.restore = self.restore, None
            self._not_insisted, self.going_back = self.going_back, None
        elif refused and daemon.restore is not None and daemon.restore is self._dropped:
            world.trace.tell(f"{daemon.process.name} had been started with the same choice")
        else:
            return world.striker.repair(daemon.error)
        return True

    def on_recovered(self, origin: str, directory: str) -> frozenset[int] | None:
        """Notes that a daemon has recovered.

        If it restored what was requested, returns the records processed up to the restored state.
        """
        self.origin = origin
        self._go_on_in(directory)
        if self.going_back is not None and self.going_back[0] == origin:
            done = self.going_back[1]
            self.going_back = self._not_insisted = None
            return done
        if self._not_insisted is not None and self._not_insisted[0] == origin:
            done = self._not_insisted[1]
            self._not_insisted = None
            return done
        return None

    def go_back(self, target: str, origin: str, checkpoint: CompletedCheckpoint) -> None:
        """Requests that the pipeline continues from a checkpoint or savepoint at the next start."""
        self.going_back = (origin, self._world.account.processed(checkpoint))
        self.restore = RestoreOption(target, repeat_output=True)

    def _go_on_in(self, directory: str) -> None:
        if directory != self.directory:
            self._world.reach.note("taken over with a copy of the directory")
            self.directory = directory
