"""The slots of `loopback.py`: the real `SlotProcess` and `Deployment`, without Kafka, sockets and threads."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, cast

import polars as pl

from tests.support.loopback_kafka import LoopKafka
from tests.task.fakes import FakeSink, Row
from tests.task.restarts import PartitionedSource
from tests.task.rig import Connection
from tidegate.coordinator.types import StateHandle
from tidegate.ids import SlotIndex
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import Out
from tidegate.plan.growth import BatchLimits
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.deployment import Deployment
from tidegate.slot.parts import SlotParts, positions_of
from tidegate.slot.uploads import Uploads
from tidegate.slot.worker import SlotProcess
from tidegate.sources.runtime import SourceRuntime
from tidegate.storage.base import Storage
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.loop import Uploaded, UploadJob
from tidegate.task.messages import Deploy, DriverMessage, PeerAddress, SlotMessage, SlotSettings

FRAME_BYTES: Final = 1 << 20


class InlineUploads(Uploads):
    """Runs jobs immediately, or when the test releases them."""

    def __init__(self, storage: Storage, wake: Callable[[], None]) -> None:
        self.held: list[UploadJob | StateHandle] | None = None
        """If this is a list, jobs wait in it."""
        self.error = ""
        """The error with which every upload fails."""
        super().__init__(storage, wake)

    def release(self) -> None:
        """Runs the waiting jobs, and later ones immediately."""
        jobs, self.held = self.held or [], None
        for job in jobs:
            self._do(job)

    def close(self, timeout_s: float) -> None:
        """Does nothing: there is no thread."""

    def _start(self) -> None:
        """Starts no thread."""

    def _put(self, job: UploadJob | StateHandle) -> None:
        if self.error and isinstance(job, UploadJob):
            self._results.put(Uploaded(job.subtask, job.checkpoint, (), self.error, 0.0))
        elif self.held is None:
            self._do(job)
        else:
            self.held.append(job)


class DirectSink(FakeSink):
    """An at-least-once sink whose records are visible immediately."""

    def __init__(self, kafka: LoopKafka, name: str, slot: int) -> None:
        super().__init__(name, slot, kafka.trace)
        self._kafka = kafka

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._kafka.output += batch.select("k", "n").rows()

    def unconfirmed(self) -> Sequence[Any]:
        return ()


class LoopParts(SlotParts):
    """Parts of a slot that open the test's storage and upload without threads."""

    def __init__(self, storage: Callable[[], Storage]) -> None:
        self._storage = storage

    def open_storage(self, settings: SlotSettings) -> Storage:
        return self._storage()

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        return InlineUploads(storage, wake)


class LoopDeployment(Deployment):
    """A deployment whose sources and sinks are lists of rows; production code builds everything else."""

    def __init__(
        self, deploy: Deploy, clock: Any, send: Callable[[SlotMessage], None], kafka: LoopKafka, parts: LoopParts
    ) -> None:
        super().__init__(deploy, clock, send, lambda: None, parts)
        self._kafka = kafka
        self.sources: list[PartitionedSource] = []
        self.subtasks._build_source = self._build_source  # type: ignore[method-assign]  # of this instance only
        self.subtasks._build_sink = self._build_sink  # type: ignore[method-assign]  # of this instance only

    def _build_source(self, spec: SourceOperator, limits: BatchLimits) -> SourceRuntime:
        mine = [place.partition for place in self._deploy.partitions[spec.name]]
        offsets = {place.partition: offset for place, offset in positions_of(self._deploy, spec.name).next_offsets}
        source = self._kafka.open_source(spec, self._deploy.slot, mine, offsets)
        self.sources.append(source)
        return cast("SourceRuntime", source)

    def _build_sink(self, spec: SinkOperator) -> SinkRuntime:
        if self._deploy.plan.exactly_once:
            sink = FakeSink(spec.name, self._deploy.slot, self._kafka.trace, self._deploy.attempt)
        else:
            sink = DirectSink(self._kafka, spec.name, self._deploy.slot)
        self._kafka.sinks.append(sink)
        return cast("SinkRuntime", sink)


class Wires:
    """Data connections between slots: encoded frames with credits, each transferred as far as possible."""

    def __init__(self) -> None:
        self.inputs: dict[tuple[int, int, int, int], InputChannel] = {}
        """Keys are attempt, receiver, sender and edge."""


class LoopTransport:
    """The DataTransport of one slot."""

    def __init__(self, wires: Wires, attempt: int) -> None:
        self._wires = wires
        self._attempt = attempt
        self._own = 0
        self._outputs: dict[tuple[int, int], RemoteOutput] = {}
        self._connections: dict[tuple[int, int], Connection] = {}

    def open(
        self,
        own: SlotIndex,
        _peers: Collection[PeerAddress],
        inputs: Mapping[tuple[int, int], InputChannel],
        outputs: Mapping[int, Mapping[int, RemoteOutput]],
    ) -> None:
        self._own = own
        self._wires.inputs.update({(self._attempt, own, *end): channel for end, channel in inputs.items()})
        self._outputs = {(to, edge): output for to, edges in outputs.items() for edge, output in edges.items()}

    def pump(self) -> bool:
        moved = False
        for (to, edge), output in self._outputs.items():
            if (to, edge) not in self._connections:
                channel = self._wires.inputs.get((self._attempt, to, self._own, edge))
                if channel is None:
                    continue  # the other slot is not deployed yet
                self._connections[to, edge] = Connection(output, channel)
            connection = self._connections[to, edge]
            while connection.send():
                moved = True
            connection.receive(FRAME_BYTES)
        return moved

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Link:
    """The slot's end of its control connection."""

    local_host = "here"

    def __init__(self, send: Callable[[SlotMessage], None]) -> None:
        self.orders: queue.SimpleQueue[DriverMessage] = queue.SimpleQueue()
        self.send = send

    def close(self, _timeout_s: float) -> None:
        """Does nothing: the seat tracks the end of the slot."""


class LoopSlot(SlotProcess):
    """One deployment, run turn by turn."""

    def __init__(
        self, deploy: Deploy, link: Link, storage: Callable[[], Storage], kafka: LoopKafka, wires: Wires
    ) -> None:
        transport = LoopTransport(wires, deploy.attempt)
        super().__init__(deploy, cast("Any", link), cast("Any", transport), cast("Any", None), cast("Any", None))
        self.moved = True
        self._storage = storage
        self._kafka = kafka

    @property
    def deployment(self) -> LoopDeployment:
        """The deployment that was built."""
        return cast("LoopDeployment", self._deployment)

    @property
    def uploads(self) -> InlineUploads:
        """The uploads of the deployment."""
        return cast("InlineUploads", self.deployment.uploads)

    @property
    def stopping(self) -> bool:
        """True if the slot was asked to return or has failed."""
        return self._stopping

    def begin(self) -> None:
        """Builds everything and reports that the slot runs."""
        self._build()

    def step(self) -> None:
        """Runs one turn and takes what has arrived meanwhile."""
        self.moved = self._turn() or not self.deployment.loop.begun
        self._take_results_and_orders()

    def fail(self, error: Exception) -> None:
        """Reports a failure and stops, as `serve` does."""
        self._report(error)
        self._stopping = True

    def end(self) -> None:
        """Closes everything."""
        self._close()

    def release(self) -> None:
        """Unlocks the local copies and files, as the kernel does when a process ends."""
        if self._deployment is not None:
            self._deployment._copies.close()
            self._deployment.subtasks.code.close()

    def _make_deployment(self) -> Deployment:
        parts = LoopParts(self._storage)
        return LoopDeployment(self._deploy, self._clock, self._link.send, self._kafka, parts)

    @staticmethod
    def _settle_memory() -> None:
        """Does nothing, because the test's process is not a slot."""


def committed_keys(rows: Sequence[Row]) -> dict[int, list[int]]:
    """Returns the numbers of each key in the order in which they became visible."""
    found: dict[int, list[int]] = {}
    for key, number in rows:
        found.setdefault(key, []).append(number)
    return found
