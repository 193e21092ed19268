"""Directories that are lost, copied, doubled or not shared; and what is left in Kafka when a daemon ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.command import Ended
from tests.users.user import User, numbers
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def directory(user: User, name: str) -> Path:
    """The pipeline's checkpoints are there from now on."""
    place = user.directory / name
    user.document["checkpoints"]["directory"] = f"file://{place}"
    return place


def test_X01_a_daemon_that_stops_at_a_bad_record_leaves_no_transaction_open(user: User) -> None:
    """Two sinks: until its time limit an open transaction would stop every reader of both topics."""
    source, out = user.numbers(until="never")
    more = user.topic("more")
    user.document["sinks"]["second"] = {"from": "numbers", "topic": more, "format": "json"}
    user.document["checkpoints"].update(interval="10m", timeout="1m")
    daemon = user.start().wait_running()
    wait_until(lambda: daemon.completed_checkpoints() > 0, "the first checkpoint, after which none is due")
    user.produce(source, numbers((1, 1), (2, 2)))
    wait_until(lambda: len(user.open_transactions(out, more)) == 2, "both sinks have an open transaction")
    user.produce(source, numbers((3, 0)))
    told = Ended(daemon.wait(), daemon.text())
    told.says(4, "step shown", source, "offset 2", "DIVIDE_BY_ZERO", "bad_records: skip", "nothing was lost")
    assert user.open_transactions(out, more) == []
    assert "aborted 2 open transactions of attempts that have ended" in daemon.text()
    user.produce(out, [b'"of somebody else"'])
    assert user.rows(out) == ["of somebody else"]


def test_X03_X07_a_pipeline_has_one_directory_at_a_time(user: User) -> None:
    """A second one, the lost first one, the first one come back: each is refused, or takes over on a word.

    One that is moved away while the pipeline runs ends it.
    """
    source, out = user.numbers(until="never")
    directory(user, "first")
    user.produce(source, numbers((1, 1), (2, 2)))
    first = user.start().wait_running()
    wait_until(lambda: len(user.rows(out)) == 2, "both are out")

    directory(user, "second")
    user.run_here().says(4, "second is empty, but Kafka knows this pipeline", "--begin-anew", "nothing was started")
    second = user.start("-m", "tidegate", "run", "--begin-anew").wait_running()
    assert first.wait() == 5, first.text()[-3000:]
    assert "superseded by process" in first.text()
    assert "with another checkpoint directory" in first.text()
    wait_until(lambda: len(user.rows(out)) == 4, "as `start` says, from the beginning")

    directory(user, "first")
    user.run_here().says(
        4, "the pipeline has continued from another checkpoint directory", "--restore ID --repeat-output"
    )
    user.produce(source, numbers((3, 2)))
    wait_until(lambda: len(user.rows(out)) == 5, "the second daemon was not disturbed")
    assert second.terminate() == 0
    assert "restart" not in second.text()

    copy = directory(user, "copy")
    shutil.copytree(user.directory / "second", copy)
    third = user.start().wait_running()  # the only one that runs: a restart on another machine
    user.produce(source, numbers((4, 2)))
    wait_until(lambda: len(user.rows(out)) == 6, "it goes on")
    copy.rename(user.directory / "elsewhere")
    assert third.wait() == 4, third.text()[-3000:]
    assert "no longer has the entries that this daemon has read or written" in third.text()
    assert user.open_transactions(out) == []
    user.run_here().says(4, "copy is empty, but Kafka knows this pipeline", "journal ", "--restore PATH")
    directory(user, "second")
    user.run_here().says(4, "this is an old copy of the directory")
    assert len(user.rows(out)) == 6


@pytest.mark.deep
def test_X04_an_executor_with_a_disk_of_its_own_is_refused_before_anything_is_read(user: User) -> None:
    source, out = user.numbers(until="never")
    place = directory(user, "here")
    user.produce(source, numbers((1, 1)))
    daemon = user.start("-m", "tests.support.faulty_slot", "own-disk")
    assert daemon.wait() == 2, daemon.text()[-3000:]
    assert f"slot 0 on 127.0.0.1 cannot read the object that the daemon has written to file://{place}" in daemon.text()
    assert "mount it on that host" in daemon.text()
    assert "is running" not in daemon.text()
    assert user.rows(out) == []
