"""A pipeline with one step of every kind that has state, played in one thread: records, restore, what comes out.

`freeze.py` writes the golden files with these records; the tests restore them and play on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tests.support.user_code import describe_here
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.types import Ack, CompletedCheckpoint, StateHandle
from tidegate.ids import OperatorName, SlotIndex, StateName, SubtaskId, TopicPartition, VertexId
from tidegate.journal.state_files import read_parts, read_state
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.spec import Slot, StepOperator
from tidegate.plan.assignment import key_group_range
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.storage.base import Storage
from tidegate.storage.checksum import unseal
from tidegate.task.inflight import derive_shapes, read_replay
from tidegate.task.restore import restore_states
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import MemoryStorage, VirtualClock

FILES = Path(__file__).with_name("format-1")
PIPELINE = Path(__file__).with_name("pipeline.yaml").read_text(encoding="utf-8")
ENDS = {TopicPartition(topic, number): 40 for topic in ("orders", "lines") for number in range(2)}
CUSTOMERS = ("ann", "bob", None, "zoë")
BEGINS_MS = 1_767_225_600_000


def load_plan(parallelism: int, text: str = PIPELINE) -> Plan:
    """The plan of a pipeline file."""
    loaded = parse_pipeline(text.replace("parallelism: 2", f"parallelism: {parallelism}"), "pipeline.yaml", {})
    assert not loaded.problems, loaded.problems
    return build_plan(describe_here(loaded, {}))


def feed(log: Log, part: int) -> None:
    """The records of one of the parts 0, 1 and 2, which are one minute each."""
    feed_some(log, range(12 * part, 12 * part + 12))


def feed_some(log: Log, numbers: range) -> None:
    """Some of the 36 records of each topic."""
    for number in numbers:
        order = {
            "id": number,
            "customer": CUSTOMERS[number % 4],
            "amount": None if number % 7 == 6 else 10.1 * number,
            "price": f"{number}.25",
            "small": number % 5 - 2,
            "day": f"2026-01-0{number % 3 + 1}",
            "place": None if number % 4 == 1 else {"city": f"city {number % 3}", "days": ["2026-01-01", None]},
            "tags": {"a": number},
            "at": BEGINS_MS + 5000 * number - 7000 * (number % 3),
        }
        _append(log, "orders", number, order)
        begun = number < 12 or (number >= 24 and (number - 12) % 5 == 0)  # deleted by the record before it
        kind = "c" if begun else "d" if number % 5 == 0 else "u"
        before = None if begun else _line(number - 12)
        line = {"op": kind, "before": before, "after": None if kind == "d" else _line(number)}
        _append(log, "lines", number, line)


def _line(number: int) -> dict[str, Any]:
    weight = None if number % 4 == 3 else number / 8
    return {"id": number % 12, "item": f"item {number % 3}", "units": number, "price": f"{number}.50", "weight": weight}


def _append(log: Log, topic: str, number: int, value: Mapping[str, Any]) -> None:
    part = TopicPartition(topic, number % 12 % 2)
    record = json.dumps(value, ensure_ascii=False).encode()
    if topic == "orders":
        moment = value["at"]
        record = record.replace(f'"at": {moment}'.encode(), f'"at": "{_iso(moment)}"'.encode())
    log.append(part, str(number % 12).encode(), record, BEGINS_MS + number)


def _iso(moment_ms: int) -> str:
    seconds = (moment_ms - BEGINS_MS) // 1000
    hours, rest = divmod(seconds + 3600, 3600)
    return f"{'2026-01-01' if hours else '2025-12-31'}T{(hours - 1) % 24:02}:{rest // 60:02}:{rest % 60:02}Z"


Read = Callable[[StateHandle], bytes]


def restore(
    plan: Plan, checkpoint: CompletedCheckpoint, files: Storage, backend: str
) -> Iterator[tuple[OperatorName, list[Mapping[StateName, Any]]]]:
    """The states of every step that has some, by subtask."""
    for node in plan.nodes:
        spec = node.operator
        if spec.states(plan.max_parallelism) and isinstance(spec, StepOperator):
            yield spec.name, restore_step(plan, spec, checkpoint.states, files, backend)


def restore_step(
    plan: Plan, spec: StepOperator, handles: Sequence[StateHandle], files: Storage, backend: str
) -> list[Mapping[StateName, Any]]:
    """The states of one step, by subtask."""
    found = []
    for index in map(SlotIndex, range(plan.parallelism)):
        groups = key_group_range(index, plan.parallelism, plan.max_parallelism)
        slot = Slot(
            plan.max_parallelism,
            choose_backend(backend, 1),
            key_groups=groups,
            subtask=index,
            parallelism=plan.parallelism,
            now_ms=lambda: BEGINS_MS,
        )
        states = spec.open(slot).states
        read = partial(read_parts, files, key_groups=groups)
        restore_states(spec.name, states, handles, read, Share(groups, index, plan.parallelism))
        found.append(states)
    return found


def content(plan: Plan, subtasks: Sequence[Mapping[StateName, Any]]) -> dict[str, Any]:
    """What these states hold, as JSON has it; lists in their order, each value once."""
    found: dict[str, Any] = {}
    for name in subtasks[0]:
        entries: list[Any] = []
        for states in subtasks:
            state = states[name]
            if state.declaration.keyed:
                for group in range(plan.max_parallelism):
                    entries += [[plain(key), plain(value)] for key, value in state.scan(group)]
            else:
                entries += [value for value in map(plain, state.values) if value not in entries]
        found[name] = sorted(entries, key=json.dumps)
    return found


def contents(plan: Plan, checkpoint: CompletedCheckpoint, files: Storage, backend: str) -> dict[OperatorName, Any]:
    """By step what is restored from a checkpoint."""
    found: dict[OperatorName, Any] = {}
    for name, subtasks in restore(plan, checkpoint, files, backend):
        found[name] = content(plan, subtasks)
        close(subtasks)
    return found


def rows_in_flight(plan: Plan, checkpoint: CompletedCheckpoint, files: Storage) -> dict[str, list[str]]:
    """By edge what is replayed, over all subtasks."""
    shapes = derive_shapes(plan)
    found: dict[str, list[str]] = {}
    for slot in map(SlotIndex, range(plan.parallelism)):
        groups = key_group_range(slot, plan.parallelism, plan.max_parallelism)
        for edge, batch in read_replay(checkpoint.states, reader(files), shapes, groups):
            found.setdefault(shapes[edge].name, []).extend(map(repr, batch.frame.rows()))
    return {name: sorted(rows) for name, rows in found.items()}


def close(subtasks: Sequence[Mapping[StateName, Any]]) -> None:
    """Free what they hold."""
    for states in subtasks:
        for state in states.values():
            state.close()


def plain(value: Any) -> Any:
    """As JSON has it, with types that can be told apart."""
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return {"double": value.hex()} if isinstance(value, float) else value


def play_on(plan: Plan, checkpoint: CompletedCheckpoint, files: Storage) -> dict[str, list[list[Any]]]:
    """What comes out after the checkpoint, by sink: keys and values. Nothing new arrives but the records up to the end
    of what was there.
    """
    storage = MemoryStorage()
    for handle in checkpoint.states:
        storage.put(handle.path, files.get(handle.path))
    sources = len(checkpoint.positions) // plan.parallelism
    acks = []
    for slot in range(plan.parallelism):
        subtask = SubtaskId(VertexId("whichever"), SlotIndex(slot))
        positions = checkpoint.positions[slot * sources : (slot + 1) * sources]
        acks.append((Ack(checkpoint.attempt, checkpoint.id, subtask, positions, () if slot else checkpoint.states),))
    log = Log(ENDS)
    for part in range(3):
        feed(log, part)
    snapshot = HarnessSnapshot(tuple(acks), tuple({} for _ in acks), {}, storage)
    harness = Harness(plan, log, VirtualClock(BEGINS_MS), _fail, _with_sources(plan, snapshot))
    try:
        harness.settle()
        harness.watermark(OperatorName("orders"), BEGINS_MS + 3_600_000)
        harness.settle()
        return {sink: [[_text(one.key), _text(one.value)] for one in rows] for sink, rows in harness.written().items()}
    finally:
        harness.close()


def _with_sources(plan: Plan, snapshot: HarnessSnapshot) -> HarnessSnapshot:
    """With what every source of every slot knows of idle partitions: nothing."""
    quiet = {source.name: frozenset[TopicPartition]() for source in plan.operators(SourceOperator)}
    return msgspec.structs.replace(snapshot, quiet=tuple(quiet for _ in snapshot.acks))


def _fail(line: str) -> None:
    raise AssertionError(f"a record was left out: {line}")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def reader(files: Storage) -> Read:
    """Reads the files of a checkpoint."""
    return lambda handle: unseal(handle.path, read_state(files, handle))
