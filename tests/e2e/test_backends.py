"""A pipeline whose state is in RocksDB: killed, rescaled, moved to the other backend and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.e2e.test_savepoints import finish_repeated, journal, restoring, take_savepoint
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.state.local_directory import PREFIX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def increments(rig: Rig) -> list[str]:
    """Files of the newest checkpoint that are read over those of older ones."""
    return [state.path for state in journal(rig).retained[-1].checkpoint.states if state.increment]


def test_F17_F28_state_in_rocksdb_stays_exact_through_kills_rescaling_and_a_change_of_the_backend(
    make_rig: RigMaker, tmp_path: Path
) -> None:
    # A small part of the 500 products changes between two checkpoints, however slow the machine makes them.
    rig = make_rig(seed=81, rate=100, backend="rocksdb", interval="100ms", savepoint_roots=(str(tmp_path),))
    first = rig.running()
    assert len(list(rig.scratch.glob(f"{PREFIX}*/db"))) == 2
    attempt = first.attempt
    assert kill(first.slots()[0])
    first.wait_attempt(attempt)
    wait_until(lambda: bool(increments(rig)), "a checkpoint has an increment")
    first.kill()
    second = rig.running(backend="memory", parallelism=3, master="local[3]")
    path = take_savepoint(second, tmp_path / "mine")
    rig.wait_newer()  # or there is nothing to write again
    assert second.terminate() == 0
    third = restoring(rig, path, "--repeat-output").wait_running()
    third.wait_committed()
    finish_repeated(rig, third)
    rig.assert_clean()
