"""The course of one schedule.

It begins with some quiet checkpoints. Faults follow, and then a calm phase in which everything must come right. It is
then started once more from the end, because whatever was committed must always be able to start again.

Most of what a schedule is to exercise needs work before it: a checkpoint to restore, increments, transactions that wait
for their end. Faults therefore begin after a number of committed checkpoints, and as many are committed after the last
fault, each with new input.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from tidegate.simulation.world import World

CALM_AFTER_S: Final = 1.0
"""Time after the last moment of a fault."""
SEVERAL: Final = 5
LOOK_S: Final = 0.25
QUIET_S: Final = 90.0
"""Maximum virtual time for the checkpoints before the first fault."""
RECOVERY_S: Final = 60.0
"""Maximum time from the end of the last disturbance to the next committed checkpoint."""
LIVENESS_S: Final = 120.0
"""Maximum time from the end of the last disturbance to the end of all work."""
ENDED_S: Final = 60.0
"""Maximum time from the end of the last daemon to the end of the last slot."""
AGAIN_S: Final = 60.0
"""Maximum time for everything after the second start."""
AGAIN_RECORDS: Final = 5
"""Records that arrive at once for the restarted daemon, in addition to the trickle."""


WEEK_S: Final = 7 * 24 * 3600.0


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """The lengths of the phases. Checkpoints count if they are committed and have processed something."""

    quiet: int = 0
    """Checkpoints before the first fault; with 0, faults begin with the first daemon."""
    faults_s: float
    """Time from the first moment of a fault to the last one."""
    after: int = 1
    """Checkpoints after the last disturbance."""
    away_s: float = 1.0
    """Time between the end and the second start."""
    emptied: bool = False
    """Retention removes all output records in that time."""


class LifePhase(Enum):
    """The phase of a schedule."""

    QUIET = "no fault yet"
    FAULTS = "faults"
    CALM = "no fault any more, input flows"
    DRAINING = "what is there is processed"
    STOPPING = "the final checkpoint"
    RESTING = "the daemon has ended, slots follow"
    OVER = "nothing follows"


class Course:
    """Moves a world from phase to phase. Anything that does not happen in time is a violation and ends the schedule."""

    def __init__(self, world: World) -> None:
        self.phase = LifePhase.QUIET
        self.recovered_s = 0.0
        """Time from the end of the last disturbance to the next committed checkpoint."""
        self.quiet = 0
        """Checkpoints that were committed before the first fault."""
        self.after = 0
        """Checkpoints that were committed after the last disturbance."""
        self._world = world
        self._life = world.schedule.life
        self._again = False
        self._healthy_at = 0.0
        self._deadline: tuple[float, str] = (0.0, "")

    @property
    def finished(self) -> bool:
        """True if daemons are no longer restarted."""
        return self.phase in (LifePhase.RESTING, LifePhase.OVER)

    def begin(self) -> None:
        """Begins with the first daemon."""
        self._world.feed.start(self._world.schedule.workload.backlog)
        if self._life.quiet:
            self._expect(QUIET_S, f"{self._life.quiet} checkpoints without a fault")
        else:
            self._begin_faults()
        self._look()

    def on_completed(self) -> None:
        """Counts a committed checkpoint with new records."""
        if self.phase is LifePhase.QUIET:
            self.quiet += 1
            if self.quiet == SEVERAL:
                self._world.reach.note(f"schedules with {SEVERAL} checkpoints before the first fault")
            if self.quiet == self._life.quiet:
                self._world.kernel.at(0.0, self._begin_faults)
        elif self.phase is LifePhase.CALM and self._world.kernel.now >= self._healthy_at:
            self._after_one()

    def on_ended(self, *, finished: bool) -> None:
        """Decides what follows the end of a daemon.

        If it finished, on request or as a bounded pipeline, slots end next. Otherwise the next daemon must be stopped
        again; so must one that was started while this one was ending.
        """
        if self.phase not in (LifePhase.DRAINING, LifePhase.STOPPING):
            return
        world = self._world
        if (
            finished
            and world.account.is_complete()
            and world.operations.daemon is None
            and not world.operations.starting
        ):
            self.phase = LifePhase.RESTING
            self._expect(ENDED_S, "the end of every slot")
        else:
            self.phase = LifePhase.DRAINING

    # -- the phases ----------------------------------------------------------------------------------------------------

    def _begin_faults(self) -> None:
        world = self._world
        self.phase = LifePhase.FAULTS
        self._deadline = (0.0, "")
        world.trace.tell("faults begin")
        world.faults.begin()
        for fault in world.faults.timed:
            assert fault.at_s is not None
            world.kernel.at(fault.at_s, lambda fault=fault: world.striker.strike(fault))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        world.kernel.at(self._life.faults_s + CALM_AFTER_S, self._calm)

    def _calm(self) -> None:
        """Ends the faults; everything must now complete."""
        world = self._world
        world.trace.tell("the faults are over")
        self.phase = LifePhase.CALM
        world.end_faults()
        self._healthy_at = max(world.kernel.now, world.faults.until_s)
        self._expect(self._healthy_at - world.kernel.now + RECOVERY_S, "a committed checkpoint")

    def _after_one(self) -> None:
        now = self._world.kernel.now
        if not self.after and not self._again:
            self.recovered_s = now - self._healthy_at
            self._expect(LIVENESS_S - self.recovered_s, f"{self._life.after} checkpoints and the end of all work")
        self.after += 1
        if self.after == SEVERAL:
            self._world.reach.note(f"schedules with {SEVERAL} checkpoints after the last fault")
        if self._again or self.after >= self._life.after:
            self.phase = LifePhase.DRAINING
            self._world.feed.stop()

    def _stop(self) -> None:
        world = self._world
        world.trace.tell("all output is committed: final checkpoint")
        self.phase = LifePhase.STOPPING
        for daemon in world.operations.daemons:
            if daemon.process.alive:
                daemon.request_stop()

    def _rest(self) -> None:
        """Waits for the second start, or ends the schedule. All processes have ended."""
        world = self._world
        if self._again:
            self.phase = LifePhase.OVER
            world.kernel.stop()
            return
        self._again = True
        world.kernel.at(self._life.away_s, self._start_again)

    def _start_again(self) -> None:
        world = self._world
        world.trace.tell("started once more")
        if self._life.away_s > WEEK_S:
            world.reach.note("started again a week later")
        if self._life.emptied:
            world.account.outputs.empty(world.kernel.clock.now_ms())
            world.reach.note("started again with emptied outputs")
        self.phase = LifePhase.CALM
        self._healthy_at = world.kernel.now
        self._expect(AGAIN_S, "all work of the daemon that was started again")
        world.feed.start(AGAIN_RECORDS)
        world.operations.start_later(0.0)
        self._look()

    # -- looking -------------------------------------------------------------------------------------------------------

    def _expect(self, seconds: float, what: str) -> None:
        self._deadline = (self._world.kernel.now + seconds, f"{what} did not come within {seconds:.0f} s")

    def _look(self) -> None:
        world = self._world
        at_s, what = self._deadline
        if what and world.kernel.now > at_s:
            world.problems.append(f"{self.phase.value}: {what}")
            world.kernel.stop()
            return
        world.watch.look()
        if self.phase is LifePhase.DRAINING and world.operations.is_running and world.account.is_complete():
            self._stop()
        elif self.phase is LifePhase.RESTING and not any(process.alive for process in world.kernel.processes):
            self._rest()
            return
        world.kernel.at(LOOK_S, self._look)
