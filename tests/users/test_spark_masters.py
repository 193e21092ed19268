"""One small bounded pipeline on each kind of Spark master, exact on all of them."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until
from tidegate.config.encryption import ENCRYPTED_SPARK, SECRET
from tidegate.daemon.broker.ports import reserve_ports
from tidegate.daemon.java import java_home

pytestmark = pytest.mark.slow

CLUSTER_SECRET = "of-the-whole-cluster-4711"


def listens(port: int) -> bool:
    """Whether somebody accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster that has a secret: a master and one worker with two cores, on loopback."""
    home = Path(pyspark.__path__[0])
    port, web = reserve_ports(2)  # kept: Spark takes the next one when its port is in use
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ["SPARK_WORKER_DIR"] = str(tmp_path / "work")
    environ["SPARK_LOCAL_DIRS"] = str(tmp_path / "local")
    secured = {**ENCRYPTED_SPARK, SECRET: CLUSTER_SECRET}
    environ["SPARK_DAEMON_JAVA_OPTS"] = " ".join(f"-D{name}={value}" for name, value in secured.items())
    master = f"spark://127.0.0.1:{port}"
    runs = str(home / "bin" / "spark-class")
    program = "org.apache.spark.deploy"
    commands = [
        f"{runs} {program}.master.Master --host 127.0.0.1 --port {port} --webui-port {web}",
        f"{runs} {program}.worker.Worker --host 127.0.0.1 --cores 2 --memory 2g --webui-port 0 {master}",
    ]
    with (tmp_path / "cluster.log").open("wb") as log, contextlib.ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(
                shlex.split(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ
            )
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
            wait_until(lambda: listens(port), f"the master listens ({tmp_path}/cluster.log)")
        wait_until(lambda: b"Registering worker" in (tmp_path / "cluster.log").read_bytes(), "the worker is there")
        yield master


def check(user: User, master: str, *, encryption: str = "auto", **spark: str) -> None:
    """Two slots, an exchange between them, 400 records: exact, with the slots' own log lines."""
    source, out = user.numbers(partitions=2, bad_records="skip")
    user.document["spark"] = {"master": master, **spark}
    user.document.setdefault("runtime", {})["encryption"] = encryption
    user.document["parallelism"] = 2
    user.document["steps"].append(
        {"name": "counted", "from": "shown", "key": "m", "aggregate": {"seen": "count(*)", "last": "last(id)"}}
    )
    user.document["sinks"]["shown_out"].update({"from": "counted", "key": "m"})
    user.produce(source, numbers(*((number, 1 + number % 5) for number in range(400))))
    user.produce(source, numbers((999, 0)))
    began = time.monotonic()
    ended = user.run()
    print(f"{master}: {time.monotonic() - began:.1f} s")
    ended.says(0, "DIVIDE_BY_ZERO")
    assert ("is encrypted" in ended.text) is (encryption == "always")
    assert CLUSTER_SECRET not in ended.text
    assert any("subtask" in line for line in log_lines(ended.text)), "a slot's line arrived"
    rows = user.rows(out)
    assert sorted(row["last"] for row in rows) == list(range(400))
    for m in (10, 5, 3, 2):
        seen = [row["seen"] for row in rows if row["m"] == m]
        assert seen == list(range(1, len(seen) + 1)), m


def test_local_threads(user: User) -> None:
    check(user, "local[2]")


def test_X34_local_cluster_encrypted(user: User) -> None:
    check(user, "local-cluster[2,1,512]", encryption="always")


def test_X34_standalone_cluster_encrypted(user: User, standalone: str) -> None:
    """On loopback nothing asks for it, so it is asked for here; beyond that it is the same."""
    spark = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", SECRET: CLUSTER_SECRET}
    check(user, standalone, encryption="always", **spark)
