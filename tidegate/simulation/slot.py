"""A slot process: the real loop, deployment, transport, sources and sinks on a virtual thread."""

from __future__ import annotations

import queue
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, cast

from typing_extensions import override

from tidegate import __version__
from tidegate.clock import SteadyClock
from tidegate.formats.schemas import Schemas
from tidegate.ids import Attempt, TopicPartition
from tidegate.kafka.tools import KafkaTools
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import Asked, Caller, CallPolicy, CallTarget, ThreadCaller
from tidegate.simulation.clusters import ClusterLinks
from tidegate.simulation.kernel import Signal, SimCondition, VirtualProcess
from tidegate.simulation.loop import VirtualLoop
from tidegate.simulation.model_broker.channel import open_model_channel
from tidegate.simulation.model_broker.consumer import ModelConsumer
from tidegate.simulation.model_broker.producer import ModelProducer
from tidegate.simulation.network import Endpoint, SimSelector, SimSockets
from tidegate.simulation.observers import WatchedInput, WatchedOutput, note_waiting, watch_loop
from tidegate.simulation.threads import SimHelper, SimUploads
from tidegate.slot.control_link import ControlLost
from tidegate.slot.deployment import Deployment
from tidegate.slot.parts import SlotParts, reading_of
from tidegate.slot.transport import DataTransport
from tidegate.slot.worker import SlotProcess
from tidegate.sources.kafka import SourceBatch
from tidegate.sources.read_back import RecordReader
from tidegate.sources.runtime import BadRecord, SourceRuntime
from tidegate.sources.tools import SourceTools, derive_gather_times
from tidegate.state.backends import OpenState
from tidegate.storage.local import LocalStorage
from tidegate.task.channels import CREDIT_BYTES, InputChannel, RemoteOutput
from tidegate.task.messages import (
    LENGTH,
    Acknowledged,
    AddPartitions,
    Declined,
    Deploy,
    DriverMessage,
    Heartbeat,
    Hello,
    HoldSources,
    Ping,
    SlotMessage,
    SlotSettings,
    decode_driver_message,
    encode_message,
)
from tidegate.threads import Condition, HelperThread, Threads

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.kafka.channel import RequestChannel
    from tidegate.kafka.errors import BrokerUnavailable
    from tidegate.simulation.world import World
    from tidegate.slot.control_link import SlotBootstrap
    from tidegate.slot.uploads import Uploads
    from tidegate.storage.base import Storage

TURN_S: Final = (0.0002, 0.003)
ROWS_AT_ONCE: Final = 6
HELLO_TIMEOUT_S: Final = 10.0
ZOMBIE_S: Final = 0.05
"""Maximum time that a process continues if its lease was over when it woke up."""


class SimThreads(Threads):
    """The virtual threads of one process."""

    def __init__(self, process: VirtualProcess) -> None:
        self._process = process

    @override
    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        return SimHelper(self._process, name, on_error)

    @override
    def condition(self) -> Condition:
        return SimCondition(self._process.kernel)


class SimTools(SimThreads, KafkaTools):
    """Clients of the model brokers for the sinks of one process, or for its daemon."""

    def __init__(self, world: World, process: VirtualProcess) -> None:
        super().__init__(process)
        self.clock = process.clock
        self.links = world.clusters.open_ports(process, world.faults)
        """Finds the connection of the process to the cluster of a client."""

    @override
    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> RequestChannel:
        link = self.links(kafka)
        return open_model_channel(link.broker, link.port, timeout_s)

    def explain(self, kafka: Mapping[str, str], silence: BrokerUnavailable) -> None:
        """Does nothing: the simulation knows no further explanation."""

    @override
    def find_obstacle(self, kafka: Mapping[str, str]) -> None:
        """Returns None: the simulation knows no obstacle."""

    @override
    def producer(self, config: Mapping[str, Any]) -> ModelProducer:
        link = self.links(config)
        return ModelProducer(link.broker, link.port, config)

    @override
    def consumer(self, config: Mapping[str, Any]) -> ModelConsumer:
        link = self.links(config)
        return ModelConsumer(link.broker, link.port, config)


class SimSourceTools(SimThreads, SourceTools):
    """Consumers of the model broker, for the sources of one process."""

    def __init__(self, process: VirtualProcess, links: ClusterLinks) -> None:
        super().__init__(process)
        self.clock = process.clock
        self._links = links
        self.ends: set[tuple[TopicPartition, int]] = set()
        """Last stable offsets that a broker has returned."""

    @override
    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> ModelConsumer:
        link = self._links(config)
        return HeardConsumer(self.ends, link.broker, link.port, config, on_error)

    def find_obstacle(self, kafka: Mapping[str, str]) -> None:
        """Returns None: the simulation knows no obstacle."""


class HeardConsumer(ModelConsumer):
    """A consumer that records the last stable offsets it receives."""

    def __init__(self, ends: set[tuple[TopicPartition, int]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ends = ends

    @override
    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        found = super().offsets_for_times(partitions, timeout)
        self._ends.update((TopicPartition(one.topic, one.partition), one.offset) for one in found)
        return found


class SimSource(SourceRuntime):
    """A source that returns few rows at a time.

    A small input then makes many batches, some of which are in flight when a barrier arrives.
    """

    def note_idle(self, world: World, tools: SimSourceTools) -> None:
        """Counts partitions that become idle, and checks that a broker has reported their end."""
        watermarks = self.watermarks
        if watermarks is None:
            return
        real = watermarks.on_caught_up

        def on_caught_up(part: TopicPartition, question: int = 0) -> None:
            world.reach.note("idle partitions that were asked again" if question else "partitions that are idle")
            if (part, self.reached[part]) not in tools.ends:
                world.problems.append(
                    f"{part} counts as caught up at {self.reached[part]} without an answer from a broker"
                )
            real(part, question)

        watermarks.on_caught_up = on_caught_up  # type: ignore[method-assign]  # only for this source

    @override
    def take(self, rows_max: int) -> SourceBatch | None:
        return super().take(min(rows_max, ROWS_AT_ONCE))


class SimCaller(ThreadCaller):
    """A caller on a virtual loop. Calls in progress never end if their process dies."""

    def __init__(
        self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None], loop: VirtualLoop
    ) -> None:
        super().__init__(name, target, policy, wake)
        self._virtual = loop

    @override
    def submit(self, asked: Asked) -> None:
        if self._loop is None:
            self._loop = self._virtual
            self._virtual.create_task(self._serve())
        self._virtual.call_soon(self._begin, asked)

    @override
    def close(self) -> None:
        if self._loop is not None:
            self._virtual.call_soon(self._request_stop)


class SimParts(SlotParts):
    """The simulated parts of a slot."""

    def __init__(self, world: World, process: VirtualProcess, attempt: Attempt) -> None:
        self._world = world
        self._process = process
        self._attempt = attempt
        self._credit_bytes = world.schedule.workload.credit_bytes or CREDIT_BYTES
        self.tools: SimTools = SimTools(world, process)

    @override
    def input_channel(self, edge: int) -> InputChannel:
        return WatchedInput(self._world.given_up, self._attempt, edge, self._credit_bytes)

    @override
    def remote_output(self, edge: int) -> RemoteOutput:
        return WatchedOutput(self._world.reach, edge, self._credit_bytes)

    @override
    def open_storage(self, settings: SlotSettings) -> Storage:
        return LocalStorage(settings.storage_url, stays=True, tools=self._world.machines.file_tools(self._process))

    @override
    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        return SimUploads(self._process, storage, wake)

    @override
    def choose_backend(self, name: str, retained: int) -> OpenState:
        if name != "rocksdb":
            return super().choose_backend(name, retained)
        disks, process = self._world.machines.local_disks, self._process
        return lambda operator, declaration, groups_of: disks.open(process, operator, declaration, groups_of, retained)

    @override
    def make_source(
        self, spec: SourceOperator, deploy: Deploy, wake: Callable[[], None], bad_record: BadRecord, schemas: Schemas
    ) -> SourceRuntime:
        tools = SimSourceTools(self._process, self.tools.links)
        interval_ms, exactly_once = deploy.settings.checkpoint_interval_ms, deploy.plan.exactly_once
        tools.gather_times = derive_gather_times(interval_ms, exactly_once=exactly_once)
        source = SimSource(spec, *reading_of(deploy, spec.name), wake, bad_record, tools, schemas)
        source.note_idle(self._world, tools)
        return source

    @override
    def open_caller(self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None]) -> Caller:
        loop = VirtualLoop(self._process, self._world.on_bug)  # type: ignore[abstract]  # it has every method that is used
        self._world.loops.append(loop)
        return SimCaller(name, target, policy, wake, loop)

    @override
    def open_reader(self, origins: Sequence[Origin], name: str, wake: Callable[[], None]) -> Caller:
        return RecordReader(origins, name, wake, SimSourceTools(self._process, self.tools.links))


class SimControlLink:
    """The control connection of a slot, on the kernel's time.

    It has the lease, heartbeats and ends of `tidegate.slot.control_link.ControlLink`.
    """

    def __init__(self, world: World, process: VirtualProcess, end: Endpoint, wake: Callable[[], None]) -> None:
        self.local_host = process.name
        self.orders: queue.SimpleQueue[DriverMessage] = queue.SimpleQueue()
        self._world = world
        self._process = process
        self._kernel = process.kernel
        self._end = end
        self._wake = wake
        self._buffer = b""
        self._first: DriverMessage | None = None
        self._news = Signal(self._kernel)
        self._serving = False
        self._closing = False
        self._heard = self._kernel.now
        self._orders_due = 0.0
        """No order is taken before this time, because a slow one holds up those after it."""
        end.on_data = self._on_data
        end.on_end = self._on_end

    def exchange(self, hello: SlotMessage, timeout_s: float) -> DriverMessage:
        """Sends hello and waits for the first order. Raises ControlLost."""
        self._end.send(encode_message(hello))
        self._kernel.wait(self._news, timeout_s)
        if self._first is None:
            raise ControlLost("no deployment from the daemon")
        return self._first

    def start(self, heartbeat: Callable[[], Heartbeat], interval_s: float, lease_s: float) -> None:
        """Starts the heartbeats and the watch over the lease."""
        self._serving = True
        self._heard = self._kernel.now

        def beat() -> None:
            if not self._closing:
                self._end.send(encode_message(heartbeat()))
                self._kernel.at(interval_s, beat, self._process)

        def watch() -> None:
            if self._closing:
                return
            left_s = self._heard + lease_s - self._kernel.now
            if left_s <= 0:  # other threads of a process that wakes up may run first
                late_s = self._process.random.uniform(0.0, ZOMBIE_S)
                self._kernel.at(late_s, lambda: self._process.kill("its lease is over"), self._process)
            else:
                self._kernel.at(left_s + 0.001, watch, self._process)

        beat()
        watch()

    def send(self, message: SlotMessage) -> None:
        """Sends an answer, unless a fault delays, duplicates or drops it."""
        times, delay_s, before = 1, 0.0, b""
        if isinstance(message, Acknowledged | Declined):
            fault = self._world.faults.strike("slot.ack")
            if fault is not None:
                self._world.trace.tell(f"{self._process.name}: {fault}")
                times = {"double": 2, "lose": 0}.get(fault.kind, 1)
                delay_s = fault.seconds
                if isinstance(message, Acknowledged):
                    before = b"".join(map(encode_message, self._world.strange_acks.make(fault.kind, message)))
        if isinstance(message, Acknowledged):
            self._world.strange_acks.note(message)
        data = before + encode_message(message) * times
        self._kernel.at(delay_s, lambda: self._end.send(data), self._process)

    def waiting(self) -> int:
        """Returns 0, because nothing ever waits."""
        return 0

    def close(self, _timeout_s: float) -> None:
        """Closes the connection after everything that was sent."""
        self._kernel.block(0.001)
        self._closing = True
        self._end.close()

    def _on_end(self) -> None:
        self._news.set()
        if self._serving and not self._closing:
            self._process.kill("its control connection is lost")

    def _on_data(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < LENGTH.size + length:
                return
            body = self._buffer[LENGTH.size : LENGTH.size + length]
            self._buffer = self._buffer[LENGTH.size + length :]
            self._take(decode_driver_message(body))

    def _take(self, message: DriverMessage) -> None:
        self._heard = self._kernel.now
        if isinstance(message, Ping):
            return
        if self._first is None:
            self._first = message
            self._news.set()
            return
        if isinstance(message, HoldSources):
            self._world.reach.note("sources put on hold" if message.sources else "sources that read on")
        fault = self._world.faults.strike(f"slot.order.{type(message).__name__.lower()}")
        if fault is not None:
            self._world.trace.tell(f"{self._process.name}: {fault}")
        times = 1 if fault is None else {"double": 2, "lose": 0}.get(fault.kind, 1)
        due = self._kernel.now + (fault.seconds if fault is not None else 0.0)
        self._orders_due = max(self._orders_due, due)  # messages on a connection keep their order
        if times and self._orders_due <= self._kernel.now:
            self._order(message, times)
        elif times:
            self._kernel.at(self._orders_due - self._kernel.now, lambda: self._order(message, times), self._process)

    def _order(self, message: DriverMessage, times: int) -> None:
        if isinstance(message, AddPartitions):
            self._world.reach.note("partitions added while running")
        for _ in range(times):
            self.orders.put(message)
        self._wake()


class SlotSelector(SimSelector):
    """The selector of a slot, which also determines how long a turn of its loop takes."""

    def __init__(self, process: VirtualProcess, pace: float) -> None:
        super().__init__()
        self._kernel = process.kernel
        self._random = process.random
        self._pace = pace
        self._woken = False
        self._changed = SimCondition(process.kernel)

    def wake(self) -> None:
        """Wakes the selector, as `Waker` does."""
        self._woken = True
        self._changed.notify_all()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Returns what is ready: after a turn that moved something (timeout 0), or after `wake` or the timeout."""
        if timeout:
            self._changed.wait_for(lambda: self._woken, timeout)
        if self._woken or not timeout:
            self._kernel.block(self._random.uniform(*TURN_S) * (1.0 if timeout else self._pace))
        self._woken = False
        return super().select(timeout)


class SimSlot:
    """One slot process of one job. `returned` is set when it has ended by itself."""

    def __init__(self, world: World, process: VirtualProcess, bootstrap: SlotBootstrap, partition: int) -> None:
        self.process = process
        self.returned = False
        world.machines.set_clock(process)
        self._world = world
        self._bootstrap = bootstrap
        self._partition = partition
        process.kernel.spawn(process, "main", self._run)

    def _run(self) -> None:
        """Connects, waits for the deployment and serves it, as `run_slot` does."""
        bootstrap, process, world = self._bootstrap, self.process, self._world
        selector: Any = SlotSelector(process, world.schedule.workload.slot_pace)
        try:
            end = world.network.connect(process, bootstrap.port)
            link = SimControlLink(world, process, end, selector.wake)
            sockets: Any = SimSockets(world.network, process, selector.wake)
            elapsed = process.clock.monotonic
            transport = DataTransport(selector, process.name, bootstrap.attempt, bootstrap.token, sockets, elapsed)
            hello = Hello(
                attempt=bootstrap.attempt,
                token=bootstrap.token,
                partition=self._partition,
                process=self._partition,
                host=process.name,
                data_port=transport.port,
                version=__version__,
                python="3",
            )
            order = link.exchange(hello, HELLO_TIMEOUT_S)
        except (OSError, ControlLost) as error:
            world.trace.tell(f"{process.name}: {error}")
            process.exit()
            return
        if isinstance(order, Deploy):
            process.alias = f"slot {order.slot}"
            slot = _SlotProcess(world, process, order, link, transport, selector)
            slot.serve()
            self.returned = slot.returned = True
        process.exit()


class _SlotProcess(SlotProcess):
    """The real slot process with the parts of the simulation. It reports failures to the world."""

    def __init__(
        self,
        world: World,
        process: VirtualProcess,
        deploy: Deploy,
        link: SimControlLink,
        transport: DataTransport,
        selector: Any,
    ) -> None:
        super().__init__(deploy, cast("Any", link), transport, selector, selector)
        self._clock = SteadyClock(process.clock)
        self.returned = False
        self._world = world
        self._process = process

    @staticmethod
    def _log_printed_lines() -> AbstractContextManager[None]:
        """Leaves the standard streams as they are, because they belong to the simulation's own process."""
        return nullcontext()

    def _forward_logs(self, level: int) -> None:
        """Does nothing, because the logs are not read."""

    def _build(self) -> None:
        super()._build()
        assert self._deployment is not None
        if self._process in self._world.machines.apart:
            self._world.problems.append(f"{self._process.name} has begun to work with a directory of its own")
        watch_loop(self._world, self._deploy.attempt, self._deployment.loop)
        note_waiting(self._world.reach, self._deployment.loop, "restored")
        self._process.at_death.insert(0, self._note_crash)  # before the states are closed
        replaying = [task for task in self._deployment.loop.tasks if task.replaying]
        windows = [task for task in replaying if task.vertex.nodes[0].operator.window_columns()]
        self._world.reach.note("subtasks that replay rows in flight", len(replaying))
        self._world.reach.note("windows that replay rows in flight", len(windows))

    def _note_crash(self) -> None:
        if not self.returned and self._deployment is not None:
            note_waiting(self._world.reach, self._deployment.loop, "that crash")

    def _check_parent(self) -> None:
        """Does nothing, because slots are not forked here."""

    def _report(self, error: BaseException) -> None:
        self._world.trace.tell(f"{self._process.name} fails: {type(error).__name__}: {str(error)[:200]}")
        self._world.judge(self._process, error)
        super()._report(error)

    @staticmethod
    def _settle_memory() -> None:
        """Does nothing, because memory settings belong to the simulation's own process."""

    def _make_deployment(self) -> Deployment:
        parts = SimParts(self._world, self._process, self._deploy.attempt)
        return Deployment(self._deploy, self._clock, self._link.send, self._waker.wake, parts, self._link.local_host)
