"""What releases of format 1 have written is restored for as long as it has users: these files never change.

They are a checkpoint directory of the simulated pipeline `chain` with three subtasks (increments of up to three layers,
rows in flight on both sides of a channel), and a savepoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.rig import read_journal
from tidegate.coordinator.savepoint import check_whole, read_savepoint
from tidegate.coordinator.stored_state import read_state
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.ids import SlotIndex
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.spec import Slot
from tidegate.plan.assignment import key_group_range
from tidegate.plan.graph import Plan
from tidegate.simulation.workload import plan_of
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.snapshot import read_entries
from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage
from tidegate.task.inflight import derive_shapes, read_replay
from tidegate.task.restore import restore_states

FILES = Path(__file__).with_name("format-1")
EXPECTED = json.loads((FILES / "expected.json").read_text())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy: to open a directory may write to it."""
    return shutil.copytree(FILES, tmp_path / "files")


def restored_state(folder: Path, handles: Sequence[StateHandle], plan: Plan, backend: str) -> dict[str, Any]:
    """Of each aggregate the values by key, over all subtasks."""
    storage, found = LocalStorage(str(folder)), {}

    def read(handle: StateHandle) -> bytes:
        return unseal(handle.path, read_state(storage, handle))

    for spec in plan.operators(AggregateOperator):
        own = [one for one in handles if (one.operator, one.kind) == (spec.name, StateKind.OPERATOR)]
        (declaration,) = spec.states(plan.max_parallelism)
        values: dict[str, Any] = {}
        for slot in map(SlotIndex, range(plan.parallelism)):
            groups = key_group_range(slot, plan.parallelism, plan.max_parallelism)
            parts = [part for one in own for part in read_entries(read(one), groups, spec.name, declaration)]
            keys = sorted({key[0] for part in parts for key, _ in part})
            operator = spec.open(Slot(plan.max_parallelism, choose_backend(backend, 1)))
            share = Share(groups, slot, plan.parallelism)
            assert restore_states(spec.name, operator.states, handles, lambda one: [read(one)], share) == len(own)
            totals: Any = operator.states[declaration.name]
            assert len(totals) == len(keys)
            values |= zip(keys, totals.get_many(keys), strict=True)
            totals.close()
        assert None not in values.values()
        found[spec.name] = values
    as_json: dict[str, Any] = json.loads(json.dumps(found))
    return as_json


def replayed_rows(folder: Path, handles: Sequence[StateHandle], plan: Plan) -> dict[str, list[Any]]:
    """The rows in flight by edge, in the order of their replay, over all subtasks."""
    storage, shapes = LocalStorage(str(folder)), derive_shapes(plan)
    found: dict[str, list[Any]] = {shape.name: [] for shape in shapes.values()}
    for slot in range(plan.parallelism):
        groups = key_group_range(SlotIndex(slot), plan.parallelism, plan.max_parallelism)
        pieces = read_replay(handles, lambda one: unseal(one.path, read_state(storage, one)), shapes, groups)
        for edge, batch in pieces:
            found[shapes[edge].name] += batch.frame.rows()
    return {name: sorted(json.loads(json.dumps(rows))) for name, rows in found.items()}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 3, 5])
def test_the_newest_checkpoint_is_restored(files: Path, parallelism: int, backend: str) -> None:
    plan = plan_of("chain", parallelism, exactly_once=True, bounded=False)
    journal = read_journal(files / "checkpoints")
    assert [entry.checkpoint.id for entry in journal.retained] == EXPECTED["retained"]
    newest = journal.retained[-1].checkpoint
    positions = {str(place): offset for one in newest.positions for place, offset in one.next_offsets}
    assert positions == EXPECTED["positions"]
    assert {one.watermarks for one in newest.positions} == {()}, "there was no event time"
    assert len(newest.committables) == EXPECTED["committables"]
    assert restored_state(files / "checkpoints", newest.states, plan, backend) == EXPECTED["state"]
    assert replayed_rows(files / "checkpoints", newest.states, plan) == EXPECTED["in flight"]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_savepoint_is_restored(files: Path, parallelism: int) -> None:
    plan = plan_of("chain", parallelism, exactly_once=True, bounded=False)
    folder = files / "savepoints" / "savepoint-simulated"
    savepoint = read_savepoint(LocalStorage(str(folder)))
    check_whole(savepoint, LocalStorage(str(folder)))
    assert restored_state(folder, savepoint.checkpoint.states, plan, "memory") == EXPECTED["state"]
