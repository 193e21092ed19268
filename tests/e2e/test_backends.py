"""A pipeline whose state is in RocksDB: killed, rescaled, moved to the other backend and back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.e2e.test_savepoints import finish_repeated, journal, restoring, take_savepoint
from tests.support.command import tidegate
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.state.local_directory import PREFIX

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def increments(rig: Rig) -> list[str]:
    """Files of the newest checkpoint that are read over those of older ones."""
    return [state.path for state in journal(rig).retained[-1].checkpoint.states if state.increment]


def check_upgrade(rig: Rig) -> None:
    """What a user reads before the file is changed, without a word and with one."""
    newest = journal(rig).retained[-1].checkpoint
    silent = rig.write("silent.yaml", changed=True)
    silent.write_text(silent.read_text().replace('"keep": "the same product"', '"drop": "nothing_of_that_name"'))
    refused = tidegate("upgrade", "--check", silent)
    assert refused.code == 4, refused.text
    assert "`revenue_cents` of orders" in refused.stdout
    assert "`state: keep` or `state: reset`" in refused.stdout
    assert tidegate("validate", silent).code == 4
    fits = tidegate("upgrade", "--check", "--migrate-dry-run", rig.write("changed.yaml", changed=True))
    assert fits.code == 0, fits.text
    for told in ("renamed, it was totals", "renamed, it was orders", f"first_id begins at checkpoint {newest.id}"):
        assert told in fits.stdout, fits.stdout
    assert re.search(r"dry run: sums\.totals: [1-9][0-9,]* entries", fits.stdout), fits.stdout


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
    check_upgrade(rig)
    rig.running(changed=True).kill()  # in the middle of its first attempt: some of its checkpoints may be complete
    second = rig.running(backend="memory", parallelism=3, master="local[3]", changed=True)
    path = take_savepoint(second, tmp_path / "mine")
    rig.wait_newer()  # or there is nothing to write again
    assert second.terminate() == 0
    third = restoring(rig, path, "--repeat-output", changed=True).wait_running()
    third.wait_committed()
    finish_repeated(rig, third)
    rig.assert_clean()
