"""A checkpoint and a savepoint of every kind of step that has state, as releases of state format 2 have written them.

These files never change. `bench.py` has the steps and the records; everything is restored and compared, at several
parallelisms, by both backends, and the pipeline continues there to the same output.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.golden.bench import STEPS, contents, load_plan, play_on, rows_in_flight
from tests.plan.meanings import find_changes
from tests.support.rig import read_journal
from tidegate.coordinator.savepoint import check_whole, read_savepoint
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.plan.meaning import derive_meanings
from tidegate.storage.local import LocalStorage

pytestmark = pytest.mark.slow

EXPECTED = json.loads((STEPS / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy: to open a directory may write to it."""
    return shutil.copytree(STEPS, tmp_path / "files")


def newest(files: Path) -> CompletedCheckpoint:
    return read_journal(files / "checkpoints").retained[-1].checkpoint


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_states_of_every_step_are_restored(files: Path, parallelism: int, backend: str) -> None:
    found = contents(load_plan(parallelism), newest(files), LocalStorage(str(files / "checkpoints")), backend)
    assert found == EXPECTED["state"]


def test_rows_in_flight_are_restored(files: Path) -> None:
    found = rows_in_flight(load_plan(3), newest(files), LocalStorage(str(files / "checkpoints")))
    assert found == EXPECTED["in flight"]


def test_the_savepoint_is_restored(files: Path) -> None:
    folder = LocalStorage(str(files / "savepoints" / "savepoint-golden"))
    savepoint = read_savepoint(folder)
    check_whole(savepoint, folder)
    kept = {handle.operator for handle in savepoint.checkpoint.states}
    found = contents(load_plan(2), savepoint.checkpoint, folder, "memory")
    assert {name: found[name] for name in kept} == {name: EXPECTED["state"][name] for name in kept}


def test_the_pipeline_goes_on_from_there(files: Path) -> None:
    assert play_on(load_plan(2), newest(files), LocalStorage(str(files / "checkpoints"))) == EXPECTED["output"]


def test_the_steps_mean_what_they_meant(files: Path) -> None:
    written = read_journal(files / "checkpoints").retained[-1].identity.meanings
    now = derive_meanings(load_plan(2))
    changes = {change for name, parts in written.items() for change in find_changes(parts, now[name])}
    # Since these files were written, a lateness is a part of the meaning: such a checkpoint asks for a word, once.
    assert changes == {"the allowed lateness of orders"}


def test_there_is_a_file_of_every_state(files: Path) -> None:
    plan, handles = load_plan(2), newest(files).states
    declared = {
        (node.operator.name, state.name) for node in plan.nodes for state in node.operator.states(plan.max_parallelism)
    }

    assert {(one.operator, one.state) for one in handles if not one.in_flight} == declared
    assert any(one.increment for one in handles)
