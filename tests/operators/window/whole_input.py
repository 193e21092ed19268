"""Windows in the topology of production, without Kafka: sources with partitions and watermarks, an exchange by key, the
step, and what is committed with each checkpoint. It can be killed and restored at another parallelism.

Loops, subtasks, channels, barriers, states, and what decides who gets which state and which rows in flight are those of
production; the sources' watermarks as well.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
import polars as pl

from tests.task.fakes import ATTEMPT, FakeSource
from tests.task.restarts import Start
from tests.task.rig import Rig, RigSlot
from tests.task.topologies import plan_of, vertex
from tidegate.config.fields.records import Idle
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.coordinator.types import SourcePositions, StateHandle, StateKind
from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, STRING
from tidegate.expressions.expression import Literal
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import CheckpointId, OperatorName, StateName, TopicPartition, VertexId
from tidegate.journal.state_files import derive_head
from tidegate.operators.builtin.kafka_source import EventTime, SourceOperator
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.lateness import measure_behind
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import Slot
from tidegate.plan.graph import Edge, Node, Plan
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.storage.checksum import seal
from tidegate.task.elements import Barrier
from tidegate.task.loop import Uploaded
from tidegate.task.messages import Trigger

COLUMNS = (("k", STRING), ("x", DOUBLE), ("n", BIGINT))
TOPIC = "read"
History = Mapping[int, pl.DataFrame]
"""The records of each partition, with their event times."""


def make_plan(step: WindowOperator, parallelism: int) -> Plan:
    """read -> (hash by k) -> windows -> what is committed."""
    source = SourceOperator(
        name=OperatorName(TOPIC),
        topics=(TOPIC,),
        format="json",
        schema=COLUMNS,
        output=COLUMNS,
        start="earliest",
        until="latest",
        bad_records=BadRecordPolicy.FAIL,
        kafka={},
    )
    sink = FilterOperator(OperatorName("committed"), Literal(True, BOOLEAN), step.output, BadRecordPolicy.FAIL)
    vertices = [vertex(Node(source, (), (0,))), vertex(Node(step, (1,), ()), Node(sink, (), ()))]
    edge = Edge(0, VertexId(TOPIC), VertexId(step.name), ("k",), COLUMNS)
    return plan_of(parallelism, vertices, [edge])


class EventSource(FakeSource):
    """Some partitions in turn, to their ends, a batch of one partition at a time."""

    def __init__(
        self,
        slot: int,
        history: History,
        positions: Mapping[int, int],
        marks: Mapping[int, int],
        delay_ms: int,
        size: int,
    ) -> None:
        super().__init__(TOPIC, slot, bounded=True)
        self._history = history
        self._next = dict(positions)
        self._delay_ms = delay_ms
        self._size = size
        self._order = deque(sorted(history))
        event_time = EventTime(delay_ms=delay_ms, idle=Idle.NEVER)
        parts = [TopicPartition(TOPIC, partition) for partition in sorted(history)]
        restored = {TopicPartition(TOPIC, partition): mark for partition, mark in marks.items()}
        self._watermarks = SourceWatermarks(event_time, parts, restored, bounded=True)

    def poll(self, rows_max: int, out: Out) -> bool:
        for _ in range(len(self._order)):
            partition = self._order[0]
            self._order.rotate(-1)
            start, part = self._next[partition], TopicPartition(TOPIC, partition)
            rows = self._history[partition][start : start + min(rows_max, self._size)]
            if not rows.height:
                continue
            self._next[partition] = start + rows.height
            marks = [self._watermarks.marks[part]]
            behind = measure_behind(rows["__tidegate_time"], [0] * rows.height, marks, self._delay_ms)
            self._watermarks.on_records({part: marks[0]})
            if self._next[partition] == self._history[partition].height:
                self._watermarks.on_end([part])
            self._watermarks.send_before(out)
            out.emit(rows.with_columns(behind))
            self._watermarks.send_after(out)
            return True
        if self._watermarks.waiting:
            self._watermarks.send_before(out)
            self._watermarks.send_after(out)
            return True
        return False

    @property
    def finished(self) -> bool:
        done = all(self._next[partition] == rows.height for partition, rows in self._history.items())
        return done and not self._watermarks.waiting

    def positions(self) -> SourcePositions:
        offsets = tuple((TopicPartition(TOPIC, partition), at) for partition, at in sorted(self._next.items()))
        return SourcePositions(OperatorName(TOPIC), offsets, watermarks=self._watermarks.snapshot())


class Committed(OperatorRuntime):
    """Rows by the checkpoint that commits them, and the late rows that the step in front of it had counted by then."""

    def __init__(self, step: OperatorRuntime) -> None:
        self.by_snapshot: list[list[pl.DataFrame]] = [[]]
        self.late: list[int] = []
        self.step = step

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.by_snapshot[-1].append(batch)

    def before_snapshot(self) -> None:
        self.by_snapshot.append([])
        self.late.append(self.step.late_rows)


class WindowStart(Start):
    """See Start. What a rig begins from: nothing, or a checkpoint of another one."""

    def __init__(self, plan: Plan, history: History, size: int, delay_ms: int) -> None:
        self.partitions = history
        self.delay_ms = delay_ms
        super().__init__(plan, {(TOPIC, partition): [] for partition in history}, size)
        self.files: dict[str, bytes] = {}

    def restart(self, rig: WindowRig, checkpoint: int, plan: Plan) -> WindowStart:
        """From a complete checkpoint of a rig."""
        start = WindowStart(plan, self.partitions, self._size, self.delay_ms)
        start.files = dict(rig.files)
        start._restore = self._restored_of(rig, checkpoint, plan, start)
        return start

    def _restored_of(self, rig: WindowRig, checkpoint: int, plan: Plan, start: WindowStart) -> Any:
        found = self.after(rig, checkpoint, plan)
        start._storage = found._storage
        return found._restore

    def source(self, name: str, slot: int) -> FakeSource:
        dealt = self._restore.slots[slot]
        mine = [part.partition for part in dealt.partitions[OperatorName(name)]]
        known = {part.partition: at for one in dealt.positions for part, at in one.next_offsets}
        marks = {part.partition: at for one in dealt.positions for part, at in one.watermarks}
        return EventSource(
            slot,
            {partition: self.partitions[partition] for partition in mine},
            {partition: known.get(partition, 0) for partition in mine},
            {partition: marks[partition] for partition in mine if partition in marks},
            self.delay_ms,
            self._size,
        )

    def states(self, operator: str, slot: int) -> dict[StateName, list[bytes]]:
        """The files of an operator that a slot is to read."""
        found: defaultdict[StateName, list[bytes]] = defaultdict(list)
        for handle in self._restore.slots[slot].states:
            if handle.kind is StateKind.OPERATOR and handle.operator == operator:
                found[handle.state].append(self.files[handle.path])
        return found

    def _facts(self, plan: Plan) -> RestoreFacts:
        facts = super()._facts(plan)
        stateful = frozenset(operator.name for operator in plan.operators(WindowOperator))
        return msgspec.structs.replace(facts, stateful=stateful)


class WindowRig(Rig):
    """A plan of `make_plan`, from its start or a checkpoint."""

    def __init__(self, plan: Plan, start: WindowStart, backend: str, *, unaligned: bool, run: int) -> None:
        self._start = start
        self._backend = backend
        self._run = run
        self.committed: list[Committed] = []
        super().__init__(plan, restored=start, unaligned=unaligned)

    def _operator(self, slot: RigSlot, node: Node) -> OperatorRuntime:
        if not isinstance(node.operator, WindowOperator):
            (step,) = (
                slot.operators[one.operator.name] for one in self._heads() if one.operator.name in slot.operators
            )
            self.committed.append(Committed(step))
            return self.committed[-1]
        groups, parallelism = self.plan.max_parallelism, self.plan.parallelism
        own = range(-(-slot.index * groups // parallelism), -(-(slot.index + 1) * groups // parallelism))
        runtime = node.operator.open(Slot(groups, choose_backend(self._backend, retained=1), own))
        files = self._start.states(node.operator.name, slot.index)
        for name, state in runtime.states.items():
            if files.get(name):
                state.restore(files[name], Share(own, slot.index, parallelism))
        return runtime

    def _heads(self) -> list[Node]:
        return [each.nodes[0] for each in self.plan.vertices]

    @property
    def records_read(self) -> int:
        """By all sources, since the beginning."""
        positions = [source.positions() for slot in self.slots for source in slot.sources.values()]
        return sum(at for one in positions for _, at in one.next_offsets)

    def trigger_savepoint(self, checkpoint: int) -> None:
        """A checkpoint whose files build on no others."""
        barrier = Barrier(
            CheckpointId(checkpoint), self.clock.ms, unaligned_after_ms=0 if self._unaligned else None, savepoint=True
        )
        for slot in self.slots:
            slot.loop.on_trigger(Trigger(self.plan.pipeline, ATTEMPT, barrier))

    def upload(self, slot: RigSlot, error: str = "") -> bool:
        """See Rig: all files of a state."""
        if not slot.jobs:
            return False
        job = slot.jobs.pop(0)
        handles = []
        for index, data in enumerate(job.encode()):
            path = f"{self._run}/{job.checkpoint}/{job.operator}.{job.state}-{job.subtask.index}.{job.kind}.{index}"
            self.files[path] = data
            sealed = seal(data)
            handles.append(
                StateHandle(
                    job.operator,
                    job.subtask.index,
                    path,
                    len(sealed),
                    hashlib.sha256(sealed).hexdigest(),
                    *derive_head(sealed),
                    job.kind,
                    job.edges,
                    state=job.state,
                )
            )
        slot.loop.on_uploaded(Uploaded(job.subtask, job.checkpoint, tuple(handles), error, 7.0))
        return True

    def close(self) -> None:
        """Kill it."""
        for slot in self.slots:
            for runtime in slot.operators.values():
                for state in runtime.states.values():
                    state.close()
                runtime.close()
