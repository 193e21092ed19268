"""From the checkpoint of one rig to the start of the next: sources after their positions, states, rows in flight.

Who gets what, and in which order rows in flight are replayed, is decided by production code.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec
import polars as pl

from tests.coordinator.fake_storage import FakeStorage
from tests.task.fakes import ATTEMPT, FakeSource, Row, frame_of
from tests.task.rig import Rig
from tests.task.topologies import MAX_PARALLELISM
from tidegate.clock import SYSTEM_CLOCK, SteadyClock
from tidegate.coordinator.entries import CheckpointEntry, Identity, Writer
from tidegate.coordinator.events import FORCED
from tidegate.coordinator.journal_state import EMPTY
from tidegate.coordinator.pending import PendingCheckpoint
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.types import SourcePositions, StateHandle, StateKind
from tidegate.ids import CheckpointId, JournalSequence, OperatorName, TopicPartition, VertexId
from tidegate.plan.graph import Plan
from tidegate.slot.deployment import Deployment
from tidegate.slot.parts import SlotParts
from tidegate.slot.uploads import Uploads
from tidegate.state.keygroups import key_group_of
from tidegate.storage.base import Storage
from tidegate.storage.checksum import seal
from tidegate.task.elements import Batch
from tidegate.task.inflight import derive_shapes
from tidegate.task.messages import Deploy, SlotSettings

SETTINGS = SlotSettings(
    group_id="p",
    storage_url="",
    transaction_timeout_ms=60_000,
    checkpoint_interval_ms=100,
    heartbeat_interval_ms=1000,
    lease_ms=5000,
    pipeline_log_level=0,
)

History = dict[tuple[str, int], list[Row]]
"""Every row of every source partition, by source and partition."""


class PartitionedSource(FakeSource):
    """Reads several partitions in turn, a few rows at a time, each from its position."""

    def __init__(self, name: str, slot: int, rows: dict[int, list[Row]], positions: dict[int, int], size: int) -> None:
        super().__init__(name, slot)
        self._rows = rows
        self._next = positions
        self._size = size
        self._order = deque(sorted(rows))

    def take(self, rows_max: int) -> pl.DataFrame | None:
        for _ in range(len(self._order) if rows_max else 0):
            partition = self._order[0]
            self._order.rotate(-1)
            start = self._next[partition]
            rows = self._rows[partition][start : start + min(rows_max, self._size)]
            if rows:
                self._next[partition] = start + len(rows)
                self.returned += rows
                return frame_of(rows)
        return None

    def positions(self) -> SourcePositions:
        return SourcePositions(
            OperatorName(self.name),
            tuple((TopicPartition(self.name, partition), offset) for partition, offset in sorted(self._next.items())),
        )


class Start:
    """What a rig starts from: nothing, or a checkpoint, dealt out and read by the code that production runs.

    Implements rig.Restored. `forget_replay` is a planted bug.
    """

    def __init__(self, plan: Plan, history: History, size: int = 3) -> None:
        self._plan = plan
        self._history = history
        self._size = size
        self._storage = FakeStorage()
        self._restore = decide_restore(EMPTY, self._facts(plan))
        self.forget_replay = False

    def after(self, rig: Rig, checkpoint: int, plan: Plan) -> Start:
        """From a completed checkpoint of a rig, for another plan (the same but for its parallelism)."""
        start = Start(plan, self._history, self._size)
        pending = PendingCheckpoint(
            CheckpointId(checkpoint), ATTEMPT, FORCED, 1, frozenset(ack.subtask for ack in rig.acks(checkpoint))
        )
        for ack in rig.acks(checkpoint):
            states = tuple(start._store(handle, rig) for handle in ack.states)
            pending.acknowledge(msgspec.structs.replace(ack, states=states), 2)
        identity = self._facts(rig.plan).identity
        entry = CheckpointEntry(
            format_version=1,
            sequence=JournalSequence(0),
            floor=JournalSequence(0),
            attempt=ATTEMPT,
            writer=Writer("test", "here", 1),
            reserved_to=CheckpointId(checkpoint),
            identity=identity,
            at_ms=2,
            journal="j",
            checkpoint=pending.complete((), 2),
        )
        start._restore = decide_restore(EMPTY.after(entry), self._facts(plan))
        return start

    def source(self, name: str, slot: int) -> FakeSource:
        dealt = self._restore.slots[slot]
        known = {part: at for one in dealt.positions if one.source == name for part, at in one.next_offsets}
        mine = dealt.partitions[OperatorName(name)]
        return PartitionedSource(
            name,
            slot,
            {part.partition: self._history[name, part.partition] for part in mine},
            {part.partition: known.get(part, 0) for part in mine},
            self._size,
        )

    def rows(self, operator: str, slot: int) -> list[Row]:
        dealt = self._restore.slots[slot]
        edge = next(edge for edge in self._plan.edges if edge.downstream == operator)
        files = [handle for handle in dealt.states if handle.kind is StateKind.OPERATOR and handle.operator == operator]
        rows = [row for handle in files for row in msgspec.json.decode(handle.path, type=list[Row])]
        groups = key_group_of(frame_of(rows), edge.keys, self._plan.max_parallelism) if rows else ()
        return [row for row, group in zip(rows, groups, strict=True) if group in dealt.key_groups]

    def lists(self, operator: str, slot: int) -> list[bytes]:
        """The files of the lists of an operator."""
        states = self._restore.slots[slot].states
        return [bytes.fromhex(one.path) for one in states if one.kind is StateKind.LIST and one.operator == operator]

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        if self.forget_replay:
            return []
        vertex = next(one for one in self._plan.vertices if one.id == task)
        return self._deployment(slot).subtasks.restore_inflight(vertex)

    def _deployment(self, slot: int) -> Deployment:
        dealt = self._restore.slots[slot]
        deploy = Deploy(
            attempt=ATTEMPT,
            slot=dealt.slot,
            token="",
            plan=self._plan,
            peers=(),
            settings=SETTINGS,
            partitions=dealt.partitions,
            positions=dealt.positions,
            states=dealt.states,
        )
        return Deployment(deploy, SteadyClock(SYSTEM_CLOCK), lambda message: None, lambda: None, Parts(self._storage))

    def _store(self, handle: StateHandle, rig: Rig) -> StateHandle:
        """Rows in flight as files; of an operator the path is the content."""
        if handle.kind in (StateKind.OPERATOR, StateKind.LIST):
            return handle
        data = seal(rig.files[handle.path])
        self._storage.put(handle.path, data)
        return msgspec.structs.replace(handle, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())

    def _facts(self, plan: Plan) -> RestoreFacts:
        sources: dict[OperatorName, dict[str, int]] = {}
        for name, partition in self._history:
            topics = sources.setdefault(OperatorName(name), {name: 0})
            topics[name] = max(topics[name], partition + 1)
        stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(MAX_PARALLELISM))
        identity = Identity("p", {}, plan.parallelism, plan.max_parallelism)
        edges = frozenset(shape.name for shape in derive_shapes(plan).values())
        return RestoreFacts(identity, sources, stateful, edges)


class Parts(SlotParts):
    """A slot's storage, and nothing that runs."""

    def __init__(self, storage: FakeStorage) -> None:
        self._storage = storage

    def open_storage(self, settings: SlotSettings) -> Storage:
        return self._storage

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        return IdleUploads(storage, wake)


class IdleUploads(Uploads):
    """Has no thread."""

    def _start(self) -> None:
        pass


def committed_by(rig: Rig, checkpoint: int) -> list[list[Row]]:
    """What a checkpoint commits: the rows of its transactions, sink subtask by sink subtask, in order."""
    producers = {c.producer_id for ack in rig.acks(checkpoint) for c in ack.committables}
    return [
        [row for producer, rows in sink.transactions.items() if producer in producers for row in rows]
        for slot in rig.slots
        for sink in slot.sinks.values()
    ]


def order_violations(
    committed: Sequence[list[Row]], history: History, key_of: Callable[[Row], int] = lambda row: row[0]
) -> list[tuple[Row, Row]]:
    """Pairs of rows of one key and one source partition that were committed in the wrong order."""
    place = {row: (partition, index) for partition, rows in history.items() for index, row in enumerate(rows)}
    wrong: list[tuple[Row, Row]] = []
    for rows in committed:
        last: dict[object, Row] = {}
        for row in rows:
            partition, index = place[row]
            lane = (partition, key_of(row))
            if lane in last and place[last[lane]][1] >= index:
                wrong.append((last[lane], row))
            last[lane] = row
    return wrong


def counted(committed: Sequence[list[Row]]) -> Counter[Row]:
    return Counter(row for rows in committed for row in rows)
