"""A slot process: the real deployment, loop, transport and sinks, driven by events instead of a selector's wait."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from tidegate import __version__
from tidegate.clock import SteadyClock
from tidegate.daemon.control_link import ControlLost
from tidegate.daemon.deployment import Deployment, SlotParts
from tidegate.daemon.transport import DataTransport
from tidegate.daemon.worker import IDLE_WAIT_S, SlotProcess
from tidegate.ids import TopicPartition
from tidegate.plan.graph import SourceOperator
from tidegate.simulation.kernel import Event, Process, Signal
from tidegate.simulation.model_broker.channel import open_model_channel
from tidegate.simulation.model_broker.consumer import ModelConsumer
from tidegate.simulation.model_broker.reader import ModelReader
from tidegate.simulation.model_broker.writer import ModelWriter
from tidegate.simulation.network import Endpoint, SimSelector, SimSockets
from tidegate.simulation.port import BrokerPort, SimStorage
from tidegate.simulation.threads import SimHelper, SimUploads
from tidegate.sinks.threads import HelperThread
from tidegate.sinks.tools import KafkaTools
from tidegate.sources.kafka import KafkaSource
from tidegate.task.messages import (
    LENGTH,
    Acknowledged,
    Declined,
    Deploy,
    DriverMessage,
    Heartbeat,
    Hello,
    Ping,
    SlotMessage,
    decode_driver_message,
    encode_message,
)

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.coordinator.types import SourcePositions
    from tidegate.daemon.spark import SlotBootstrap
    from tidegate.daemon.uploads import Uploads
    from tidegate.simulation.world import World
    from tidegate.sinks.channel import Channel
    from tidegate.sinks.errors import BrokerUnavailable
    from tidegate.sinks.facts import TopicLimits
    from tidegate.sinks.writer import Writer
    from tidegate.sources.reader import Reader
    from tidegate.storage.base import Storage

TURN_S: Final = (0.0002, 0.003)
HELLO_TIMEOUT_S: Final = 10.0
ZOMBIE_S: Final = 0.05
"""So long a process goes on whose lease was over when it woke up."""


class SimTools(KafkaTools):
    """Clients of the model broker, for one process."""

    def __init__(self, world: World, process: Process) -> None:
        self.clock = process.kernel.clock
        self._process = process
        self._broker = world.broker
        self._port = BrokerPort(process, world.faults, world.outages)

    @property
    def port(self) -> BrokerPort:
        """The process's way to the broker."""
        return self._port

    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> Channel:  # noqa: ARG002  # as KafkaTools
        """See KafkaTools."""
        return open_model_channel(self._broker, self._port, timeout_s)

    def explain(self, kafka: Mapping[str, str], silence: BrokerUnavailable) -> None:
        """Nothing more is known."""

    def writer(self, sink: str, topic: str, properties: Mapping[str, str], limits: TopicLimits) -> Writer:  # noqa: ARG002 - the model refuses no record
        """See KafkaTools."""
        return cast("Writer", ModelWriter(self._broker, self._port, sink, topic, properties))

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        """See KafkaTools."""
        return SimHelper(self._process, name, on_error)

    def consumer(self, config: Mapping[str, Any]) -> ck.Consumer:
        """See KafkaTools."""
        return cast("ck.Consumer", ModelConsumer(self._broker, self._port, config))


class SimSource(KafkaSource):
    """Reads the model broker."""

    def __init__(self, world: World, port: BrokerPort, *arguments: Any) -> None:
        self._world = world
        self._port = port
        super().__init__(*arguments)

    def _make_reader(self, partitions: Sequence[TopicPartition], restored: SourcePositions) -> Reader:
        reader = ModelReader(self._world.broker, self._port, self._operator, partitions, restored, self._wake)
        return cast("Reader", reader)


class SimParts(SlotParts):
    """See SlotParts."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.tools: SimTools = SimTools(world, process)

    def open_storage(self, url: str) -> Storage:  # noqa: ARG002  # as SlotParts
        """See SlotParts."""
        return SimStorage(self._process, self._world.objects, self._world.faults, self._world.outages)

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        """See SlotParts."""
        return SimUploads(self._process, storage, wake)

    def make_source(
        self,
        spec: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        group_id: str,
        wake: Callable[[], None],
    ) -> KafkaSource:
        """See SlotParts."""
        return SimSource(self._world, self.tools.port, spec, partitions, restored, group_id, wake)


class SimControlLink:
    """See tidegate.daemon.control_link.ControlLink: the same lease, heartbeats and ends, on the kernel's time."""

    def __init__(self, world: World, process: Process, end: Endpoint, wake: Callable[[], None]) -> None:
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
        end.on_data = self._on_data
        end.on_end = self._on_end

    def exchange(self, hello: SlotMessage, timeout_s: float) -> DriverMessage:
        """Say hello and wait for the first order. Raises ControlLost."""
        self._end.send(encode_message(hello))
        self._kernel.wait(self._news, timeout_s)
        if self._first is None:
            raise ControlLost("no deployment from the daemon")
        return self._first

    def start(self, heartbeat: Callable[[], Heartbeat], interval_s: float, lease_s: float) -> None:
        """Begin to beat and to watch the lease."""
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
            if left_s <= 0:  # the other threads of a process that wakes up may be quicker
                late_s = self._process.random.uniform(0.0, ZOMBIE_S)
                self._kernel.at(late_s, lambda: self._process.kill("its lease is over"), self._process)
            else:
                self._kernel.at(left_s + 0.001, watch, self._process)

        beat()
        watch()

    def send(self, message: SlotMessage) -> None:
        """Queue an answer."""
        times, delay_s = 1, 0.0
        if isinstance(message, Acknowledged | Declined):
            fault = self._world.faults.strike("slot.ack")
            if fault is not None:
                self._world.trace.tell(f"{self._process.name}: {fault}")
                times = {"double": 2, "lose": 0}.get(fault.kind, 1)
                delay_s = fault.seconds
        data = encode_message(message) * times
        self._kernel.at(delay_s, lambda: self._end.send(data), self._process)

    def waiting(self) -> int:
        """Nothing ever waits."""
        return 0

    def close(self, _timeout_s: float) -> None:
        """End the connection behind what was sent."""
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
        fault = self._world.faults.strike(f"slot.order.{type(message).__name__.lower()}")
        if fault is not None:
            self._world.trace.tell(f"{self._process.name}: {fault}")
        if fault is None or fault.kind == "double":
            for _ in range(1 if fault is None else 2):
                self._order(message)
        elif fault.kind == "slow":
            self._kernel.at(fault.seconds, lambda: self._order(message), self._process)

    def _order(self, message: DriverMessage) -> None:
        self.orders.put(message)
        self._wake()


class SimSlot:
    """One slot process of one job. `returned` is called when it ends by itself."""

    def __init__(self, world: World, process: Process, bootstrap: SlotBootstrap, partition: int) -> None:
        self.process = process
        self.returned = False
        self._world = world
        self._kernel = process.kernel
        self._bootstrap = bootstrap
        self._partition = partition
        self._random = process.random
        self._step_event: Event | None = None
        self._step_at = 0.0
        self._busy_until = 0.0
        self._inner: _Inner | None = None
        self._over = False
        self._kernel.spawn(process, "main", self._start)

    def wake(self) -> None:
        """There is news: turn soon."""
        self._plan_step(self._random.uniform(*TURN_S))

    def _start(self) -> None:
        bootstrap, process, world = self._bootstrap, self.process, self._world
        try:
            end = world.network.connect(process, bootstrap.port)
            link = SimControlLink(world, process, end, self.wake)
            sockets: Any = SimSockets(world.network, process, self.wake)
            selector: Any = SimSelector()
            transport = DataTransport(selector, process.name, bootstrap.attempt, bootstrap.token, sockets)
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
        if not isinstance(order, Deploy):
            process.exit()
            return
        process.alias = f"slot {order.slot}"
        inner = _Inner(world, process, order, link, transport, selector, self)
        link.start(inner.heartbeat, order.settings.heartbeat_interval_ms / 1000, order.settings.lease_ms / 1000)
        try:
            inner.build()
        except Exception as error:  # noqa: BLE001 - as SlotProcess.serve
            self._fail(inner, error)
            return
        self._inner = inner
        self._plan_step(0.0)

    def _plan_step(self, delay_s: float) -> None:
        if self._inner is None or self._over:
            return
        at = max(self._kernel.now + delay_s, self._busy_until)
        if self._step_event is not None:
            if self._step_at <= at:
                return
            self._step_event.cancel()
        self._step_at = at
        self._step_event = self._kernel.at(at - self._kernel.now, self._step, self.process)

    def _step(self) -> None:
        self._step_event = None
        inner = self._inner
        assert inner is not None
        try:
            progressed = inner.step()
        except Exception as error:  # noqa: BLE001 - as SlotProcess.serve
            self._over = True
            self._kernel.spawn(self.process, "main", partial(self._fail, inner, error))
            return
        if inner.stopping:
            self._over = True
            self._kernel.spawn(self.process, "main", lambda: self._end(inner))
            return
        pause_s = self._random.uniform(*TURN_S) * self._world.schedule.workload.slot_pace
        self._busy_until = self._kernel.now + pause_s if progressed else 0.0
        self._plan_step(pause_s if progressed else IDLE_WAIT_S)

    def _fail(self, inner: _Inner, error: Exception) -> None:
        self._world.trace.tell(f"{self.process.name} fails: {type(error).__name__}: {str(error)[:200]}")
        self._world.judge(self.process, error)
        inner.report(error)
        self._end(inner)

    def _end(self, inner: _Inner) -> None:
        inner.close()
        self.returned = True
        self.process.exit()


class _Inner(SlotProcess):
    """The product's slot process without its threads and waits."""

    def __init__(
        self,
        world: World,
        process: Process,
        deploy: Deploy,
        link: SimControlLink,
        transport: DataTransport,
        selector: Any,
        slot: SimSlot,
    ) -> None:
        waker: Any = slot
        super().__init__(deploy, cast("Any", link), transport, selector, waker)
        self._clock = SteadyClock(process.kernel.clock)
        self._turned_at = self._clock.monotonic()
        self._world = world
        self._parts = SimParts(world, process)
        self._selector = selector

    @property
    def stopping(self) -> bool:
        """Stop has come."""
        return self._stopping

    def build(self) -> None:
        """See SlotProcess."""
        self._build()
        assert self._deployment is not None
        self._world.replays += sum(task.replaying > 0 for task in self._deployment.loop.tasks)

    def step(self) -> bool:
        """What arrived, then one turn."""
        self._wait(0.0)
        self._take_news()
        return not self._stopping and self._turn()

    def heartbeat(self) -> Heartbeat:
        """See SlotProcess."""
        return self._heartbeat()

    def report(self, error: Exception) -> None:
        """See SlotProcess."""
        self._report(error)

    def close(self) -> None:
        """See SlotProcess."""
        self._close()

    @staticmethod
    def _settle_memory() -> None:
        """The simulation's memory is its own business."""

    def _make_deployment(self) -> Deployment:
        return Deployment(
            self._deploy, self._clock, self._link.send, self._waker.wake, self._parts, self._link.local_host
        )
