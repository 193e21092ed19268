"""One schedule: a cluster, a pipeline, its daemons, an operator who starts them again, and what goes wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from traceback import format_exception
from typing import Final

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.savepoint import METADATA, Savepoint
from tidegate.coordinator.story import ProtocolBroken
from tidegate.coordinator.triggers import CheckpointSettings
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.choosing import RestoreOption
from tidegate.errors import TidegateError
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.baton import Workers
from tidegate.simulation.chance import generator
from tidegate.simulation.daemon import SimDaemon
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.kernel import EPOCH_MS, START_S, Kernel, Process
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import Code, RequestRefused
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.network import Network
from tidegate.simulation.oracle import History, check_output, count_missing
from tidegate.simulation.port import Outages
from tidegate.simulation.trace import Trace
from tidegate.simulation.workload import INPUTS, OUTPUTS, InputRecord, Workload, draw_records, plan_of
from tidegate.sinks.facts import CoordinatorState
from tidegate.storage.checksum import unseal
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
    events: int
    switches: int
    virtual_s: float
    digest: str
    story: tuple[str, ...]
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
        self.objects: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}
        """Savepoints."""
        self.savepoints: list[str] = []
        """Paths of those that are finished."""
        self._restore: RestoreOption | None = None
        self._going_back: tuple[str, frozenset[int]] | None = None
        """Origin that the journal will tell, and the records that had been processed then."""
        self._histories: list[tuple[frozenset[int], dict[TopicPartition, int]]] = [(frozenset(), {})]
        """Records processed before each, and where each begins in the output."""
        workload = schedule.workload
        self.transaction_timeout_ms = workload.transaction_timeout_ms
        self.checkpoints = CheckpointSettings(
            interval_ms=workload.interval_ms,
            timeout_ms=2000,
            max_concurrent=workload.max_concurrent,
            tolerable_failures=3,
            retained=2,
        )
        self.attempts = 0
        self.completed = 0
        self.daemons: list[SimDaemon] = []
        self.problems: list[str] = []
        self.refusals: list[str] = []
        """Why daemons stopped for good, where that was right: a file was damaged. Somebody then puts it back."""
        self._damaged: dict[str, tuple[bytes, bytes]] = {}
        self._records = draw_records(schedule.seed, workload)
        self._parallelism = workload.parallelism
        self._places = [
            TopicPartition(topic, number)
            for topic in OUTPUTS[workload.topology]
            for number in range(workload.partitions)
        ]
        self._random = generator(schedule.seed, "operator")
        self._noise = generator(schedule.seed, "noise")
        self._starting = False
        self._stopping = False
        self._finished = False

    # -- life ---------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Play the schedule."""
        for topic in (*INPUTS[self.schedule.workload.topology], *OUTPUTS[self.schedule.workload.topology]):
            self.broker.create_topic(topic, self.schedule.workload.partitions)
        self._plan_input()
        for fault in self.faults.timed:
            assert fault.at_s is not None
            self.kernel.at(fault.at_s, lambda fault=fault: self._strike(fault))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
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
            events=self.kernel.events,
            switches=self.kernel.switches,
            virtual_s=self.kernel.now - START_S,
            digest=self.trace.digest,
            story=tuple(self.trace.lines),
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
        plan = plan_of(workload.topology, self._parallelism, workload.exactly_once, workload.bounded)
        daemon = SimDaemon(self, len(self.daemons) + 1, plan, self._restore)
        self.daemons.append(daemon)
        self._starting = False
        self.trace.tell(f"{daemon.process.name} starts with {self._parallelism} slots")
        daemon.process.at_death.append(lambda: self._on_daemon_gone(daemon))
        if self._stopping:
            daemon.request_stop()

    def _on_daemon_gone(self, daemon: SimDaemon) -> None:
        """What the one who operates it does: start it again, unless it is finished or must not go on."""
        if daemon.over and daemon.error is None and self._stopping:
            self._finished = True
            self.kernel.at(0.0, self.kernel.stop)
            return
        if daemon.over and daemon.error is not None and daemon.error.exit_code == 4:
            if not self._repair(daemon.error.message):
                self.problems.append(f"{daemon.process.name} stopped for good: {daemon.error!r}")
                self.kernel.at(0.0, self.kernel.stop)
                return
            self.refusals.append(daemon.error.message)
        if not self._starting and self.daemon is None:
            self._starting = True
            self.kernel.at(self._random.uniform(*RESTART_S), self._start_daemon)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """No more faults: now everything must come to its end."""
        self.trace.tell("the faults are over")
        self.faults.calm = True
        self.outages.clear()
        self.broker.marker_delay_ms = 0
        self._look()

    def _look(self) -> None:
        if not self._stopping and self._is_complete():
            self.trace.tell("all output is committed: final checkpoint")
            self._stopping = True
            for daemon in self.daemons:
                if daemon.process.alive:
                    daemon.request_stop()
        self.kernel.at(LOOK_S, self._look)

    def _is_complete(self) -> bool:
        try:
            output = self._output()
        except RequestRefused:
            return False  # a leader is still away
        return not count_missing(self.schedule.workload, self._records, output[-1])

    def _output(self) -> list[History]:
        """What a read-committed reader sees, cut where somebody went back."""
        fetched = {place: self._fetch(place, FETCH_MAX) for place in self._places}
        ends = [begins for _, begins in self._histories[1:]] + [dict.fromkeys(self._places, FETCH_MAX)]
        histories = []
        for (done, begins), end in zip(self._histories, ends, strict=True):
            output: dict[str, list[list[bytes]]] = {place.topic: [] for place in self._places}
            for place in self._places:
                first, behind = begins.get(place, 0), end[place]
                output[place.topic].append([value for at, value in fetched[place] if first <= at < behind])
            histories.append(History(done, output))
        return histories

    def _fetch(self, place: TopicPartition, before: int) -> list[tuple[int, bytes]]:
        found = self.broker.fetch(self.kernel.clock.now_ms(), place, 0, committed=True, limit=FETCH_MAX)
        return [(at, record.value or b"") for at, record in found.records if at < before]

    def on_recovered(self, state: JournalState) -> None:
        """A daemon has recovered; when it was the one that went back, another history begins here."""
        if self._going_back is None or state.origin != self._going_back[0]:
            return
        (origin, done), self._going_back = self._going_back, None
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
            known for known, state in self.broker.list_transactions(later_ms) if state is CoordinatorState.ONGOING
        ]
        if hanging:
            problems.append(f"open transactions: {hanging}")
        return problems

    # -- faults -------------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault) -> None:
        """A fault at a moment."""
        if self.faults.calm:
            return
        action = _STRIKES[fault.kind]
        if action(self, fault):
            self.faults.fired.append(fault)
            self.trace.tell(f"FAULT {fault}")

    def _target(self, name: str) -> Process | None:
        for process in reversed(self.kernel.processes):
            if process.alive and process.alias == name:
                return process
        return None

    def _kill(self, fault: Fault) -> bool:
        process = self._target(fault.target)
        if process is None:
            return False
        process.kill("fault")
        return True

    def _freeze(self, fault: Fault) -> bool:
        process = self._target(fault.target)
        if process is None:
            return False
        process.freeze(fault.seconds)
        return True

    def _replace(self, fault: Fault) -> bool:
        """A second daemon starts while the first one is there, frozen for a while or in full health."""
        daemon = self.daemon
        if daemon is None or self._starting or self._stopping:
            return False
        if fault.seconds:
            daemon.process.freeze(fault.seconds)
        self._starting = True
        self.kernel.at(self._random.uniform(0.0, 0.5), self._start_daemon)
        return True

    def _rescale(self, fault: Fault) -> bool:
        """Kill the daemon; the next one has another parallelism."""
        self._parallelism = int(fault.target)
        daemon = self.daemon
        if daemon is None:
            return False
        daemon.process.kill("rescaled")
        return True

    def _stop(self, _fault: Fault) -> bool:
        """SIGTERM: a final checkpoint, and a new daemon later on."""
        daemon = self.daemon
        if daemon is None or self._stopping:
            return False
        daemon.request_stop()
        return True

    def _savepoint(self, _fault: Fault) -> bool:
        """Somebody asks for a savepoint."""
        daemon = self.daemon
        if daemon is None:
            return False
        daemon.request_savepoint()
        return True

    def _go_back(self, _fault: Fault) -> bool:
        """The daemon is killed and started again from a savepoint, or from the oldest checkpoint that is retained."""
        daemon, workload = self.daemon, self.schedule.workload
        if daemon is None or self._restore is not None or workload.bounded or not workload.exactly_once:
            return False
        if self.savepoints:
            target = self.savepoints[-1]
            body = unseal(METADATA, self.files[f"{target}/{METADATA}"])
            savepoint = msgspec.json.decode(body, type=Savepoint)
            origin, checkpoint = f"savepoint {savepoint.token}", savepoint.checkpoint
        elif daemon.retained:
            checkpoint = daemon.retained[0]
            target = str(checkpoint.id)
            origin = f"checkpoint {target}"
        else:
            return False
        self._going_back = (origin, self._processed(checkpoint))
        self._restore = RestoreOption(target, repeat_output=True)
        daemon.process.kill(f"to go back to {origin}")
        return True

    def _processed(self, checkpoint: CompletedCheckpoint) -> frozenset[int]:
        """Records of the input before its positions."""
        values = [
            value
            for positions in checkpoint.positions
            for place, offset in positions.next_offsets
            for _, value in self._fetch(place, offset)
        ]
        return frozenset(msgspec.json.decode(value)["id"] for value in values)

    def _damage(self, fault: Fault) -> bool:
        """One bit of a stored object is wrong; mostly of the newest one."""
        names = sorted(name for name in self.objects if name.startswith(f"{fault.target}/"))
        if not names:
            return False
        name = names[-1] if self._noise.random() < 0.6 else self._noise.choice(names)
        right = self.objects[name]
        place = self._noise.randrange(len(right))
        wrong = right[:place] + bytes([right[place] ^ 0x10]) + right[place + 1 :]
        self.objects[name] = wrong
        self._damaged[name] = (self._damaged.get(name, (right, b""))[0], wrong)
        self.trace.tell(f"{name} is damaged")
        return True

    def _repair(self, message: str) -> bool:
        """Put damaged objects back, from a backup; whether the message names a file that is or was damaged."""
        for name, (right, wrong) in self._damaged.items():
            if self.objects.get(name) == wrong:
                self.objects[name] = right
                self.trace.tell(f"{name} is put back")
        return any(name in message for name in self._damaged)

    def _cut(self, fault: Fault) -> bool:
        """Break the connections between two processes."""
        one, other = (self._target(name) for name in fault.target.split("/"))
        if one is None or other is None:
            return False
        ends = self.network.connections(one.name, other.name)
        for end in ends:
            end.break_off()
        return bool(ends)

    def _partition(self, fault: Fault) -> bool:
        one, other = fault.target.split("/")
        first, second = self._target(one), self._target(other)
        if first is None:
            return False
        if other == "broker":
            self.outages.cut_off[first.name] = self.kernel.now + fault.seconds
            return True
        if second is None:
            return False
        self.network.partition(first.name, second.name, fault.seconds)
        return True

    def _broker_down(self, fault: Fault) -> bool:
        self.outages.broker = max(self.outages.broker, self.kernel.now + fault.seconds)
        return True

    def _storage_down(self, fault: Fault) -> bool:
        self.outages.storage = max(self.outages.storage, self.kernel.now + fault.seconds)
        return True

    def _coordinator_away(self, fault: Fault) -> bool:
        code = Code.COORDINATOR_LOAD_IN_PROGRESS if fault.target == "loading" else Code.NOT_COORDINATOR
        self.broker.coordinator_away(self._until_ms(fault), code)
        return True

    def _leader_away(self, fault: Fault) -> bool:
        topic, number = fault.target.split("/")
        self.broker.leader_away(TopicPartition(topic, int(number)), self._until_ms(fault))
        return True

    def _marker_delay(self, fault: Fault) -> bool:
        self.broker.marker_delay_ms = int(fault.seconds * 1000)
        return True

    def _until_ms(self, fault: Fault) -> int:
        return EPOCH_MS + int((self.kernel.now + fault.seconds) * 1000)


_STRIKES: Final[dict[str, Callable[[World, Fault], bool]]] = {
    "kill": World._kill,  # noqa: SLF001 - the table of this module's own class
    "freeze": World._freeze,  # noqa: SLF001 - see above
    "replace": World._replace,
    "rescale": World._rescale,  # noqa: SLF001 - see above
    "stop": World._stop,  # noqa: SLF001 - see above
    "savepoint": World._savepoint,  # noqa: SLF001 - see above
    "go-back": World._go_back,  # noqa: SLF001 - see above
    "damage": World._damage,  # noqa: SLF001 - see above
    "cut": World._cut,  # noqa: SLF001 - see above
    "partition": World._partition,  # noqa: SLF001 - see above
    "broker-down": World._broker_down,  # noqa: SLF001 - see above
    "storage-down": World._storage_down,  # noqa: SLF001 - see above
    "coordinator-away": World._coordinator_away,  # noqa: SLF001 - see above
    "leader-away": World._leader_away,  # noqa: SLF001 - see above
    "marker-delay": World._marker_delay,  # noqa: SLF001 - see above
}


def play(schedule: Schedule, workers: Workers) -> Result:
    """Run a schedule."""
    return World(schedule, workers).run()
