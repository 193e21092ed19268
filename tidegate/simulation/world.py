"""One schedule: a cluster, a pipeline, its daemons, an operator who starts them again, and what goes wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from traceback import format_exception
from typing import Final

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.triggers import CheckpointSettings
from tidegate.daemon.choosing import RestoreOption
from tidegate.errors import TidegateError
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.baton import Workers
from tidegate.simulation.chance import generator
from tidegate.simulation.daemon import CHECKPOINTS, SimDaemon
from tidegate.simulation.disk import Disk
from tidegate.simulation.faults import ROWS_IN_FLIGHT, Fault, FaultPlan
from tidegate.simulation.files import Objects, SimFileTools
from tidegate.simulation.kernel import START_S, Kernel, Process
from tidegate.simulation.local_disk import LocalDisks
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import RequestRefused
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.network import Network
from tidegate.simulation.oracle import History, check_output, count_missing
from tidegate.simulation.port import Outages
from tidegate.simulation.strikes import Striker
from tidegate.simulation.trace import Trace
from tidegate.simulation.workload import INPUTS, OUTPUTS, InputRecord, Workload, draw_records, plan_of
from tidegate.sinks.facts import CoordinatorState
from tidegate.task.barriers.handler import StreamCorrupt
from tidegate.task.wire import ChannelBroken

CALM_AFTER_S: Final = 1.0
LIVENESS_S: Final = 120.0
"""Virtual time in which everything must be processed and committed when the faults are over."""
LOOK_S: Final = 0.25
RESTART_S: Final = (0.1, 1.5)
FETCH_MAX: Final = 1_000_000
SETTLE_S: Final = 70.0


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides a run."""

    seed: int
    workload: Workload
    faults: tuple[Fault, ...]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    schedule: Schedule
    problems: tuple[str, ...]
    fired: tuple[Fault, ...]
    refusals: tuple[str, ...]
    attempts: int
    daemons: int
    checkpoints: int
    with_rows_in_flight: int
    """Of the checkpoints."""
    replays: int
    """Subtasks that began with restored rows in flight."""
    events: int
    switches: int
    virtual_s: float
    trace: Trace
    passed: dict[str, int]


class World:
    """See the module. `run` plays it once."""

    heartbeat_ms = 200
    lease_ms = 1500

    def __init__(self, schedule: Schedule, workers: Workers) -> None:
        self.schedule = schedule
        self.trace = Trace()
        self.kernel = Kernel(str(schedule.seed), workers, self.trace)
        self.faults = FaultPlan(schedule.faults)
        self.outages = Outages(schedule.workload.broker_pace, schedule.workload.storage_pace)
        self.network = Network(self.kernel, self.faults)
        self.broker = ModelBroker()
        self.broker.placement.lag_ms = schedule.workload.metadata_lag_ms
        self.disk = Disk()
        """Of the checkpoint directory and of savepoints; all processes mount it."""
        self.objects = Objects(self.disk, CHECKPOINTS)
        self.files = Objects(self.disk, "/")
        """By absolute paths."""
        self.local_disks = LocalDisks()
        self.savepoints: list[str] = []
        """Paths of those that are finished."""
        self.restore: RestoreOption | None = None
        self.going_back: tuple[str, frozenset[int]] | None = None
        """Origin that the journal will tell, and the records that had been processed then."""
        self._dropped: RestoreOption | None = None
        """What was wished and could not be had."""
        self._histories: list[tuple[frozenset[int], dict[TopicPartition, int]]] = [(frozenset(), {})]
        """Records processed before each, and where each begins in the output."""
        workload = schedule.workload
        self.transaction_timeout_ms = workload.transaction_timeout_ms
        self.checkpoints = CheckpointSettings(
            interval_ms=workload.interval_ms,
            timeout_ms=2000,
            max_concurrent=workload.max_concurrent,
            tolerable_failures=3,
            retained=workload.retained,
        )
        self.attempts = 0
        self.completed = 0
        self.replays = 0
        self.daemons: list[SimDaemon] = []
        self.problems: list[str] = []
        self.refusals: list[str] = []
        """Why daemons stopped for good, where that was right: a file was damaged. Somebody then puts it back."""
        self._records = draw_records(schedule.seed, workload)
        self._skipped: frozenset[int] | None = None
        """Records in front of the begin, once it is fixed."""
        self.parallelism = workload.parallelism
        self._places = [
            TopicPartition(topic, number)
            for topic in OUTPUTS[workload.topology]
            for number in range(workload.partitions)
        ]
        self._random = generator(schedule.seed, "operator")
        self._noise = generator(schedule.seed, "noise")
        self.starting = False
        self.stopping = False
        self.striker = Striker(self)
        self._finished = False

    def file_tools(self, process: Process) -> SimFileTools:
        """For storages of a process."""
        return SimFileTools(process, self.disk, self.faults, self.outages)

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Play the schedule."""
        for topic in (*INPUTS[self.schedule.workload.topology], *OUTPUTS[self.schedule.workload.topology]):
            self.broker.create_topic(topic, self.schedule.workload.partitions)
        self._plan_input()
        for fault in self.faults.timed:
            assert fault.at_s is not None
            self.kernel.at(fault.at_s, lambda fault=fault: self.striker.strike(fault))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        last_s = max((fault.at_s or 0.0 for fault in self.faults.timed), default=0.0)
        calm_s = max(self.schedule.workload.input_s, last_s) + CALM_AFTER_S
        self.kernel.at(calm_s, self._calm)
        self._start_daemon()
        try:
            self.kernel.run(calm_s + LIVENESS_S)
            if not self._finished:
                self.problems.append(f"not everything was processed {LIVENESS_S:g} s after the last fault")
            self.problems += self._check()
        except Exception as error:  # noqa: BLE001 - a bug of the product or of the simulation: told as a violation
            self.problems.append("".join(format_exception(error))[-3000:])
        finally:
            self.kernel.close()
            self.local_disks.close()
            for daemon in self.daemons:
                daemon.loop.dispose()
        return Result(
            schedule=self.schedule,
            problems=tuple(self.problems),
            fired=tuple(self.faults.fired),
            refusals=tuple(self.refusals),
            attempts=self.attempts,
            daemons=len(self.daemons),
            checkpoints=self.completed,
            with_rows_in_flight=self.faults.passed[ROWS_IN_FLIGHT],
            replays=self.replays,
            events=self.kernel.events,
            switches=self.kernel.switches,
            virtual_s=self.kernel.now - START_S,
            trace=self.trace,
            passed=dict(self.faults.passed),
        )

    def on_bug(self, error: BaseException, message: str) -> None:
        """Something escaped into an event loop."""
        self.trace.tell(f"uncaught: {message}: {error!r}")
        self.kernel.failure = self.kernel.failure or error

    def judge(self, process: Process, error: Exception) -> None:
        """An attempt ends: for a reason that a fault can make, or because the program is wrong."""
        broken = isinstance(error, ProtocolBroken | StreamCorrupt) or not isinstance(error, TidegateError)
        if isinstance(error, ChannelBroken):
            broken = not any(fault.point == "slot.frame" for fault in self.faults.fired)
        if broken or (isinstance(error, TidegateError) and "internal" in (error.code, error.fields.get("cause"))):
            self.problems.append(f"{process.name} met a bug: {error!r}\n{''.join(format_exception(error))[-1500:]}")

    # -- input --------------------------------------------------------------------------------------------------------

    def _plan_input(self) -> None:
        bursts: dict[float, list[InputRecord]] = defaultdict(list)
        for record in self._records:
            bursts[round(record.at_s, 1)].append(record)
        for at_s, records in sorted(bursts.items()):
            self.kernel.at(at_s, lambda records=records: self._append(records))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def _append(self, records: Sequence[InputRecord]) -> None:
        now_ms = self.kernel.clock.now_ms()
        self._grow(records)
        if self.schedule.workload.noisy:
            self._make_noise(records[0])
        by_place: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in records:
            by_place[record.place].append(Record(record.customer.encode(), record.value, now_ms))
        for place, batch in by_place.items():
            self.broker.produce(now_ms, place, batch)

    def _grow(self, records: Sequence[InputRecord]) -> None:
        """A topic gets the partition that a record needs."""
        for place in sorted({record.place for record in records}):
            if self.broker.topics([place.topic])[place.topic].partitions <= place.partition:
                self.broker.add_topic_partitions(place.topic, place.partition + 1)
                self.trace.tell(f"{place} is new")

    def _make_noise(self, record: InputRecord) -> None:
        """A transaction beside the records, which is aborted later: nothing of it may ever be processed."""
        now_ms = self.kernel.clock.now_ms()
        name = TransactionalId(f"noise-{record.id}")
        value = msgspec.structs.replace(record, id=-1 - record.id).value
        try:
            owner = self.broker.init_producer(now_ms, name, 60_000)
            self.broker.add_partitions(now_ms, name, *owner, [record.place])
            noise = [Record(record.customer.encode(), value, now_ms)]
            self.broker.produce(now_ms, record.place, noise, Stamp(*owner, 0, transactional=True), name)
        except RequestRefused:
            return  # the coordinator is away: no noise this time

        def abort() -> None:
            try:
                self.broker.end_transaction(self.kernel.clock.now_ms(), name, *owner, commit=False)
            except RequestRefused:
                self.kernel.at(0.2, abort)

        self.kernel.at(self._noise.uniform(0.01, 0.6), abort)

    # -- daemons ------------------------------------------------------------------------------------------------------

    @property
    def daemon(self) -> SimDaemon | None:
        """The newest one that lives; an older one may live beside it, or win against it."""
        return next((daemon for daemon in reversed(self.daemons) if daemon.process.alive), None)

    def _start_daemon(self) -> None:
        workload = self.schedule.workload
        plan = plan_of(
            workload.topology, self.parallelism, workload.exactly_once, workload.bounded, workload.from_latest
        )
        daemon = SimDaemon(self, len(self.daemons) + 1, plan, self.restore)
        self.daemons.append(daemon)
        self.starting = False
        self.trace.tell(f"{daemon.process.name} starts with {self.parallelism} slots")
        daemon.process.at_death.append(lambda: self._on_daemon_gone(daemon))
        if self.stopping:
            daemon.request_stop()

    def start_daemon_in(self, seconds: float) -> None:
        """Somebody starts another one soon."""
        self.starting = True
        self.kernel.at(seconds, self._start_daemon)

    def _on_daemon_gone(self, daemon: SimDaemon) -> None:
        """What the one who operates it does: start it again, unless it is finished or must not go on."""
        if daemon.over and daemon.error is None and self.stopping:
            self._finished = True
            self.kernel.at(0.0, self.kernel.stop)
            return
        if daemon.over and daemon.error is not None and daemon.error.exit_code == 4:
            refused = isinstance(daemon.error, RestoreRefused)
            if refused and self.going_back is not None:  # what was chosen is not retained any more: nobody insists
                self._dropped, self.restore, self.going_back = self.restore, None, None
            elif refused and daemon.restore is not None and daemon.restore is self._dropped:
                self.trace.tell(f"{daemon.process.name} had been started with the same wish")
            elif not self.striker.repair(daemon.error.message):
                self.problems.append(f"{daemon.process.name} stopped for good: {daemon.error!r}")
                self.kernel.at(0.0, self.kernel.stop)
                return
            self.refusals.append(daemon.error.message)
        if not self.starting and self.daemon is None:
            self.start_daemon_in(self._random.uniform(*RESTART_S))

    # -- the end ------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """No more faults: now everything must come to its end."""
        self.trace.tell("the faults are over")
        self.faults.calm = True
        self.outages.clear()
        self.broker.marker_delay_ms = 0
        self._look()

    def _look(self) -> None:
        if not self.stopping and self._is_complete():
            self.trace.tell("all output is committed: final checkpoint")
            self.stopping = True
            for daemon in self.daemons:
                if daemon.process.alive:
                    daemon.request_stop()
        self.kernel.at(LOOK_S, self._look)

    def _is_complete(self) -> bool:
        try:
            output = self._output()
        except RequestRefused:
            return False  # a leader is still away
        return self.going_back is None and not count_missing(self.schedule.workload, self._records, output[-1])

    def _output(self) -> list[History]:
        """What a read-committed reader sees, cut where somebody went back."""
        fetched = {place: self.fetch(place, FETCH_MAX) for place in self._places}
        ends = [begins for _, begins in self._histories[1:]] + [dict.fromkeys(self._places, FETCH_MAX)]
        histories = []
        for (done, begins), end in zip(self._histories, ends, strict=True):
            output: dict[str, list[list[bytes]]] = {place.topic: [] for place in self._places}
            for place in self._places:
                first, behind = begins.get(place, 0), end[place]
                output[place.topic].append([value for at, value in fetched[place] if first <= at < behind])
            histories.append(History(done, output))
        return histories

    def fetch(self, place: TopicPartition, before: int) -> list[tuple[int, bytes]]:
        """Offset and value of the committed records in front of an offset."""
        found = self.broker.fetch(self.kernel.clock.now_ms(), place, 0, committed=True, limit=FETCH_MAX)
        return [(at, record.value or b"") for at, record in found.records if at < before]

    def on_recovered(self, state: JournalState) -> None:
        """A daemon has recovered; when it was the one that went back, another history begins here.

        Where the first one begins is fixed from then on: what lies in front of it is nobody's.
        """
        begin = state.newest_checkpoint
        if self._skipped is None and begin is not None:
            self._skipped = self.striker.processed(begin) if self.schedule.workload.from_latest else frozenset()
            self._records = [record for record in self._records if record.id not in self._skipped]
        if self.going_back is None or state.origin != self.going_back[0]:
            return
        (origin, done), self.going_back = self.going_back, None
        self._histories.append((done, {place: self.broker.end_offset(place) for place in self._places}))
        self.trace.tell(f"went back to {origin}: {len(done)} records had been processed")

    def _check(self) -> list[str]:
        """The oracle."""
        *earlier, last = self._output()
        workload = self.schedule.workload
        problems = check_output(workload, self._records, last)
        for history in earlier:
            problems += check_output(workload, self._records, history, complete=False)
        later_ms = self.kernel.clock.now_ms() + int(SETTLE_S * 1000)
        for topic in OUTPUTS[self.schedule.workload.topology]:
            for number in range(self.schedule.workload.partitions):
                offsets = self.broker.offsets(later_ms, TopicPartition(topic, number))
                if offsets.stable != offsets.end:
                    problems.append(f"{topic}[{number}]: an open transaction holds readers at {offsets.stable}")
        hanging = [
            one.transactional_id
            for one in self.broker.list_transactions(later_ms)
            if one.state is CoordinatorState.ONGOING
        ]
        if hanging:
            problems.append(f"open transactions: {hanging}")
        return problems


def play(schedule: Schedule, workers: Workers) -> Result:
    """Run a schedule."""
    return World(schedule, workers).run()
