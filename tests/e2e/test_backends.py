"""A savepoint of a pipeline on one backend, restored by a changed file on the other: rescaled, killed, and exact."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import msgspec
import pytest

from tests.e2e.conftest import RigMaker
from tests.e2e.test_savepoints import journal, order, restoring
from tests.support.changed_orders import check_changed_totals, enlarged
from tests.support.command import tidegate
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.dev.demo.verify import read_topic
from tidegate.journal.savepoint import read_savepoint
from tidegate.state.local_directory import PREFIX
from tidegate.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]


def increments(rig: Rig) -> list[str]:
    """Files of the newest checkpoint that are read over those of older ones."""
    return [state.path for state in journal(rig).retained[-1].checkpoint.states if state.increment]


def offsets(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """Where the input of a checkpoint ends."""
    return {str(part): offset for one in checkpoint.positions for part, offset in one.next_offsets}


def kill_slot(daemon: DaemonProcess) -> None:
    """A slot is killed under load, which is one failure, and the next attempt has committed something."""
    attempt = daemon.attempt
    assert kill(daemon.slots()[0])
    daemon.wait_attempt(attempt)
    failures = json.loads(daemon.http("/failures")[1])
    assert [(one["attempt"], one["followed_by"]) for one in failures] == [(attempt, "restart")], failures


def stop_with_savepoint(rig: Rig, daemon: DaemonProcess, directory: Path) -> Path:
    """In the middle of the input, with nothing committed after the savepoint."""
    rig.pause()
    stopped = order(daemon, "stop", "--savepoint", "--directory", directory)
    assert stopped.code == 0, stopped.text
    assert daemon.wait() == 0
    path = Path(stopped.stdout.splitlines()[0].removeprefix("file://"))
    final = journal(rig).retained[-1].checkpoint
    assert final.final
    saved = offsets(read_savepoint(LocalStorage(str(path), create=False)).checkpoint)
    assert saved == offsets(final), "something was read after the savepoint"
    assert sum(saved.values()) >= len(rig.writer.orders)
    return path


def check_upgrade(rig: Rig, path: Path) -> None:
    """What a user reads before the changed file is run, without a word and with one."""
    saved = read_savepoint(LocalStorage(str(path), create=False)).checkpoint
    silent = rig.write("silent.yaml", release=2)
    silent.write_text(silent.read_text().replace('"keep": "the same product"', '"drop": "nothing_of_that_name"'))
    refused = tidegate("upgrade", "--from", path, silent)
    assert refused.code == 4, refused.text
    assert "`revenue_cents` of orders" in refused.stdout
    assert "`state: keep` or `state: reset`" in refused.stdout
    assert tidegate("validate", silent).code == 4
    changed = rig.write("changed.yaml", release=2)
    fits = tidegate("upgrade", "--from", path, "--migrate-dry-run", changed)
    assert fits.code == 0, fits.text
    renamed = ("renamed, it was totals", "renamed, it was orders", "pieces was units")
    for told in (*renamed, "largest.max was int and is bigint", f"first_id begins at checkpoint {saved.id}"):
        assert told in fits.stdout, fits.stdout
    assert re.search(r"dry run: sums\.totals: [1-9][0-9,]* entries", fits.stdout), fits.stdout


def kill_after_increment(rig: Rig, daemon: DaemonProcess) -> None:
    """SIGKILL when the newest checkpoint has an increment: the daemon is stopped while somebody looks."""

    def killed() -> bool:
        assert kill(daemon.pid, signal.SIGSTOP)
        if increments(rig):
            daemon.kill()
            return True
        assert kill(daemon.pid, signal.SIGCONT)
        return False

    wait_until(killed, "a checkpoint has an increment")


def test_F17_F28_S08_S09_a_savepoint_of_memory_goes_on_in_rocksdb_rescaled_and_with_changed_columns_exactly_once(
    make_rig: RigMaker, tmp_path: Path
) -> None:
    # A small part of the 500 products changes between two checkpoints, however slow the machine makes them.
    rig = make_rig(seed=81, rate=100, release=1, interval="100ms", savepoint_roots=(str(tmp_path),))
    first = rig.running()
    kill_slot(first)
    path = stop_with_savepoint(rig, first, tmp_path / "mine")
    first_changed = len(rig.writer.orders)
    check_upgrade(rig, path)
    rig.writer.change = enlarged
    rig.writer.resume()

    changed = {"release": 2, "backend": "rocksdb", "parallelism": 3, "master": "local[3]"}
    rig.pipeline = msgspec.structs.replace(rig.pipeline, directory=tmp_path / "new", **changed)
    second = restoring(rig, path, "--repeat-output").wait_running()  # the word for what a new directory cannot know
    second.wait_committed()
    assert len(list(rig.scratch.glob(f"{PREFIX}*/db"))) == 3
    kill_slot(second)
    kill_after_increment(rig, second)
    third = rig.running(backend="memory", parallelism=2, master="local[2]")
    rig.finish(third)

    counts = check_changed_totals(
        rig.writer.orders, read_topic(rig.broker.bootstrap, rig.topic["totals"]), first_changed
    )
    assert (counts.before, counts.before + counts.after) == (first_changed, len(rig.writer.orders))
    assert min(counts.continued, counts.remembered, counts.large) > 0, counts
