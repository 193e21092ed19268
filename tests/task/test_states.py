"""Several states of one operator, keyed and not, through snapshots and restores with other numbers of subtasks.

What runs is what production runs: loop, subtask, upload names, coordinator's record, restore plan, restore by state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.coordinator.values import ME
from tests.task.fakes import ATTEMPT, FakeSource, VirtualClock
from tests.task.topologies import plan_of, source_node, totals_node, vertex
from tidegate.coordinator.entries import CheckpointEntry, Identity
from tidegate.coordinator.events import FORCED
from tidegate.coordinator.journal_state import EMPTY
from tidegate.coordinator.pending import PendingCheckpoint
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.datatypes import BIGINT, STRING
from tidegate.ids import CheckpointId, JournalSequence, OperatorName, SlotIndex, StateName, SubtaskId
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.plan.assignment import key_group_range
from tidegate.slot.uploads import derive_handle
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, StateShape, declare_list
from tidegate.state.errors import StateUnreadable
from tidegate.state.memory import MemoryState
from tidegate.state.operator_list import OperatorList
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal
from tidegate.task.elements import Barrier
from tidegate.task.loop import SlotLoop, Uploaded, UploadJob
from tidegate.task.messages import Acknowledged, Completed, SlotMessage, Trigger
from tidegate.task.operator_chain import Runtimes
from tidegate.task.ports import OperatorState
from tidegate.task.restore import restore_states
from tidegate.task.vertex import VertexTask

OPERATOR = OperatorName("count")
GROUPS = 128


def keyed(name: str) -> StateDeclaration:
    fields = (StateField("k", STRING),), (StateField("n", BIGINT),)
    return StateDeclaration(StateName(name), StateShape(*fields, key_hash="sum of bytes", max_parallelism=GROUPS))


def group_of(key: str) -> int:
    return sum(key.encode()) % GROUPS


def groups_of(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [group_of(row[0]) for row in rows]


class Counter(OperatorRuntime):
    """An operator with four states."""

    def __init__(self) -> None:
        name = (StateField("name", STRING),)
        self.counts = MemoryState[StateHandle](OPERATOR, keyed("counts"), groups_of)
        self.seen = MemoryState[StateHandle](OPERATOR, keyed("seen"), groups_of)
        self.readers = OperatorList[StateHandle](OPERATOR, declare_list("readers", name))
        self.known = OperatorList[StateHandle](OPERATOR, declare_list("known", name, StateForm.UNION))
        held: tuple[OperatorState, ...] = (self.counts, self.seen, self.readers, self.known)
        self.states = {state.declaration.name: state for state in held}

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        out.emit(batch)


class Slot:
    """A loop with one subtask: a source and the operator."""

    def __init__(self, world: World, index: int) -> None:
        self.sent: list[SlotMessage] = []
        self.jobs: list[UploadJob] = []
        self.operator = Counter()
        self.loop = SlotLoop("p", ATTEMPT, VirtualClock(), self.sent.append, self.jobs.append, lambda *_: None)
        (one,) = world.plan(1).vertices
        task = VertexTask(
            one,
            SubtaskId(one.id, SlotIndex(index)),
            self.loop,
            Runtimes(FakeSource("read", index), {1: self.operator}),
            {},
        )
        self.loop.tasks.append(task)


class World:
    """All slots, and what is stored."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.slots: list[Slot] = []
        self.newest: CompletedCheckpoint | None = None
        self.start(1)

    def plan(self, parallelism: int) -> Any:
        return plan_of(parallelism, [vertex(source_node("read", children=(1,)), totals_node(OPERATOR))], [])

    def start(self, parallelism: int) -> None:
        """A new attempt from the newest checkpoint."""
        restore = self._dealt(parallelism)
        self.slots = [Slot(self, index) for index in range(parallelism)]
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

    def _dealt(self, parallelism: int) -> RestorePlan:
        def identity(count: int) -> Identity:
            return Identity("p", {}, count, GROUPS)

        state = EMPTY
        if self.newest is not None:
            entry = CheckpointEntry(
                format_version=1,
                sequence=JournalSequence(0),
                floor=JournalSequence(0),
                attempt=ATTEMPT,
                writer=ME,
                reserved_to=self.newest.id,
                identity=identity(len(self.slots)),
                at_ms=2,
                journal="j",
                checkpoint=msgspec.json.decode(msgspec.json.encode(self.newest), type=CompletedCheckpoint),
            )
            state = EMPTY.after(entry)
        sources = {OperatorName("read"): {"read": 4}}
        facts = RestoreFacts(identity(parallelism), sources, frozenset({OPERATOR}))
        return decide_restore(state, facts)

    def checkpoint(self, number: int) -> CompletedCheckpoint:
        """From the trigger to the notice."""
        one = CheckpointId(number)
        subtasks = frozenset(task.subtask for slot in self.slots for task in slot.loop.tasks)
        pending = PendingCheckpoint(one, ATTEMPT, FORCED, 1, subtasks)
        for slot in self.slots:
            slot.loop.on_trigger(Trigger("p", ATTEMPT, Barrier(one, 1, final=False)))
            for job in slot.jobs:
                handles = []
                for part, data in enumerate(job.encode()):
                    handles.append(derive_handle(job, part, seal(data)))
                    assert handles[-1].path not in self.files
                    self.files[handles[-1].path] = data
                slot.loop.on_uploaded(Uploaded(job.subtask, job.checkpoint, tuple(handles), "", 1.0))
            slot.jobs.clear()
            (ack,) = [sent.ack for sent in slot.sent if isinstance(sent, Acknowledged)]
            slot.sent.clear()
            pending.acknowledge(ack, 2)
        self.newest = pending.complete((), 2)
        for slot in self.slots:
            slot.loop.on_completed(Completed(ATTEMPT, one, frozenset()))
        return self.newest

    def owner(self, key: str) -> Counter:
        count = len(self.slots)
        return next(
            slot.operator
            for index, slot in enumerate(self.slots)
            if group_of(key) in key_group_range(SlotIndex(index), count, GROUPS)
        )

    def content(self, state: str) -> dict[str, int]:
        """Of all subtasks; each key is where its key group is."""
        found = {}
        for slot in self.slots:
            held = getattr(slot.operator, state)
            for group in range(GROUPS):
                for key, value in held.scan(group):
                    assert self.owner(key) is slot.operator
                    found[key] = value[0]
        return found

    def lists(self, state: str) -> list[list[str]]:
        return [[value[0] for value in getattr(slot.operator, state).values] for slot in self.slots]


def test_F01_F28_every_state_of_an_operator_goes_through_checkpoints_with_1_3_and_2_subtasks() -> None:
    world, number = World(), 0
    counts, seen = {f"key-{i}": i for i in range(60)}, {f"key-{i}": -i for i in range(0, 60, 2)}
    for key, value in counts.items():
        world.owner(key).counts.put(key, (value,))
    for key, value in seen.items():
        world.owner(key).seen.put(key, (value,))
    world.slots[0].operator.readers.replace([(name,) for name in "abcde"])
    world.slots[0].operator.known.replace([("x",)])
    world.checkpoint(number := number + 1)
    for parallelism, readers, known in ((3, ["a", "bc", "de"], ["x"] * 3), (2, ["ab", "cde"], ["xyz", "xyz"])):
        key = f"key-{parallelism}"
        world.owner(key).counts.delete(key)
        del counts[key]
        one = world.checkpoint(number := number + 1)
        assert any(handle.increment for handle in one.states)
        world.start(parallelism)
        assert [world.content("counts"), world.content("seen")] == [counts, seen]
        assert ["".join(names) for names in world.lists("readers")] == readers
        assert ["".join(names) for names in world.lists("known")] == known
        for slot, name in zip(world.slots, "xyz", strict=False):
            slot.operator.known.replace([(name,)])
        world.checkpoint(number := number + 1)


def test_F18_every_file_is_listed_with_the_name_and_the_kind_of_its_state() -> None:
    world = World()
    world.slots[0].operator.readers.replace([("a",)])
    world.slots[0].operator.known.replace([("x",)])
    one = world.checkpoint(1)
    assert {(handle.state, handle.kind) for handle in one.states} == {
        ("counts", StateKind.OPERATOR),
        ("seen", StateKind.OPERATOR),
        ("readers", StateKind.LIST),
        ("known", StateKind.LIST),
    }
    assert sorted(world.files) == [
        f"state/000000000001-count-0.{name}.state" for name in ("counts", "known", "readers", "seen")
    ]
    again = world.checkpoint(2)
    assert again.states == one.states, "nothing has changed"


# -- which file is of which state ------------------------------------------------------------------------------------


def stored(name: str, state: OperatorState, *, increment: bool = False) -> tuple[StateHandle, bytes]:
    capture = state.capture(CheckpointId(9), full=True)
    assert capture.encode is not None
    (data,) = capture.encode()
    digest = hashlib.sha256(data).hexdigest()
    handle = StateHandle(OPERATOR, SlotIndex(0), name, len(data), digest, 0, "", increment=increment)
    return msgspec.structs.replace(handle, state=state.declaration.name), data


def restore(states: Mapping[StateName, OperatorState], *files: tuple[StateHandle, bytes]) -> int:
    data = {handle.path: body for handle, body in files}
    return restore_states(
        OPERATOR, states, [handle for handle, _ in files], lambda one: [data[one.path]], Share(range(GROUPS))
    )


def test_a_state_that_the_operator_does_not_have_is_refused() -> None:
    other = MemoryState[StateHandle](OPERATOR, keyed("timers"), groups_of)
    there = "counts, known, readers, seen"
    with pytest.raises(StateUnreadable, match=rf"state timers of count, .* \(it has: {there}\)") as stop:
        restore(Counter().states, stored("1", other))
    assert stop.value.fields == {"operator": OPERATOR, "state": "timers"}
    with pytest.raises(StateUnreadable, match=r"state timers of count, .* \(it has: none\)"):
        restore({}, stored("1", other))


def test_F28_an_increment_of_one_state_does_not_build_on_another_one() -> None:
    written = Counter()
    with pytest.raises(ObjectCorrupt, match="2 contains changes of state seen of count since an older snapshot"):
        restore(Counter().states, stored("1", written.counts), stored("2", written.seen, increment=True))


def test_what_is_of_another_operator_or_in_flight_is_left_alone() -> None:
    handle, data = stored("1", Counter().counts)
    others = [
        msgspec.structs.replace(handle, operator=OperatorName("other")),
        msgspec.structs.replace(handle, kind=StateKind.INPUT),
    ]
    assert [restore({}, (other, data)) for other in others] == [0, 0]
