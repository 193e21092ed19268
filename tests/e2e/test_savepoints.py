"""Savepoints, restoring something else than the newest checkpoint, several checkpoints at a time, damage.

Each test is one story of a few daemons: starting Spark takes longer than most of what is shown here.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.command import Ended, tidegate
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig, read_journal, restored_checkpoint
from tests.waiting import wait_until
from tidegate.coordinator.journal_state import JournalState
from tidegate.journal.savepoint import read_savepoint
from tidegate.storage.local import LocalStorage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def order(daemon: DaemonProcess, command: str, *arguments: object, file: Path | None = None) -> Ended:
    """An order to the daemon, by a user who sees the daemon's files."""
    address = daemon.wait_for(r"(http://127\.0\.0\.1:\d+)").group(1)
    return tidegate(command, file or daemon.pipeline, *arguments, "--http", address, environ=daemon.environ)


def take_savepoint(daemon: DaemonProcess, directory: Path) -> Path:
    done = order(daemon, "savepoint", directory)
    assert done.code == 0, done.text
    return Path(done.stdout.strip())


def journal(rig: Rig) -> JournalState:
    return read_journal(rig.pipeline.directory)


def restoring(rig: Rig, target: object, *more: str, **overrides: object) -> DaemonProcess:
    return rig.daemon("-m", "tidegate", "run", "--restore", str(target), *more, **overrides).start()


def finish_repeated(rig: Rig, daemon: DaemonProcess) -> None:
    """The end of a run that wrote output again: nothing is lost, and the repetition really happened."""
    wait_until(lambda: bool(daemon.status()["records_committed"]), "something is written again")
    rig.wait_output()
    daemon.wait_read()
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    paid, totals = rig.verdicts()
    assert (paid.lost, paid.wrong, totals.lost) == (0, 0, 0), (paid.examples, totals.examples)
    assert paid.doubled > 0, "nothing was written again"


def test_C15_C26_C29_a_savepoint_disturbs_nothing_can_be_moved_and_is_restored_by_one_start_only(
    make_rig: RigMaker, tmp_path: Path
) -> None:
    """A supervisor repeats the command line for ever; into a new directory, too, with another parallelism."""
    root = tmp_path / "root"
    rig = make_rig(seed=91, savepoint_roots=(str(root),))
    first = rig.running()
    check_refused_orders(rig, first, root)
    ours = take_savepoint(first, rig.pipeline.directory / "savepoints")
    moved = take_savepoint(first, root / "mine").rename(tmp_path / "elsewhere")
    check_savepoint_apart(rig, first, moved)
    rig.assert_exact_so_far()
    stopped = order(first, "stop", "--savepoint")
    assert stopped.code == 0, stopped.text
    last, told = stopped.stdout.splitlines()
    assert told == "stopped"
    assert first.wait() == 0
    assert f"is complete: {last}" in first.text()
    check_kept(first.pipeline, rig, [ours, moved, Path(last.removeprefix("file://"))])
    listed = tidegate("checkpoints", first.pipeline).stdout
    assert str(ours) in listed
    assert re.search(r"final +committed", listed), listed

    assert "before the newest checkpoint" in rig.refused("--restore", moved)
    options = {"directory": tmp_path / "new", "parallelism": 3, "master": "local[3]"}
    assert "new checkpoint directory" in rig.refused("--restore", moved, **options)
    second = restoring(rig, moved, "--repeat-output", **options).wait_running()
    assert "output after it is written again" in second.text()
    second.wait_committed()
    second.kill()
    third = restoring(rig, moved, "--repeat-output", **options).wait_running()
    assert "--restore has no effect" in third.text()
    assert restored_checkpoint(third.text()) > restored_checkpoint(second.text())
    finish_repeated(rig, third)


def check_kept(file: Path, rig: Rig, paths: list[Path]) -> None:
    """All are whole, the moved one, too; one that nobody needs can be deleted."""
    for path in paths:
        tidegate("savepoint", "verify", path).says(0, "whole")
    listed = tidegate("savepoint", "list", file, "--verify").stdout
    assert listed.count(" whole ") == 2, listed
    tidegate("savepoint", "delete", paths[-1]).says(0, "deleted")
    assert not paths[-1].exists()
    tidegate("savepoint", "delete", rig.pipeline.directory).says(2, "it is a checkpoint directory")


def check_refused_orders(rig: Rig, daemon: DaemonProcess, root: Path) -> None:
    """Orders that cannot be carried out."""
    gone = tidegate("savepoint", daemon.pipeline, "--http", "http://127.0.0.1:9")
    gone.says(1, "no daemon answers at http://127.0.0.1:9")
    another = rig.write("another.yaml", name="another")
    order(daemon, "savepoint", file=another).says(1, "not 'another'")
    root.mkdir()
    (root / "file").write_text("")
    order(daemon, "savepoint", root / "file").says(1, "a part of the path is a file")
    outside = root.with_name("outside")
    order(daemon, "savepoint", outside).says(1, "`savepoints.roots`")
    assert not outside.exists()
    address = daemon.wait_for(r"(http://127\.0\.0\.1:\d+)").group(1)
    stranger = tidegate("stop", daemon.pipeline, "--http", address)  # does not see the daemon's files
    stranger.says(1, "the request has no token")


def check_savepoint_apart(rig: Rig, daemon: DaemonProcess, moved: Path) -> None:
    """The pipeline's own checkpoints neither have it nor need its files."""
    found = read_savepoint(LocalStorage(str(moved), create=False))
    assert found.checkpoint.id not in [entry.checkpoint.id for entry in journal(rig).retained]
    assert found.checkpoint.states
    rig.wait_newer()  # or there is nothing to write again
    daemon.wait_checkpoints(4)
    paths = {handle.path for entry in journal(rig).retained for handle in entry.checkpoint.states}
    assert not any(f"/{found.checkpoint.id:012d}-" in name for name in paths)


@pytest.mark.deep
def test_F07_C32_three_checkpoints_at_a_time_are_dealt_out_anew_from_1_to_5_to_2_through_kills(
    make_rig: RigMaker,
) -> None:
    rig = make_rig(seed=95, interval="50ms", max_concurrent=3, parallelism=1, master="local[1]")
    wait_overlap(rig, first := rig.running())
    first.kill()
    rig.running(parallelism=5, master="local[5]").kill()  # one of them has no partition
    wait_overlap(rig, third := rig.running(parallelism=2, master="local[2]"))
    attempt = third.attempt
    assert kill(third.slots()[0])
    third.wait_attempt(attempt)
    wait_overlap(rig, third)
    rig.finish(third)


def wait_overlap(rig: Rig, daemon: DaemonProcess) -> None:
    """Until two checkpoints were under way at a time, both of them in this attempt."""
    attempt = daemon.attempt

    def overlap() -> bool:
        one = [entry.checkpoint for entry in journal(rig).retained if entry.checkpoint.attempt == attempt]
        return any(new.triggered_at_ms < old.completed_at_ms for old, new in pairwise(one))

    wait_until(overlap, "two checkpoints were under way at a time")


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
    daemon = rig.daemon("-m", "tests.support.faulty_daemon", point, "3").start()
    assert daemon.wait() == -9, daemon.text()[-3000:]
    assert f"fault: {point}" in daemon.text(), "the planned fault did not happen"
    return daemon


@pytest.mark.deep
def test_C32_behind_a_damaged_checkpoint_the_one_before_it_is_restored_unasked_only_if_nothing_was_committed_since(
    make_rig: RigMaker,
) -> None:
    """The first daemon dies between a decision and its commit: the transactions are aborted, the input is read again.

    The second one dies after a commit: a checkpoint that is chosen by its number, and a word on its output.
    """
    rig = make_rig(seed=97)
    rig.writer.start()
    rig.outputs.start()
    crashed(rig, "after-append")
    damaged = damage_newest(rig)
    before = journal(rig).retained[-2].checkpoint.id
    second = crashed(rig, "after-commit")
    assert f"falling back to checkpoint {before}: checkpoint {damaged} is damaged" in second.text()
    rig.assert_nothing_doubled()

    older = journal(rig).retained[-2].checkpoint.id
    assert f"checkpoint {older} lies " in rig.refused("--restore", older)
    assert "checkpoint 1 is not retained" in rig.refused("--restore", 1)
    damaged = damage_newest(rig)
    told = rig.refused()
    assert f"checkpoint {damaged} is damaged" in told
    assert f"--restore {older} --repeat-output" in told
    finish_repeated(rig, restoring(rig, older, "--repeat-output").wait_running())
    assert journal(rig).origin == f"checkpoint {older}"
