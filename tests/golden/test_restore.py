"""A checkpoint and a savepoint of every kind of step that has state, as `freeze.py` has written them.

They are restored and compared, at several parallelisms, by both backends, and the pipeline continues there to the same
output.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.golden.bench import FILES, contents, load_plan, play_on, rows_in_flight
from tests.golden.freeze import freeze
from tests.plan.fingerprints import find_changes
from tests.support.rig import read_journal
from tidegate.coordinator.entries import CheckpointEntry
from tidegate.ids import OperatorName
from tidegate.journal.savepoint import check_whole, read_savepoint
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.storage.local import LocalStorage

pytestmark = pytest.mark.slow

EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy: to open a directory may write to it."""
    return shutil.copytree(FILES, tmp_path / "files")


def newest(files: Path) -> CheckpointEntry:
    return read_journal(files / "checkpoints").retained[-1]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_states_of_every_step_are_restored(files: Path, parallelism: int, backend: str) -> None:
    storage = LocalStorage(str(files / "checkpoints"))
    assert contents(load_plan(parallelism), newest(files).checkpoint, storage, backend) == EXPECTED["state"]


def test_rows_in_flight_are_restored(files: Path) -> None:
    found = rows_in_flight(load_plan(3), newest(files).checkpoint, LocalStorage(str(files / "checkpoints")))
    assert found == EXPECTED["in flight"]
    assert found


def test_the_savepoint_is_restored(files: Path) -> None:
    folder = LocalStorage(str(files / "savepoints" / "savepoint-golden"))
    savepoint = read_savepoint(folder)
    check_whole(savepoint, folder)
    found = contents(load_plan(2), savepoint.checkpoint, folder, "memory")
    assert found == {**EXPECTED["state"], **EXPECTED["in the savepoint"]}


def test_the_pipeline_continues_from_there(files: Path) -> None:
    storage = LocalStorage(str(files / "checkpoints"))
    assert play_on(load_plan(2), newest(files).checkpoint, storage) == EXPECTED["output"]


def test_the_steps_mean_what_they_meant(files: Path) -> None:
    now = derive_fingerprints(load_plan(2))
    written = newest(files).identity.fingerprints
    assert written.keys() == now.keys()
    assert [change for name, parts in written.items() for change in find_changes(parts, now[name])] == []


def test_the_set_has_every_state_increments_and_words(files: Path) -> None:
    entry, plan = newest(files), load_plan(2)
    declared = {
        (node.operator.name, state.name) for node in plan.nodes for state in node.operator.states(plan.max_parallelism)
    }
    handles = [one for one in entry.checkpoint.states if not one.in_flight]
    calls = {("called", "in_flight")}  # none waits for an answer here
    assert {(one.operator, one.state) for one in handles} == declared - calls
    assert any(one.increment for one in handles)
    assert all(one.head_bytes and one.head_sha256 for one in handles)
    assert entry.identity.applied_directives == {"totals": ("keep: the net is doubled",)}
    assert entry.identity.begun[OperatorName("totals")].keys() == {"added"}


def test_a_set_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x", encoding="utf-8")
    with pytest.raises(FileExistsError):
        freeze(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["kept"]
