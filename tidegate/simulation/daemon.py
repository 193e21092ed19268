"""A daemon process: the real recovery, attempts, coordinator, journal and committer on a virtual event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.restart import RestartStrategy
from tidegate.coordinator.types import Job
from tidegate.daemon.control_server import HELLO_TIMEOUT_S, TROUBLE, ControlServer, read_hello
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.daemon.services import AttemptSettings, Services, SlotHost
from tidegate.daemon.supervisor import Supervisor
from tidegate.errors import TidegateError
from tidegate.ids import Attempt
from tidegate.plan.graph import Plan
from tidegate.simulation.clusters import ADDRESSES
from tidegate.simulation.kernel import VirtualProcess
from tidegate.simulation.loop import VirtualLoop
from tidegate.simulation.network import Endpoint
from tidegate.simulation.observers import WatchedCoordinator, WatchedJournal, WatchedMetrics
from tidegate.simulation.slot import SimSlot, SimTools
from tidegate.storage.base import Storage
from tidegate.storage.local import LocalStorage
from tidegate.task.messages import SlotSettings

if TYPE_CHECKING:
    from tidegate.coordinator.journal_state import JournalState
    from tidegate.coordinator.types import CompletedCheckpoint
    from tidegate.simulation.world import World
    from tidegate.slot.control_link import SlotBootstrap

CHECKPOINTS: Final = "/checkpoints"
SAVEPOINTS: Final = "/savepoints"
START_TIMEOUT_S: Final = 8.0
HEARTBEAT_MS: Final = 200
LEASE_MS: Final = 1500
GRACE_S: Final = 30.0
"""Only shown in messages. A fault decides when the grace period is over."""
SAVEPOINT_AGAIN_S: Final = 0.3
"""Time until a savepoint is requested again while the pipeline is not running."""
LOOK_S: Final = 0.5
"""Time between two checks of the topics. Attempts last only seconds here."""
NEW_TOPICS_S: Final = 2.0
"""Time between two searches for new topics."""
SLOT_START_S: Final = (0.02, 0.2)
SLOT_NOTICE_S: Final = (0.05, 0.8)
"""Time until Spark notices that a slot is gone."""
SLOT_KILL_S: Final = (0.2, 2.5)
"""Time until Spark has killed the remaining slots of a job that failed or was cancelled."""
RESTARTS: Final = RestartStrategy(initial_ms=100, max_ms=1000, give_up_failures=1000, give_up_window_ms=600_000)


class SimDaemon:
    """One daemon process. When it is `over`, `error` is what it failed with, or None for a finished pipeline."""

    def __init__(self, world: World, number: int, plan: Plan, restore: RestoreOption | None, directory: str) -> None:
        self.process = world.kernel.process("daemon", f"daemon-{number}")
        self.process.alias = "daemon"
        world.machines.set_clock(self.process)
        self.restore = restore
        self.directory = directory
        self.over = False
        self.error: TidegateError | None = None
        self.token = f"{number:08x}" * 4
        """The token of its journal `Writer`."""
        self._number = number
        self._world = world
        self.loop = VirtualLoop(self.process, world.on_bug)  # type: ignore[abstract]  # it has every method that is used
        self._file_tools = world.machines.file_tools(self.process)
        storage = LocalStorage(directory, create=False, tools=self._file_tools)
        settings = world.schedule.workload.checkpoints
        tokens = itertools.count()
        self._services = Services(
            storage=storage,
            journal=WatchedJournal(
                world,
                storage,
                Writer(self.token, self.process.name, number),
                retained=settings.retained,
                id_reserve=settings.id_reserve,
            ),
            journal_thread=cast("Any", self),
            kafka=_make_clusters(world, self.process),
            metrics=cast("Any", WatchedMetrics(world)),
            clock=self.process.clock,
            open_storage=self._open_storage,
            make_token=lambda: f"token-{number}-{next(tokens)}",
        )
        self._server = SimControlServer(world, self)
        self._supervisor = _Supervisor(
            world,
            self.process.name,
            plan,
            self._services,
            SlotHost(cast("Any", SimSparkHost(world, self.process)), self._server, self.process.name),
            AttemptSettings(settings, RESTARTS, self._slot_settings(), START_TIMEOUT_S, LOOK_S, NEW_TOPICS_S),
            StartOptions(restore),
            self._on_attempt,
            self.process.random.random,
        )
        self._supervisor.told = self._on_attempt_failed
        self.loop.create_task(self._main()).add_done_callback(self._on_main_ended)

    def request_stop(self) -> None:
        """Requests a stop as SIGTERM does: a final checkpoint, then the end."""
        self.loop.call_soon(self._supervisor.stop)

    def request_end_now(self) -> None:
        """Ends the process as a second SIGTERM does: open transactions are aborted, and the process ends in any
        state.
        """
        self.loop.call_soon(lambda: self.loop.create_task(self._hurry()))

    def end_grace(self) -> None:
        """Ends `runtime.shutdown_grace`."""
        self.loop.call_soon(lambda: self._supervisor.on_grace_over(GRACE_S))

    async def _hurry(self) -> None:
        await self._supervisor.hurry()
        self._world.trace.tell(f"{self.process.name} ends: asked for twice")
        self.process.exit()

    @property
    def is_running(self) -> bool:
        """True if all slots of an attempt are running."""
        runner = self._supervisor.runner
        return runner is not None and runner.is_running and not runner.is_finished

    @property
    def journal(self) -> JournalState:
        """The journal's state as this daemon knows it."""
        return self._services.journal.state

    @property
    def retained(self) -> tuple[CompletedCheckpoint, ...]:
        """The checkpoints that can be restored, oldest first."""
        return tuple(entry.checkpoint for entry in self.journal.retained)

    def request_savepoint(self) -> None:
        """Requests a savepoint, as `tidegate savepoint` does."""
        self.loop.call_soon(lambda: self.loop.create_task(self._take_savepoint()))

    async def _take_savepoint(self) -> None:
        trace = self._world.trace
        while (runner := self._supervisor.runner) is None or not runner.is_running:  # noqa: ASYNC110 - it repeats the request as a person would
            await asyncio.sleep(SAVEPOINT_AGAIN_S)
        try:
            done = await runner.take_savepoint(SAVEPOINTS)
        except TidegateError as error:
            trace.tell(f"{self.process.name}: no savepoint: {error.message[:200]}")
        else:
            trace.tell(f"{self.process.name}: savepoint {done.path}")
            self._world.operations.savepoints.append(done.path)
            self._world.striker.on_savepoint()

    def _open_storage(self, url: str, *, create: bool = True) -> Storage:
        return LocalStorage(url, create=create, tools=self._file_tools)

    async def _main(self) -> None:
        error: TidegateError | None = None
        try:
            await self._server.start()
            await self._services.in_journal_thread(lambda: self._open_storage(self.directory))
            await self._services.in_journal_thread(self._services.storage.probe)
            await self._services.kafka.open()
            await self._supervisor.run()
        except TidegateError as failure:
            error = failure
        self._supervisor.housekeeping.pause()
        await self._server.stop()
        self.over, self.error = True, error
        self._world.trace.tell(f"{self.process.name} ends: {'finished' if error is None else repr(error)[:300]}")
        self.process.exit()

    def _on_main_ended(self, main: asyncio.Task[None]) -> None:
        """Reports an error that is no TidegateError, and would otherwise leave a daemon that does nothing."""
        if not main.cancelled() and (error := main.exception()) is not None:
            self._world.on_bug(error, f"{self.process.name} has ended")

    def _on_attempt_failed(self, error: TidegateError) -> None:
        self._world.trace.tell(f"{self.process.name}: attempt failed: {type(error).__name__}: {error.message[:300]}")
        self._world.judge(self.process, error)

    def _slot_settings(self) -> SlotSettings:
        workload = self._world.schedule.workload
        return SlotSettings(
            group_id="simulated",
            storage_url=self.directory,
            transaction_timeout_ms=workload.transaction_timeout_ms,
            checkpoint_interval_ms=workload.checkpoints.interval_ms,
            max_concurrent=workload.checkpoints.max_concurrent,
            heartbeat_interval_ms=HEARTBEAT_MS,
            lease_ms=LEASE_MS,
            pipeline_log_level=100,
            state_backend=workload.backends[(self._number - 1) % len(workload.backends)],
            unaligned_after_ms=workload.unaligned_after_ms,
            checkpoints_retained=workload.checkpoints.retained,
        )

    def _on_attempt(self, attempt: Attempt) -> None:
        world = self._world
        world.account.on_recovered(self.journal, self.directory)
        if world.clusters.replaced:
            world.problems.append(f"{self.process.name} goes on although one of its clusters is another one")
        world.trace.tell(f"{self.process.name} begins attempt {attempt}")


def _make_clusters(world: World, process: VirtualProcess) -> KafkaClusters:
    tools, names = SimTools(world, process), world.clusters.names
    return KafkaClusters(
        {
            name: KafkaEdge({"bootstrap.servers": ADDRESSES[name]}, tools, name=name if len(names) > 1 else "")
            for name in names
        }
    )


class _Supervisor(Supervisor):
    """The real supervisor. It reports every failed attempt, and its coordinators are watched."""

    told: Callable[[TidegateError], None]

    def __init__(self, world: World, name: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._world = world
        self._name = name

    def on_running(self, attempt: Attempt) -> None:
        self._world.trace.tell(f"{self._name}: attempt {attempt} is running")
        super().on_running(attempt)

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        self._world.trace.tell(f"{self._name}: checkpoint {checkpoint.id} is complete and committed")
        super().on_completed(checkpoint)
        self._world.account.on_completed(checkpoint)

    def _make_coordinator(self, job: Job) -> Coordinator:
        return WatchedCoordinator(self._settings.checkpoints, job, self._world)

    async def _run_attempt(self) -> None:
        try:
            await super()._run_attempt()
        except TidegateError as error:
            self.told(error)
            raise


class SimControlServer(ControlServer):
    """The real server over simulated connections."""

    def __init__(self, world: World, daemon: SimDaemon) -> None:
        super().__init__(daemon.process.name, HEARTBEAT_MS / 1000, LEASE_MS / 1000)
        self._world = world
        self._daemon = daemon

    @override
    async def start(self) -> None:
        self.port = self._world.network.listen(self._daemon.process, self._accept)
        self._watch = self._daemon.loop.create_task(self._watch_slots())

    def _accept(self, end: Endpoint) -> None:
        reader = asyncio.StreamReader(limit=1 << 20, loop=self._daemon.loop)
        end.on_data = reader.feed_data
        end.on_end = reader.feed_eof
        self._daemon.loop.create_task(self._greet(reader, cast("Any", SimStream(end))))

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads the hello within its timeout, as `ControlHandshake` does, and serves the slot."""
        try:
            hello = await asyncio.wait_for(read_hello(reader.readexactly), HELLO_TIMEOUT_S)
        except TROUBLE:
            writer.close()
            return
        await self._serve_slot(hello, reader, writer)


class SimStream:
    """The part of `asyncio.StreamWriter` that the server uses."""

    def __init__(self, end: Endpoint) -> None:
        self._end = end

    def write(self, data: bytes) -> None:
        """Sends data."""
        self._end.send(data)

    def is_closing(self) -> bool:
        """Returns whether the connection has ended."""
        return not self._end.open

    def close(self) -> None:
        """Ends the connection."""
        self._end.close()


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
            self._kernel.at(self._random.uniform(*SLOT_START_S), partial(self._start, partition))

    def cancel(self) -> None:
        """Kills the remaining slots after a while."""
        for slot in self._slots:
            process = slot.process
            if process.alive:
                self._kernel.at(self._random.uniform(*SLOT_KILL_S), partial(process.kill, "Spark kills it"))

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
            self._kernel.at(self._random.uniform(*SLOT_NOTICE_S), lambda: self._end(f"{slot.process.name} was lost"))
        elif not self._left:
            self._kernel.at(self._random.uniform(0.001, 0.01), lambda: self._end(None))

    def _end(self, error: str | None) -> None:
        ended, self._ended = self._ended, None
        if ended is None:
            return
        if error is not None:
            self.cancel()
        self._kernel.at(0.0, lambda: ended(error), self._daemon)
