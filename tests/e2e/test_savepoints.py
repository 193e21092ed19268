"""Savepoints, restoring something else than the newest checkpoint, several checkpoints at a time, damage."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import frozen, kill
from tests.support.rig import Rig, read_journal, restored_checkpoint
from tests.waiting import wait_until
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.savepoint import read_savepoint
from tidegate.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def tidegate(*arguments: str | Path, of: DaemonProcess | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, in the environment of a daemon."""
    command = [sys.executable, "-m", "tidegate", *map(str, arguments)]
    environ = None if of is None else of.environ
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)


def address(daemon: DaemonProcess) -> str:
    return daemon.wait_for(r"(http://127\.0\.0\.1:\d+)").group(1)


def take_savepoint(daemon: DaemonProcess, directory: Path) -> Path:
    done = tidegate("savepoint", daemon.pipeline, directory, "--http", address(daemon), of=daemon)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def journal(rig: Rig) -> JournalState:
    return read_journal(rig.pipeline.directory)


def restoring(rig: Rig, target: object, *more: str, **overrides: object) -> DaemonProcess:
    return rig.daemon("-m", "tidegate", "run", "--restore", str(target), *more, **overrides).start()


def refused(daemon: DaemonProcess) -> str:
    assert daemon.wait() == 4, daemon.text()[-3000:]
    assert "Traceback" not in daemon.text()
    return daemon.text()


def finish_repeated(rig: Rig, daemon: DaemonProcess) -> None:
    """The end of a run that wrote output again: nothing is lost, and the repetition really happened."""
    wait_until(lambda: bool(daemon.status()["records_committed"]), "something is written again")
    rig.wait_output()
    wait_until(lambda: daemon.status()["lag_records"] == 0, "everything is read and committed")
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    paid, totals = rig.verdicts()
    assert (paid.lost, paid.wrong, totals.lost) == (0, 0, 0), (paid.examples, totals.examples)
    assert paid.doubled > 0, "nothing was written again"


def test_C26_C29_a_savepoint_disturbs_nothing_and_can_be_moved_and_restored(make_rig: RigMaker, tmp_path: Path) -> None:
    rig = make_rig(seed=91, savepoint_roots=(str(tmp_path),))
    daemon = rig.running()
    path = take_savepoint(daemon, tmp_path / "mine")
    moved = shutil.move(path, tmp_path / "elsewhere")
    found = read_savepoint(LocalStorage(str(moved), create=False))
    assert found.checkpoint.id not in [entry.checkpoint.id for entry in journal(rig).retained]
    assert found.checkpoint.states
    daemon.wait_checkpoints(4)
    kept = journal(rig)
    paths = {handle.path for entry in kept.retained for handle in entry.checkpoint.states}
    assert not any(f"/{found.checkpoint.id:012d}/" in name for name in paths)
    rig.wait_output()
    assert daemon.terminate() == 0
    rig.assert_exact()
    assert "before the newest checkpoint" in refused(restoring(rig, moved))
    again = restoring(rig, moved, "--repeat-output").wait_running()
    assert "output behind it is written again" in again.text()
    again.wait_committed()
    finish_repeated(rig, again)
    listed = tidegate("checkpoints", daemon.pipeline)
    assert listed.returncode == 0
    assert re.search(r"final +committed", listed.stdout), listed.stdout


def test_a_restored_savepoint_is_not_restored_again_by_the_next_start(make_rig: RigMaker, tmp_path: Path) -> None:
    """A supervisor repeats the command line for ever; into a new directory, too, with another parallelism."""
    rig = make_rig(seed=92, savepoint_roots=(str(tmp_path),))
    first = rig.running()
    path = take_savepoint(first, tmp_path / "mine")
    assert tidegate("stop", first.pipeline, "--http", address(first), of=first).stdout == "stopped\n"
    assert first.wait() == 0
    new = tmp_path / "new"
    assert "new checkpoint directory" in refused(restoring(rig, path, directory=new))
    options = {"directory": new, "parallelism": 3, "master": "local[3]"}
    second = restoring(rig, path, "--repeat-output", **options).wait_running()
    second.wait_committed()
    second.kill()
    third = restoring(rig, path, "--repeat-output", **options).wait_running()
    assert "--restore changes nothing" in third.text()
    assert restored_checkpoint(third.text()) > restored_checkpoint(second.text())
    finish_repeated(rig, third)


def test_C15_orders_are_refused_where_they_cannot_be_carried_out(make_rig: RigMaker, tmp_path: Path) -> None:
    rig = make_rig(seed=93, savepoint_roots=(str(tmp_path / "root"),))
    gone = tidegate("savepoint", rig.pipeline.write(tmp_path / "p.yaml"), "--http", "http://127.0.0.1:9")
    assert gone.returncode == 1
    assert "no daemon answers at http://127.0.0.1:9" in gone.stderr
    daemon = rig.running()
    other = rig.daemon(name="another").pipeline
    wrong = tidegate("savepoint", other, "--http", address(daemon), of=daemon)
    assert wrong.returncode == 1
    assert "not 'another'" in wrong.stderr
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_text("")
    blocked = tidegate("savepoint", daemon.pipeline, tmp_path / "root" / "file", "--http", address(daemon), of=daemon)
    assert blocked.returncode == 1
    assert "a part of the path is a file" in blocked.stderr
    outside = tidegate("savepoint", daemon.pipeline, tmp_path / "outside", "--http", address(daemon), of=daemon)
    assert outside.returncode == 1
    assert "`savepoints.roots`" in outside.stderr
    assert not (tmp_path / "outside").exists()
    stranger = tidegate("stop", daemon.pipeline, "--http", address(daemon))  # does not see the daemon's files
    assert stranger.returncode == 1
    assert "the order has no token" in stranger.stderr
    ours = take_savepoint(daemon, rig.pipeline.directory / "savepoints")
    listed = tidegate("checkpoints", daemon.pipeline).stdout
    assert str(ours) in listed
    rig.daemons.remove(rig.daemons[-1])
    rig.finish(daemon)


def kill_between(rig: Rig, daemon: DaemonProcess) -> None:
    """Killed when the newer of three retained checkpoints commit output, whatever pace the load has."""

    def apart() -> bool:
        with frozen([daemon.pid]):
            oldest, *newer = [entry.checkpoint for entry in journal(rig).retained]
            found = (
                oldest.id > 1
                and len(newer) == 2
                and any(
                    one.sink == "paid_orders" and one.checkpoint > oldest.id
                    for each in newer
                    for one in each.committables
                )
            )
            if found:
                daemon.kill()
            return found

    wait_until(apart, "output lies between the retained checkpoints")


def test_C32_a_retained_checkpoint_is_chosen_by_its_number(make_rig: RigMaker) -> None:
    rig = make_rig(seed=94)
    first = rig.running()
    kill_between(rig, first)
    older = journal(rig).retained[0].checkpoint.id
    assert f"checkpoint {older} lies " in refused(restoring(rig, older))
    assert "checkpoint 1 is not retained" in refused(restoring(rig, 1))
    second = restoring(rig, older, "--repeat-output").wait_running()
    finish_repeated(rig, second)
    assert journal(rig).origin == f"checkpoint {older}"


def test_F07_three_checkpoints_at_a_time_stay_exact_through_kills(make_rig: RigMaker) -> None:
    rig = make_rig(seed=95, rate=500, interval="50ms", max_concurrent=3)

    def overlap() -> bool:
        one = [entry.checkpoint for entry in journal(rig).retained]
        return any(new.triggered_at_ms < old.completed_at_ms for old, new in pairwise(one))

    first = rig.running()
    wait_until(overlap, "two checkpoints were under way at a time")
    attempt = first.attempt
    assert kill(first.slots()[0])
    first.wait_attempt(attempt)
    first.kill()
    second = rig.daemon().start().wait_running()
    second.wait_committed()
    wait_until(overlap, "two checkpoints were under way at a time")
    rig.finish(second)


def test_C32_state_and_partitions_are_dealt_out_anew_from_1_to_3_to_2_to_5(make_rig: RigMaker) -> None:
    rig = make_rig(seed=96, parallelism=1, master="local[1]")
    rig.running().kill()
    for slots in (3, 2):
        rig.running(parallelism=slots, master=f"local[{slots}]").kill()
    rig.finish(rig.running(parallelism=5, master="local[5]"))


def damage_newest(rig: Rig) -> int:
    """Bits of what only the newest checkpoint lists are flipped; its number."""
    *older, newest = (entry.checkpoint for entry in journal(rig).retained)
    own = {handle.path for handle in newest.states} - {handle.path for one in older for handle in one.states}
    for name in own:
        path = rig.pipeline.directory / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(bytes(data))
    assert own
    return newest.id


def crashed(rig: Rig, point: str) -> DaemonProcess:
    rig.writer.start()
    rig.outputs.start()
    daemon = rig.daemon("-m", "tests.support.faulty_daemon", point, "3").start()
    assert daemon.wait() == -9, daemon.text()[-3000:]
    assert f"fault: {point}" in daemon.text(), "the planned fault did not happen"
    return daemon


def test_C32_behind_a_damaged_checkpoint_that_was_not_committed_the_one_before_it_is_restored(
    make_rig: RigMaker,
) -> None:
    """It died between the decision and the commit: the transactions are aborted, the input is read again."""
    rig = make_rig(seed=97)
    crashed(rig, "after-append")
    damaged = damage_newest(rig)
    before = journal(rig).retained[-2].checkpoint.id
    daemon = rig.daemon().start().wait_running()
    assert f"going back to checkpoint {before}: checkpoint {damaged} is damaged" in daemon.text()
    rig.finish(daemon)


def test_C32_behind_a_damaged_checkpoint_that_was_committed_nothing_is_restored_without_being_asked(
    make_rig: RigMaker,
) -> None:
    rig = make_rig(seed=98)
    crashed(rig, "after-commit")
    damaged = damage_newest(rig)
    before = journal(rig).retained[-2].checkpoint.id
    text = refused(rig.daemon().start())
    assert f"checkpoint {damaged} is damaged" in text
    assert f"--restore {before} --repeat-output" in text
    finish_repeated(rig, restoring(rig, before, "--repeat-output").wait_running())
