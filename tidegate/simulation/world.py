"""One schedule: one or two clusters, a pipeline, its daemons, an operator who restarts them, and the faults."""

from __future__ import annotations

from collections import deque
from traceback import format_exception
from typing import Final

import msgspec

from tidegate.coordinator.story import ProtocolBroken
from tidegate.errors import TidegateError
from tidegate.ids import SlotIndex, SubtaskId
from tidegate.simulation.account import Account
from tidegate.simulation.clusters import Clusters
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.feed import Feed
from tidegate.simulation.given_up import GivenUp
from tidegate.simulation.kernel import Kernel, Trace, VirtualProcess
from tidegate.simulation.life import Course, Life
from tidegate.simulation.loop import VirtualLoop
from tidegate.simulation.machines import Machines
from tidegate.simulation.network import Network
from tidegate.simulation.operations import Operations
from tidegate.simulation.port import StorageOutage
from tidegate.simulation.reach import ReachTable, count_in_two_clusters
from tidegate.simulation.strikes import Striker
from tidegate.simulation.watch import RuleWatch
from tidegate.simulation.workload import Workload
from tidegate.task.barriers.handler import StreamCorrupt
from tidegate.task.messages import Acknowledged
from tidegate.task.wire import ChannelBroken

VIRTUAL_S_MAX: Final = 3600.0
"""Longer than all deadlines of a course together, apart from the time in which nothing runs."""
_ACKS_KEPT: Final = 64
_NOWHERE: Final = SlotIndex(99)
"""A slot index beyond that of any plan."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines a run."""

    seed: int
    workload: Workload
    life: Life
    faults: tuple[Fault, ...]


class ScheduleResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a schedule."""

    schedule: Schedule
    problems: tuple[str, ...]
    fired: tuple[Fault, ...]
    refusals: tuple[str, ...]
    reach: dict[str, int]
    attempts: int
    daemons: int
    checkpoints: int
    records: int
    events: int
    recovered_s: float
    """Time from the end of the last disturbance to the next committed checkpoint."""
    standing_s: float
    """The longest time that readers were blocked while an attempt ran."""
    trace: Trace
    passed: dict[str, int]


class UnexpectedAcks:
    """Unexpected acknowledgements. No connection delivers them, but a wrong report from a peer must not count."""

    def __init__(self) -> None:
        self._sent: deque[Acknowledged] = deque(maxlen=_ACKS_KEPT)

    def note(self, message: Acknowledged) -> None:
        """Remembers an acknowledgement that is sent."""
        self._sent.append(message)

    def make(self, kind: str, message: Acknowledged) -> list[Acknowledged]:
        """Returns what precedes an acknowledgement.

        "stale": the newest one of the same subtask in an older attempt, if any. "unknown": the same one for a subtask
        that does not exist.
        """
        ack = message.ack
        if kind == "unknown":
            nobody = SubtaskId(ack.subtask.vertex, _NOWHERE)
            return [Acknowledged(msgspec.structs.replace(ack, subtask=nobody, states=(), committables=()))]
        if kind == "stale":
            older = [one for one in self._sent if one.ack.subtask == ack.subtask and one.ack.attempt < ack.attempt]
            return older[-1:]
        return []


class World:
    """Everything that takes part in one schedule. `run` plays it once."""

    def __init__(self, schedule: Schedule) -> None:
        workload = schedule.workload
        self.schedule = schedule
        self.trace = Trace()
        self.reach = ReachTable()
        self.kernel = Kernel(str(schedule.seed), self.trace)
        self.faults = FaultPlan(schedule.faults, self.reach, lambda: self.kernel.now)
        self.storage_outage = StorageOutage(workload.storage_pace)
        self.network = Network(self.kernel, self.faults)
        inputs = workload.shape.inputs
        self.clusters = Clusters(workload.locations, inputs[0], workload.metadata_lag_ms, workload.broker_pace)
        for topic in (*inputs, *workload.shape.topics):
            self.clusters.create_topic(topic, workload.partitions)
        self.machines = Machines(self)
        self.feed = Feed(self)
        self.account = Account(self)
        self.operations = Operations(self)
        self.problems: list[str] = []
        self.loops: list[VirtualLoop] = []  # event loops of slots
        self.striker = Striker(self)
        self.strange_acks = UnexpectedAcks()
        self.given_up = GivenUp(aligned=workload.unaligned_after_ms is None)
        self.watch = RuleWatch(self)
        self.course = Course(self)

    def run(self) -> ScheduleResult:
        """Plays the schedule."""
        workload = self.schedule.workload
        try:
            self.course.begin()
            self.operations.start()
            self.kernel.run(VIRTUAL_S_MAX + self.schedule.life.away_s)
            self.problems += self.account.check()
        except Exception as error:  # noqa: BLE001 - a bug in the product or in the simulation is reported as a violation
            self.problems.append("".join(format_exception(error))[-3000:])
        finally:
            self.kernel.close()
            self.machines.local_disks.close()
            for daemon in self.operations.daemons:
                daemon.loop.dispose()
            for loop in self.loops:
                loop.dispose()
        return ScheduleResult(
            schedule=self.schedule,
            problems=tuple(self.problems),
            fired=tuple(self.faults.fired),
            refusals=tuple(self.operations.refusals),
            reach=count_in_two_clusters(self.reach.counts) if workload.locations else dict(self.reach.counts),
            attempts=self.account.attempts,
            daemons=len(self.operations.daemons),
            checkpoints=self.account.completed,
            records=len(self.feed.records),
            events=self.kernel.events,
            recovered_s=self.course.recovered_s,
            standing_s=self.watch.longest_standing_s,
            trace=self.trace,
            passed=dict(self.faults.passed),
        )

    def on_bug(self, error: BaseException, message: str) -> None:
        """Records an error that escaped into an event loop."""
        self.trace.tell(f"uncaught: {message}: {error!r}")
        self.kernel.failure = self.kernel.failure or error

    def judge(self, process: VirtualProcess, error: BaseException) -> None:
        """Reports a problem if an attempt ended for a reason that no fault can cause, that is, because of a bug."""
        broken = isinstance(error, ProtocolBroken | StreamCorrupt) or not isinstance(error, TidegateError)
        if isinstance(error, ChannelBroken):
            broken = not any(fault.point == "slot.frame" for fault in self.faults.fired)
        if broken or (isinstance(error, TidegateError) and "internal" in (error.code, error.fields.get("cause"))):
            self.problems.append(f"{process.name} met a bug: {error!r}\n{''.join(format_exception(error))[-1500:]}")

    def end_faults(self) -> None:
        """Ends all faults and makes everything reachable again."""
        self.faults.end()
        self.striker.end()
        self.storage_outage.clear()
        self.clusters.clear_outages()


def play(schedule: Schedule) -> ScheduleResult:
    """Runs a schedule."""
    return World(schedule).run()
