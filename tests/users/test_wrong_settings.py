"""Wrong settings and surroundings: a message with place, value and remedy, the right exit code, in bounded time."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.support import clients
from tests.support.command import Ended, tidegate
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import find_descendants
from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def watch_until_the_end(daemon: DaemonProcess) -> set[int]:
    """All processes of Spark that it has had."""
    below: set[int] = set()

    def watch() -> bool:
        below.update(process.pid for process in find_descendants(daemon.pid) if "spark" in process.command)
        assert daemon.process is not None
        return daemon.process.poll() is not None

    wait_until(watch, "the daemon has ended")
    return below


def test_X17_an_unknown_topic_is_told_by_both_with_its_place_and_nothing_is_started(user: User) -> None:
    """What else is decided so, without a process of its own: tests/checks/test_survey.py."""
    source, _ = user.numbers()
    user.document["sources"]["numbers"]["topic"] = source + "-typo"
    ended = user.command("validate", "--connect", str(user.write()))
    ended.says(2, "sources.numbers.topic", source + "-typo", "the cluster has one broker")
    daemon = user.start()
    assert not watch_until_the_end(daemon), "no JVM was started"
    told = Ended(daemon.wait(), daemon.text())
    told.says(2, "sources.numbers.topic", source + "-typo", "does not exist", "create it", "the cluster has one broker")
    log_lines(told.text)


def test_X22_a_checkpoint_directory_where_not_even_root_makes_one_is_told_by_both(user: User) -> None:
    user.numbers()
    user.document["checkpoints"]["directory"] = "file:///sys/checkpoints"
    tidegate("validate", "--connect", user.write()).says(2, "checkpoints.directory", "/sys")
    user.run_here().says(2, "checkpoints.directory", "/sys")


def test_too_few_slots_are_told_with_both_numbers(user: User) -> None:
    user.numbers()
    user.document["parallelism"] = 2
    user.run_here().says(2, "spark.master", "room for 1 slot", "parallelism is 2", "lower `parallelism`")


@pytest.mark.deep
def test_a_package_that_only_the_slots_need_is_missed_once_and_named(user: User, tmp_path: Path) -> None:
    user.numbers()
    (tmp_path / "confluent_kafka.py").write_text(
        """raise ModuleNotFoundError("No module named 'confluent_kafka'", name="confluent_kafka")"""
    )
    user.environ["PYTHONPATH"] = str(tmp_path)
    ended = user.run()
    assert ended.text.count("is deployed") == 1, ended.text
    assert ended.code == 2, ended.text
    assert "No module named 'confluent_kafka'; install tidegate and its packages" in ended.text


def test_an_interpreter_without_tidegate_is_told_by_the_first_attempt_at_once_and_nothing_is_left(
    user: User, tmp_path: Path
) -> None:
    user.numbers()
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.base_prefix}/bin/python3" "$@"\n')
    bare.chmod(0o755)
    user.document["spark"]["spark.pyspark.python"] = str(bare)
    daemon = user.start()
    below = watch_until_the_end(daemon)
    assert below, "a JVM was started"
    ended = Ended(daemon.wait(), daemon.text())
    ended.says(2, "ModuleNotFoundError: No module named", str(bare), "spark.pyspark.python", "install tidegate")
    assert "another one in" not in ended.text, "no second attempt"
    assert "slots are running after" not in ended.text, "no wait for runtime.start_timeout"
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "its processes are gone")


def test_an_unreachable_spark_master_is_told(user: User) -> None:
    user.numbers()
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{reserved.getsockname()[1]}"
        user.document["spark"]["master"] = master
        user.document["runtime"] = {**user.document.get("runtime", {}), "start_timeout": "2s"}
        ended = user.run()
    ended.says(1, f"no Spark master answers at {master} in 2 s", "refused", "spark.master")


def test_input_removed_by_retention_stops_with_the_lost_range(user: User) -> None:
    source, out = user.numbers()
    user.produce(source, numbers((1, 1), (2, 2)))
    user.run().says(0)
    user.produce(source, numbers(*((number, 1) for number in range(3, 23))))
    delete_before(user, source, 12)
    user.run_here().says(4, source, "offset 2 is gone", "starts at 12", "10 offsets", "restore the data")
    assert [row["id"] for row in user.rows(out)] == [1, 2]
    user.document["sources"]["numbers"]["on_lost_input"] = "continue"
    user.run().says(0, "offsets 2 up to and not including 12, 10 in all, were removed", "it continues at 12")
    assert [row["id"] for row in user.rows(out)] == [1, 2, *range(13, 23)]


def delete_before(user: User, topic: str, offset: int) -> None:
    """What retention does."""
    from confluent_kafka import TopicPartition

    clients.delete_records(user.bootstrap, [TopicPartition(topic, 0, offset)])


def test_a_file_that_is_not_there_is_told(user: User) -> None:
    missing = user.directory / "missing.yaml"
    user.command("run", str(missing)).says(2, str(missing))
