"""One step in real slot loops: rows and watermarks are scripted, checkpoints and restores are those of production."""

from __future__ import annotations

from collections import deque
from typing import Any

import polars as pl

from tests.task.fakes import ATTEMPT, FakeSource, VirtualClock
from tests.task.test_states import GROUPS, OPERATOR, World
from tests.task.topologies import filter_node, source_node, totals_node, vertex
from tidegate.ids import SlotIndex, SubtaskId
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import Slot, StepOperator
from tidegate.plan.assignment import key_group_range
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.keygroups import key_group_of
from tidegate.task.loop import SlotLoop, UploadJob
from tidegate.task.messages import SlotMessage
from tidegate.task.operator_chain import Runtimes
from tidegate.task.restore import restore_states
from tidegate.task.vertex import VertexTask

__all__ = ["OPERATOR", "StepWorld"]


class Script(FakeSource):
    """Emits what it is given: frames and watermarks."""

    def __init__(self) -> None:
        super().__init__("read", 0)
        self.script: deque[pl.DataFrame | int] = deque()

    def poll(self, rows_max: int, out: Out) -> bool:
        if not self.script:
            return False
        match self.script.popleft():
            case int(watermark_ms):
                out.watermark(watermark_ms)
            case frame:
                out.emit(frame)
        return True


class Collecting(OperatorRuntime):
    """What reaches the end: rows and watermarks, in order."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any] | int] = []

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self.seen += batch.to_dicts()

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self.seen.append(watermark_ms)


class StepSlot:
    """A loop with one subtask: a source, the step, and what collects."""

    def __init__(self, world: StepWorld, index: int, parallelism: int) -> None:
        self.sent: list[SlotMessage] = []
        self.jobs: list[UploadJob] = []
        self.source, self.end = Script(), Collecting()
        self.groups = key_group_range(SlotIndex(index), parallelism, GROUPS)
        self.clock = VirtualClock()
        self.loop = SlotLoop("p", ATTEMPT, self.clock, self.sent.append, self.jobs.append, lambda *_: None)
        self.operator = world.spec.open(Slot(GROUPS, choose_backend(world.backend, 1), self.groups))
        one = vertex(source_node("read", children=(1,)), totals_node(OPERATOR, children=(2,)), filter_node("end"))
        self.loop.tasks.append(
            VertexTask(
                one,
                SubtaskId(one.id, SlotIndex(index)),
                self.loop,
                Runtimes(self.source, {1: self.operator, 2: self.end}),
                {},
            )
        )


class StepWorld(World):
    """All slots of a step, whose name is OPERATOR; rows go to the slot of their key's group."""

    slots: list[Any]

    def __init__(self, spec: StepOperator, keys: list[str], backend: str = "memory") -> None:
        assert spec.name == OPERATOR
        self.spec = spec
        self.backend = backend
        self._keys = keys
        super().__init__()

    def start(self, parallelism: int) -> None:
        """A new attempt from the newest checkpoint."""
        restore = self._dealt(parallelism)
        self.close()
        self.slots = [StepSlot(self, index, parallelism) for index in range(parallelism)]
        for slot, part in zip(self.slots, restore.slots, strict=True):
            share = Share(part.key_groups, part.slot, parallelism)
            restore_states(
                OPERATOR,
                slot.operator.states,
                part.states,
                lambda one: [self.files[one.path]],
                share,
                same_key_groups=bool(restore.base),
            )

    def close(self) -> None:
        """Close all slots, with the states that were opened for them."""
        for slot in self.slots:
            for state in slot.operator.states.values():
                state.close()
            slot.operator.close()

    def feed(self, *script: pl.DataFrame | int) -> None:
        """Rows to their slots, watermarks to all; nothing is processed yet."""
        for one in script:
            for slot in self.slots:
                if isinstance(one, int):
                    slot.source.script.append(one)
                    continue
                groups = key_group_of(one, self._keys, GROUPS)
                part = one.filter((groups >= slot.groups.start) & (groups < slot.groups.stop))
                if part.height:
                    slot.source.script.append(part)

    def settle(self) -> None:
        """Let the loops turn until nothing moves."""
        while any(slot.loop.turn() for slot in self.slots):
            pass

    def rows(self) -> list[dict[str, Any]]:
        """What has come out since the last call, slot by slot."""
        found = [one for slot in self.slots for one in slot.end.seen if not isinstance(one, int)]
        for slot in self.slots:
            slot.end.seen.clear()
        return found
