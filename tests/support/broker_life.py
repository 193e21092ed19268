"""One checkpoint, one recovery and one salvage on a real broker and a real directory, killed at a chosen call.

The daemon's own code runs (`recover`, the journal, `KafkaEdge`). Every call of the storage, of the clients and of the
salvage's producers and readers passes a point before it and, if it changes something, after it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import confluent_kafka as ck
import msgspec

from tests.support import clients
from tests.support.clusters import alone
from tests.support.crash_tracer import Child
from tidegate.committable import Committable
from tidegate.coordinator.entries import Writer as JournalWriter
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.recovery import recover
from tidegate.daemon.services import Services
from tidegate.datatypes import BINARY
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, VertexId
from tidegate.journal.journal import Journal
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.writer import TransactionWriter
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Node, Plan, Vertex
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.proof import Flushed, decide_committable, decide_flushed
from tidegate.storage.local import LocalStorage

EFFECTS: Final = frozenset(
    {"storage.put", "storage.put_if_absent", "storage.delete", "client.end_transactions", "client.fence",
     "writer.open", "writer.repeat", "writer.flush", "client.mirror_offsets"}
)  # fmt: skip
"""Calls that change something; they also have a point after them."""
ONCE: Final = frozenset({"writer.repeat", "consumer.consume"})
"""Calls repeated for each record or round; only the first one of each object is a point."""
RECORDS: Final = 30
SHORT_MS: Final = 1_500
LONG_MS: Final = 600_000
SOURCE: Final = OperatorName("in")
SINKS: Final = (OperatorName("a"), OperatorName("b"))
PARTITIONS: Final = 2


class Case(msgspec.Struct, frozen=True):
    """One pipeline with a directory and topics of its own."""

    pipeline: str
    bootstrap: str
    directory: Path

    def topic(self, sink: str) -> str:
        return f"{self.pipeline}-{sink}"

    @property
    def topics(self) -> dict[str, int]:
        """All topics and their partition counts."""
        return {self.topic(name): PARTITIONS for name in (SOURCE, *SINKS)}

    def plan(self) -> Plan:
        """Returns a plan whose sinks have no input, because only the code around them runs."""
        kafka = {"bootstrap.servers": self.bootstrap}
        columns = (("value", BINARY),)
        source = SourceOperator(
            SOURCE, (self.topic(SOURCE),), "raw", columns, columns, "earliest", "never", BadRecordPolicy.FAIL, kafka
        )
        sinks = [
            SinkOperator(name, self.topic(name), "raw", columns, None, None, BadRecordPolicy.FAIL, kafka)
            for name in SINKS
        ]
        nodes = (Node(source, tuple(range(1, len(sinks) + 1)), ()), *(Node(sink, (), ()) for sink in sinks))
        return Plan(self.pipeline, 1, 128, True, (Vertex(VertexId("in"), nodes),), ())


class Points:
    """Counts passages of points by name and kills at the chosen one. `strike` is a name and the number of its passage,
    from 1.
    """

    def __init__(self, child: Child, strike: tuple[str, int] | None) -> None:
        self._child = child
        self._strike = strike
        self._passed: dict[str, int] = {}
        self.armed = False

    def _pass(self, point: str) -> None:
        self._passed[point] = self._passed.get(point, 0) + 1
        self._child.tell(f"point {point}#{self._passed[point]}")
        if self._strike == (point, self._passed[point]):
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a call with its points."""
        left = [1 if name in ONCE else 1 << 30]

        def wrapped(*args: Any, **named: Any) -> Any:
            if not self.armed or not left[0]:
                return call(*args, **named)
            left[0] -= 1
            self._pass(f"before {name}")
            result = call(*args, **named)
            if name in EFFECTS:
                self._pass(f"after {name}")
            return result

        return wrapped


class _Hooked:
    """An object whose public methods all pass points."""

    def __init__(self, kind: str, target: Any, points: Points) -> None:
        self._target = target
        self._calls = {
            name: points.around(f"{kind}.{name}", getattr(target, name))
            for name in dir(target)
            if not name.startswith("_") and name != "close" and callable(getattr(target, name))
        }

    def __getattr__(self, name: str) -> Any:
        return self._calls.get(name) or getattr(self._target, name)


class _Tools(KafkaTools):
    """The real tools with points."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def connect(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        return cast("TransactionClient", _Hooked("client", super().connect(kafka, timeout_s), self._points))

    def writer(self, sink: str, topics: Mapping[str, TopicLimits], properties: Mapping[str, str]) -> TransactionWriter:
        return cast("TransactionWriter", _Hooked("writer", super().writer(sink, topics, properties), self._points))

    def consumer(self, config: Mapping[str, Any]) -> ck.Consumer:
        return cast("ck.Consumer", _Hooked("consumer", super().consumer(config), self._points))


class Daemon:
    """The parts of a daemon that commits and recoveries need."""

    def __init__(self, case: Case, points: Points, token: str) -> None:
        self.case = case
        storage = cast("LocalStorage", _Hooked("storage", LocalStorage(str(case.directory)), points))
        self.journal = Journal(storage, JournalWriter(token, "host", os.getpid()), retained=1, id_reserve=5)
        self.kafka = KafkaEdge({"bootstrap.servers": case.bootstrap}, _Tools(points))
        self._services = Services(
            storage=storage,
            journal=self.journal,
            journal_thread=ThreadPoolExecutor(1, "journal"),
            kafka=alone(self.kafka),
            metrics=PipelineMetrics(case.pipeline, "0"),
        )

    async def recover(self) -> Attempt:
        """Runs the recovery of `daemon/recovery.py`."""
        plan = self.case.plan()
        return (await recover(plan, self._services, Ownership(plan.pipeline, self._services), LONG_MS)).restore.attempt

    async def take(self, checkpoint: CompletedCheckpoint) -> None:
        """Appends, commits, cleans up and mirrors offsets, as `InstructionExecutor` does."""
        appended = await self._services.in_journal_thread(lambda: self.journal.append_checkpoint(checkpoint))
        await self.kafka.commit(appended.permit)
        await self._services.in_journal_thread(self.journal.clean_up)
        offsets = dict(pair for part in checkpoint.positions for pair in part.next_offsets)
        await self.kafka.mirror_offsets(self.case.pipeline, offsets, "")

    def next_checkpoint(self, committables: Sequence[Committable]) -> CompletedCheckpoint:
        """Returns the next checkpoint of the attempt that owns the journal."""
        state = self.journal.state
        newest, takeover = state.newest_checkpoint, state.takeover
        assert takeover is not None
        number = takeover.first_checkpoint if newest is None else max(newest.id + 1, takeover.first_checkpoint)
        at = tuple((TopicPartition(self.case.topic(SOURCE), index), number) for index in range(PARTITIONS))
        return CompletedCheckpoint(
            id=CheckpointId(number),
            attempt=state.attempt,
            triggered_at_ms=1,
            completed_at_ms=2,
            positions=(SourcePositions(SOURCE, at),),
            states=(),
            committables=tuple(committables),
        )


class Transactions:
    """Prepares transactions as sinks do, with producers that live as long as the process."""

    def __init__(self, case: Case, daemon: Daemon) -> None:
        self._case = case
        self._attempt = daemon.journal.state.attempt
        self._journal = daemon.journal.state.journal
        self._client = TransactionClient({"bootstrap.servers": case.bootstrap})
        self._alive: list[ck.Producer] = []

    def prepare(
        self,
        sink: OperatorName,
        numbers: Sequence[int],
        *,
        checkpoint: int,
        subtask: int = 0,
        slot: int = 0,
        timeout_ms: int,
    ) -> Committable:
        """Prepares records with these numbers, each in partition number % 2: flushed, counted and not ended.

        On a busy machine a short timeout may elapse before that. Then it retries with twice the time, up to LONG_MS.
        """
        name = TransactionalName(self._case.pipeline, sink, SlotIndex(subtask), self._attempt, self._journal, slot)
        while True:
            try:
                return self._prepare(name, numbers, checkpoint, timeout_ms)
            except (SinkFailed, ck.KafkaException):
                timeout_ms *= 2
                if timeout_ms > LONG_MS:
                    raise

    def _prepare(
        self, name: TransactionalName, numbers: Sequence[int], checkpoint: int, timeout_ms: int
    ) -> Committable:
        identity, topic = name.transactional_id, self._case.topic(name.sink)
        producer = clients.producer(
            {
                "bootstrap.servers": self._case.bootstrap,
                "transactional.id": identity,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 60_000),
                "linger.ms": 0,
            }
        )
        self._alive.append(producer)
        producer.list_topics(timeout=30)
        producer.init_transactions(30)
        producer.list_topics(topic, timeout=30)  # otherwise the first record waits for it
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, b"%d" % number, b"%d" % (number % 7), number % PARTITIONS)
        left = producer.flush(60)
        found = self._client.describe(identity)
        assert found is not None
        owner = found.producer
        flushed = Flushed(
            sink=name.sink,
            subtask=name.subtask,
            attempt=name.attempt,
            checkpoint=CheckpointId(checkpoint),
            transactional_id=identity,
            producer=owner,
            produced=len(numbers),
            undelivered=left,
            delivery_errors=0,
            first_error="",
            refused=False,
        )
        decide_flushed(flushed)
        return decide_committable(flushed, self._client.prepared_view(identity, owner))


def block(first: int) -> range:
    """Returns the numbers of one transaction."""
    return range(first, first + RECORDS)


def by_partition(numbers: Sequence[int]) -> dict[int, list[int]]:
    """Returns the numbers in each partition, in order."""
    return {index: [number for number in numbers if number % PARTITIONS == index] for index in range(PARTITIONS)}


WHOLE: Final = {
    "checkpoint": {"a": [*block(0)], "b": [*block(2000)]},
    "recovery": {"a": [*block(0)], "b": [*block(2000)]},
    "salvage": {"a": [*block(0), *block(1000), *block(100)], "b": [*block(2000)]},
}
"""The numbers that are visible once everything decided is committed, in the order
of each partition, by life and sink.
"""


async def build(case: Case, life: str) -> None:
    """Leaves the state of a daemon that died after its decision: listed transactions, and an open one that is not
    listed.
    """
    daemon = Daemon(case, Points(cast("Child", None), None), "b0b0b0b0b0b0")
    await daemon.kafka.open()
    await daemon.recover()
    transactions = Transactions(case, daemon)
    first = int(daemon.next_checkpoint(()).id)
    short = SHORT_MS if life == "salvage" else LONG_MS
    a, b = SINKS
    listed = [transactions.prepare(a, block(0), checkpoint=first, timeout_ms=short)]
    if life == "salvage":
        listed.append(transactions.prepare(a, block(1000), checkpoint=first, subtask=1, timeout_ms=short))
    listed.append(transactions.prepare(b, block(2000), checkpoint=first, timeout_ms=short))
    daemon.journal.append_checkpoint(daemon.next_checkpoint(listed))
    if life == "salvage":
        held = transactions.prepare(a, block(100), checkpoint=first + 1, slot=1, timeout_ms=LONG_MS)
        daemon.journal.append_checkpoint(daemon.next_checkpoint([*listed, held]))
    transactions.prepare(b, block(9000), checkpoint=first + 2, slot=2, timeout_ms=LONG_MS)


def run_recovery(child: Child, case: Case, strike: tuple[str, int] | None) -> None:
    """Runs a recovery with points; prints `recovered ATTEMPT`."""

    async def serve() -> None:
        points = Points(child, strike)
        daemon = Daemon(case, points, f"{os.getpid():012x}")
        points.armed = True
        await daemon.kafka.open()
        child.tell(f"recovered {await daemon.recover()}")

    asyncio.run(serve())


def run_checkpoint(child: Child, case: Case, strike: tuple[str, int] | None) -> None:
    """Runs a daemon that takes one checkpoint with points; prints `taken`."""

    async def serve() -> None:
        points = Points(child, strike)
        daemon = Daemon(case, points, f"{os.getpid():012x}")
        await daemon.kafka.open()
        await daemon.recover()
        transactions = Transactions(case, daemon)
        a, b = SINKS
        number = int(daemon.next_checkpoint(()).id)
        listed = [
            transactions.prepare(a, block(0), checkpoint=number, timeout_ms=LONG_MS),
            transactions.prepare(b, block(2000), checkpoint=number, timeout_ms=LONG_MS),
        ]
        transactions.prepare(b, block(9000), checkpoint=number + 1, slot=2, timeout_ms=LONG_MS)
        points.armed = True
        await daemon.take(daemon.next_checkpoint(listed))
        child.tell("taken")

    asyncio.run(serve())
