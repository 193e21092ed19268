"""Which of a daemon's processes are slots."""

from __future__ import annotations

import pytest

from tidegate.slot.fork_guard import SERVER
from tidegate.spark.work_directory import OsProcess, choose_slots

DRIVER = OsProcess(10, 9, "S", "java -cp jars org.SparkSubmit --conf spark.python.daemon.module=pyspark.daemon shell ")
"""Its command has the module's name; with no executors it is the parent of Spark's own fork server."""
EXECUTOR = OsProcess(20, 10, "S", "java -cp jars CoarseGrainedExecutorBackend ")


@pytest.mark.parametrize("parent", [DRIVER, EXECUTOR], ids=["local", "executors"])
@pytest.mark.parametrize("command", [f"python -m {SERVER} 9 ", "python -m pyspark.daemon "])
def test_slots_are_the_forks_of_a_fork_server_and_nothing_above_or_below_them(parent: OsProcess, command: str) -> None:
    server = OsProcess(30, parent.pid, "S", command)
    slots = [OsProcess(31, 30, "S", command), OsProcess(32, 30, "R", command)]
    starting = OsProcess(40, 31, "R", command)  # a process that a slot starts, before its exec
    below = [DRIVER, EXECUTOR, server, *slots, starting, OsProcess(50, 30, "S", "python -m another ")]
    assert choose_slots(below) == [31, 32]
