"""One schedule: a cluster, a pipeline, its daemons, an operator who starts them again, and what goes wrong."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from traceback import format_exception
from typing import Final

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.owner import PipelineKnown
from tidegate.coordinator.recovery import RestoreRefused, merge_offsets
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.triggers import CheckpointPolicy
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.choosing import RestoreOption
from tidegate.errors import TidegateError
from tidegate.ids import TopicPartition
from tidegate.simulation.chance import generator
from tidegate.simulation.daemon import CHECKPOINTS, SimDaemon
from tidegate.simulation.disk import Disk
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.feed import Feed
from tidegate.simulation.files import Objects, SimFileTools
from tidegate.simulation.given_up import GivenUp
from tidegate.simulation.kernel import Kernel, Process, SimClock
from tidegate.simulation.life import Course, Life
from tidegate.simulation.local_disk import LocalDisks
from tidegate.simulation.loop import VirtualLoop
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.network import Network
from tidegate.simulation.oracle import check_committed, check_output, count_releases, has_come_out, topics_of_records
from tidegate.simulation.outputs import Outputs
from tidegate.simulation.port import Outages
from tidegate.simulation.progress import Progress
from tidegate.simulation.reach import Reach, note_cut
from tidegate.simulation.releases import Releases
from tidegate.simulation.shapes.oracle import ShapeOracle
from tidegate.simulation.shapes.shape import DEAD_TOPIC, DerivedShape
from tidegate.simulation.strange import StrangeAcks
from tidegate.simulation.strikes import Striker
from tidegate.simulation.trace import Trace
from tidegate.simulation.watch import Watch, check_left
from tidegate.simulation.workload import InputRecord, Workload, plan_of
from tidegate.task.barriers.handler import StreamCorrupt
from tidegate.task.wire import ChannelBroken

RESTART_S: Final = (0.1, 1.5)
STOPPED: Final = (2, 4)
"""Exit codes with which nobody starts a daemon again before something is put right."""
BOOTED_S: Final = 1e6
"""Machines have run for up to so long."""
VIRTUAL_S_MAX: Final = 3600.0
"""Beyond all deadlines of a course, but for the time in which nothing runs."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a run."""

    seed: int
    workload: Workload
    life: Life
    faults: tuple[Fault, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

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
    """See Course."""
    standing_s: float
    """See Watch."""
    trace: Trace
    passed: dict[str, int]


class World:
    """See the module. `run` plays it once."""

    heartbeat_ms = 200
    lease_ms = 1500
    starting = False

    origin = ""
    """What the journal was last made to go back to; asked for the same again, a daemon continues."""

    def __init__(self, schedule: Schedule) -> None:
        workload = schedule.workload
        self.schedule = schedule
        self.trace = Trace()
        self.reach = Reach()
        self.kernel = Kernel(str(schedule.seed), self.trace)
        self.faults = FaultPlan(schedule.faults, self.reach, lambda: self.kernel.now)
        self.outages = Outages(workload.broker_pace, workload.storage_pace)
        self.network = Network(self.kernel, self.faults)
        self.broker = ModelBroker()
        self.broker.placement.lag_ms = schedule.workload.metadata_lag_ms
        for topic in (*workload.shape.inputs, *workload.shape.topics):
            self.broker.create_topic(topic, workload.partitions)
        self.feed = Feed(self)
        self.progress = None if workload.windows is None else Progress(self, workload.windows)
        """Of the windows, where there are any."""
        on_row = None if self.progress is None else self.progress.on_row
        self.outputs = Outputs(self.broker, workload.shape, workload.partitions, on_row)
        self.disk = Disk()
        """Of the checkpoint directory and of savepoints; all processes mount it."""
        self.files = Objects(self.disk, "/")
        """By absolute paths."""
        self.directory = CHECKPOINTS
        """Where the pipeline continues: somebody may have moved it."""
        self.unshared: set[str] = set()
        """Slots whose machines mount nothing where the checkpoint directory is to be."""
        self.apart: set[Process] = set()  # have started there
        self.local_disks = LocalDisks()
        self.savepoints: list[str] = []
        """Paths of those that are finished."""
        self.restore: RestoreOption | None = None
        self.going_back: tuple[str, frozenset[int]] | None = None
        """Origin that the journal will name, and the records that had been processed then."""
        self._not_insisted: tuple[str, frozenset[int]] | None = None
        """The same of a wish that was refused: whoever had died may have written it into a volume that comes back."""
        self._dropped: RestoreOption | None = None  # a wish that could not be had
        self.transaction_timeout_ms = workload.transaction_timeout_ms
        self.checkpoints = _policy_of(workload)
        self.attempts = self.completed = 0
        self.daemons: list[SimDaemon] = []
        self.problems: list[str] = []
        self.refusals: list[str] = []
        """Why daemons stopped for good, where that was right: a file was damaged. Somebody then puts it back."""
        self._skipped: frozenset[int] | None = None
        """Records before the start, once it is fixed."""
        self.lost: set[int] = set()
        """Records that the journal says retention has removed before they were read."""
        self.positions: Mapping[TopicPartition, int] = {}
        """Of the newest committed checkpoint."""
        self.loops: list[VirtualLoop] = []  # of slots
        self.processed_count = 0
        """Sum of the positions of the newest committed checkpoint."""
        self.parallelism = workload.parallelism
        self._random = generator(schedule.seed, "operator")
        self._releases = Releases(schedule.seed)
        self.striker = Striker(self)
        self.strange_acks = StrangeAcks()
        self.given_up = GivenUp(aligned=workload.unaligned_after_ms is None)
        self.watch = Watch(self)
        self.course = Course(self)

    def file_tools(self, process: Process) -> SimFileTools:
        """For storages of a process."""
        if process.alias in self.unshared:
            self.apart.add(process)
        disk = Disk() if process.alias in self.unshared else self.disk
        return SimFileTools(process, disk, self.faults, self.outages)

    def set_clock(self, process: Process) -> None:
        """Every process has its own machine, whose wall clock is wrong in its own way."""
        workload = self.schedule.workload
        random = generator(self.schedule.seed, f"clock/{process.name}")
        skew_ms = random.randint(-workload.skew_ms, workload.skew_ms)
        drift = random.uniform(-workload.drift, workload.drift)
        process.clock = SimClock(self.kernel, skew_ms, drift, random.uniform(0.0, BOOTED_S))

    @property
    def objects(self) -> Objects:
        """In the checkpoint directory."""
        return Objects(self.disk, self.directory)

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Play the schedule."""
        try:
            self.course.begin()
            self._start_daemon(self.directory, self.restore)
            self.kernel.run(VIRTUAL_S_MAX + self.schedule.life.away_s)
            self.problems += self._check()
        except Exception as error:  # noqa: BLE001 - a bug of the product or of the simulation: reported as a violation
            self.problems.append("".join(format_exception(error))[-3000:])
        finally:
            self.kernel.close()
            self.local_disks.close()
            for daemon in self.daemons:
                daemon.loop.dispose()
            for loop in self.loops:
                loop.dispose()
        return Result(
            schedule=self.schedule,
            problems=tuple(self.problems),
            fired=tuple(self.faults.fired),
            refusals=tuple(self.refusals),
            reach=dict(self.reach.counts),
            attempts=self.attempts,
            daemons=len(self.daemons),
            checkpoints=self.completed,
            records=len(self.feed.records),
            events=self.kernel.events,
            recovered_s=self.course.recovered_s,
            standing_s=self.watch.longest_standing_s,
            trace=self.trace,
            passed=dict(self.faults.passed),
        )

    def on_bug(self, error: BaseException, message: str) -> None:
        """Something escaped into an event loop."""
        self.trace.tell(f"uncaught: {message}: {error!r}")
        self.kernel.failure = self.kernel.failure or error

    def judge(self, process: Process, error: BaseException) -> None:
        """An attempt ends: for a reason that a fault can make, or because the program is wrong."""
        broken = isinstance(error, ProtocolBroken | StreamCorrupt) or not isinstance(error, TidegateError)
        if isinstance(error, ChannelBroken):
            broken = not any(fault.point == "slot.frame" for fault in self.faults.fired)
        if broken or (isinstance(error, TidegateError) and "internal" in (error.code, error.fields.get("cause"))):
            self.problems.append(f"{process.name} met a bug: {error!r}\n{''.join(format_exception(error))[-1500:]}")

    def end_faults(self) -> None:
        """No more of them, and what can be reached again is."""
        self.faults.end()
        self.striker.end()
        self.outages.clear()
        self.broker.marker_delay_ms = 0

    # -- daemons ------------------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> SimDaemon | None:
        """The newest one that lives; an older one may live beside it, or win against it."""
        return next((daemon for daemon in reversed(self.daemons) if daemon.process.alive), None)

    @property
    def is_running(self) -> bool:
        """Whether an attempt of the newest daemon runs."""
        return self.daemon is not None and self.daemon.is_running

    def _start_daemon(self, directory: str, restore: RestoreOption | None) -> None:
        workload = self.schedule.workload
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
        )
        if workload.renamed and self.daemons:
            self.reach.note("daemons started with other names of steps")
        daemon = SimDaemon(self, len(self.daemons) + 1, plan, restore, directory)
        self.daemons.append(daemon)
        self.trace.tell(f"{daemon.process.name} starts with {self.parallelism} slots")
        daemon.process.at_death.append(lambda: self._on_daemon_gone(daemon))

    def start_daemon_in(self, seconds: float) -> None:
        """Somebody starts another one soon."""

        def start() -> None:
            self.starting = False
            self._start_daemon(self.directory, self.restore)

        self.starting = True
        self.kernel.at(seconds, start)

    def start_copy(self, directory: str, restore: RestoreOption | None) -> None:
        """Somebody starts one with a copy of the checkpoint directory."""
        self.kernel.at(0.0, lambda: self._start_daemon(directory, restore))

    def _on_daemon_gone(self, daemon: SimDaemon) -> None:
        """What the one who operates it does: start it again, unless it is finished or must not go on."""
        self.course.on_ended(finished=daemon.over and daemon.error is None)
        if daemon.over and daemon.error is not None and daemon.error.exit_code in STOPPED:
            refused = isinstance(daemon.error, RestoreRefused)
            elsewhere = self.striker.goes_on_elsewhere(daemon) if isinstance(daemon.error, PipelineKnown) else ""
            if elsewhere:
                self.reach.note("refused with a copy of the directory")
                self._go_on_in(elsewhere)
            elif (
                refused and self.going_back is not None and daemon.restore is self.restore
            ):  # it is not retained any more: nobody insists
                self._dropped, self.restore = self.restore, None
                self._not_insisted, self.going_back = self.going_back, None
            elif refused and daemon.restore is not None and daemon.restore is self._dropped:
                self.trace.tell(f"{daemon.process.name} had been started with the same choice")
            elif not self.striker.repair(daemon.error):
                self.problems.append(f"{daemon.process.name} stopped for good: {daemon.error!r}")
                self.kernel.at(0.0, self.kernel.stop)
                return
            self.refusals.append(daemon.error.message)
        away_s, self.faults.away_s = self.faults.away_s, 0.0
        if not self.starting and self.daemon is None and not self.course.finished:
            self.start_daemon_in(away_s or self._random.uniform(*RESTART_S))

    # -- what daemons report--------------------------------------------------------------------------------------------

    def on_recovered(self, state: JournalState, directory: str) -> None:
        """A daemon has recovered; when it was the one that went back, another history begins here.

        Where the first one begins is fixed from then on: what lies in front of it is nobody's.
        """
        self.attempts += 1
        self.origin = state.origin
        self._go_on_in(directory)
        begin = state.newest_checkpoint
        assert begin is not None, "where the sources begin is a checkpoint"
        note_cut(self.reach, "restores", begin)
        self.note_lost(begin)
        if self.progress is not None:
            self.progress.on_recovered(begin, self.parallelism)
        if self._skipped is None:
            workload = self.schedule.workload
            begins_late = workload.from_latest or workload.shape.forgetful
            self._skipped = self.processed(begin) if begins_late else frozenset()
        if self.going_back is not None and self.going_back[0] == state.origin:
            (origin, done), self.going_back, self._not_insisted = self.going_back, None, None
        elif self._not_insisted is not None and self._not_insisted[0] == state.origin:
            (origin, done), self._not_insisted = self._not_insisted, None
        else:
            return
        self.outputs.read(self.kernel.clock.now_ms())
        records = topics_of_records(self.schedule.workload)
        again = set[Hashable]().union(*(self.outputs.ids[topic] for topic in records)) - done
        self.reach.note("gone back", 1)
        self.reach.note("gone back in front of committed work", int(bool(again)))
        self.outputs.go_back(done)
        if self.progress is not None:
            self.progress.go_back(done)
        self.trace.tell(f"went back to {origin}: {len(done)} records had been processed, {len(again)} come again")

    def note_lost(self, checkpoint: CompletedCheckpoint) -> None:
        """It is in the journal: records in the ranges that it skips are not to be processed."""
        for one in checkpoint.lost:
            gone = self.feed.numbers_in(one.partition, one.from_offset, one.to_offset)
            self.reach.note("records that retention removed before they were read", len(gone - self.lost))
            self.lost |= gone

    def _go_on_in(self, directory: str) -> None:
        if directory != self.directory:
            self.reach.note("taken over with a copy of the directory")
            self.directory = directory

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """A checkpoint is complete and committed."""
        self.completed += 1
        note_cut(self.reach, "checkpoints", checkpoint)
        if self.progress is not None:
            self.progress.on_completed(checkpoint)
        self.positions = merge_offsets(checkpoint.positions)
        processed = sum(self.positions.values())
        if processed != self.processed_count:
            self.processed_count = processed
            self.course.on_completed()

    # -- the end ------------------------------------------------------------------------------------------------------

    @property
    def records(self) -> Sequence[InputRecord]:
        """Those that are to be processed."""
        skipped = self._skipped or frozenset()
        return [record for record in self.feed.records if record.id not in skipped and record.id not in self.lost]

    def is_complete(self) -> bool:
        """Whether every record has come out."""
        if self.going_back is not None or not self.outputs.read(self.kernel.clock.now_ms()):
            return False
        records, outputs = self.records, self.outputs
        oracle_of_shape = self._shape_oracle()
        if oracle_of_shape is not None:
            return oracle_of_shape.is_complete(outputs.done, outputs.ids, outputs.ever)
        topics = topics_of_records(self.schedule.workload)
        ids, ever = outputs.ids, outputs.ever
        if not all(has_come_out(topic, records, outputs.done, ids[topic], ever[topic]) for topic in topics):
            return False
        if self.progress is None or not self.progress.all_read:
            return self.progress is None
        oracle = self.progress.oracle(self._skipped or frozenset())
        return not any(
            oracle.missing(topic, outputs.done, outputs.ids[topic], outputs.ever[topic], self.progress.sizes[topic])
            for topic in oracle.topics
        )

    def processed(self, checkpoint: CompletedCheckpoint) -> frozenset[int]:
        """Records of the input before its positions."""
        offsets = merge_offsets(checkpoint.positions)
        return frozenset(
            number
            for place, numbers in self.feed.places.items()
            for offset, number in numbers
            if offset < offsets.get(place, 0)
        )

    @property
    def _rescaled(self) -> bool:
        return any(fault.kind == "rescale" for fault in self.faults.fired)

    def _shape_oracle(self) -> ShapeOracle | None:
        """Of what is known now; None where the output is not said in advance."""
        workload, shape = self.schedule.workload, self.schedule.workload.shape
        if not isinstance(shape, DerivedShape):
            return None
        return ShapeOracle(
            shape,
            self.records,
            exactly_once=workload.exactly_once,
            ordered=not (shape.waits and self._rescaled),
        )

    def _check(self) -> list[str]:
        """The oracle."""
        self.outputs.read(self.kernel.clock.now_ms())
        *earlier, last = histories = self.outputs.histories()
        workload, records = self.schedule.workload, self.records
        oracle_of_shape = self._shape_oracle()
        if oracle_of_shape is not None:
            self.reach.note(f"schedules: {workload.topology}")
            for what, count in oracle_of_shape.counts.items():
                self.reach.note(what, count)
            problems = oracle_of_shape.check(histories)
            return problems or ([] if self.problems else check_left(self))
        if workload.shape.bad:
            self.reach.note(f"schedules: {workload.topology}")
            self.reach.note("dead letters", len(self.outputs.ever[DEAD_TOPIC]))
        moved = self._rescaled or workload.growing
        problems = check_output(workload, records, last, moved=moved) + check_committed(workload, records, histories)
        for history in earlier:
            problems += check_output(workload, records, history, complete=False, moved=moved)
        if workload.changed:
            self.reach.note(f"releases with totals that are {workload.changed}", count_releases(histories) - 1)
        if self.progress is not None:
            if workload.windows is not None and workload.windows.title:
                self.reach.note(f"schedules: {workload.windows.title}")
            oracle = self.progress.oracle(self._skipped or frozenset())
            problems += oracle.check(histories)
            for fate, count in oracle.count_fates().items():
                self.reach.note(f"records of windows: {fate.value}", count)
        return problems + (check_left(self) if not self.problems else [])


def _policy_of(workload: Workload) -> CheckpointPolicy:
    return CheckpointPolicy(
        interval_ms=workload.interval_ms,
        timeout_ms=workload.checkpoint_timeout_ms,
        max_concurrent=workload.max_concurrent,
        tolerable_failures=3,
        retained=workload.retained,
    )


def play(schedule: Schedule) -> Result:
    """Run a schedule."""
    return World(schedule).run()
