"""From the checkpoint of one rig to the start of the next: sources behind their positions, states, rows in flight."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

import msgspec

from tests.task.fakes import FakeSource, Row, frame_of
from tests.task.rig import Rig
from tidegate.coordinator.types import SourcePositions, StateHandle, StateKind
from tidegate.ids import KeyGroup, OperatorName, SlotIndex, TopicPartition, VertexId
from tidegate.plan.assignment import assign_partitions, key_group_range, subtask_of_key_group
from tidegate.plan.graph import Plan
from tidegate.plan.keygroups import key_group_of
from tidegate.task.elements import Batch
from tidegate.task.inflight import derive_shapes, read_inflight

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

    def poll(self, rows_max: int) -> object:  # type: ignore[override]  # a frame, as in FakeSource
        self.polls += 1
        for _ in range(len(self._order)):
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
    """What a rig of `parallelism` slots starts from: nothing, or a checkpoint. Implements rig.Restored."""

    def __init__(self, plan: Plan, history: History, size: int = 3) -> None:
        self._plan = plan
        self._history = history
        self._size = size
        self._positions: dict[tuple[str, int], int] = dict.fromkeys(history, 0)
        self._states: dict[str, list[Row]] = {}
        self._handles: list[StateHandle] = []
        self._files: dict[str, bytes] = {}
        self.forget_replay = False
        self.output_first = False

    def after(self, rig: Rig, checkpoint: int, plan: Plan) -> Start:
        """From a completed checkpoint of a rig, for another plan (the same but for its parallelism)."""
        start = Start(plan, self._history, self._size)
        for ack in rig.acks(checkpoint):
            for positions in ack.positions:
                for partition, offset in positions.next_offsets:
                    start._positions[str(positions.source), partition.partition] = offset
            for state in ack.states:
                if state.kind is StateKind.OPERATOR:
                    rows = msgspec.json.decode(state.path, type=list[Row])
                    start._states.setdefault(state.operator, []).extend(rows)
                else:
                    start._handles.append(state)
                    start._files[state.path] = rig.files[state.path]
        return start

    def source(self, name: str, slot: int) -> FakeSource:
        mine = assign_partitions([TopicPartition(n, p) for n, p in self._history if n == name], self._plan.parallelism)
        partitions = [partition.partition for partition in mine[slot]]
        return PartitionedSource(
            name,
            slot,
            {partition: self._history[name, partition] for partition in partitions},
            {partition: self._positions[name, partition] for partition in partitions},
            self._size,
        )

    def rows(self, operator: str, slot: int) -> list[Row]:
        rows = self._states.get(operator, [])
        edge = next(edge for edge in self._plan.edges if edge.downstream == operator)
        return [row for row in rows if _owner(row, edge.keys, self._plan) == slot]

    def replay(self, task: VertexId, slot: int) -> list[tuple[int, Batch]]:
        if self.forget_replay:
            return []
        inputs = {edge.index for edge in self._plan.inputs_of(task)}
        shapes = {index: shape for index, shape in derive_shapes(self._plan).items() if index in inputs}
        groups = key_group_range(SlotIndex(slot), self._plan.parallelism, self._plan.max_parallelism)
        kinds = [StateKind.INPUT, StateKind.OUTPUT]
        pieces: list[tuple[int, Batch]] = []
        for kind in reversed(kinds) if self.output_first else kinds:
            for handle in self._handles:
                if handle.kind is kind:
                    pieces += read_inflight(handle.path, self._files[handle.path], shapes, groups)
        return pieces


def _owner(row: Row, keys: tuple[str, ...], plan: Plan) -> int:
    (group,) = key_group_of(frame_of([row]), keys, plan.max_parallelism)
    return subtask_of_key_group(KeyGroup(group), plan.parallelism, plan.max_parallelism)


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
