"""A standalone Spark cluster on loopback: a master and workers, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from typing import Self

import pyspark

from tests.support.processes import find_executors, kill
from tests.waiting import wait_until
from tidegate.config.encryption import ENCRYPTED_SPARK, SECRET
from tidegate.dev.broker.server import reserve_ports
from tidegate.spark.java import java_home

PROGRAM = "org.apache.spark.deploy"
END_S = 60


class StandaloneSpark:
    """A cluster as a context manager. With `secret` its connections are encrypted, and applications must know the
    secret.
    """

    def __init__(self, directory: Path, *, workers: int = 1, cores: int = 1, secret: str = "") -> None:
        self.directory = directory
        self._workers, self._cores = workers, cores
        port, self._web = reserve_ports(2)  # kept: Spark uses the next port when its own is in use
        self._port = port
        self.master = f"spark://127.0.0.1:{port}"
        self._stack = contextlib.ExitStack()
        self._pids: list[int] = []
        home = Path(pyspark.__path__[0])
        self._class = str(home / "bin" / "spark-class")
        self._environ = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home)}
        self._environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        self._environ["SPARK_WORKER_DIR"] = str(directory / "work")
        self._environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
        if secret:
            secured = {**ENCRYPTED_SPARK, SECRET: secret}
            self._environ["SPARK_DAEMON_JAVA_OPTS"] = " ".join(f"-D{name}={value}" for name, value in secured.items())

    def executors(self) -> list[int]:
        """Returns the pids of the executor JVMs on all workers."""
        return [pid for worker in self._pids for pid in find_executors(worker)]

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / "cluster.log"
        try:
            self._start(
                "master.Master", "--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)
            )
            wait_until(lambda: _listens(self._port), f"the master listens ({log})")
            for _ in range(self._workers):
                sizes = ["--cores", str(self._cores), "--memory", "2g", "--webui-port", "0"]
                self._pids.append(self._start("worker.Worker", "--host", "127.0.0.1", *sizes, self.master))
            wait_until(
                lambda: log.read_bytes().count(b"Registering worker") >= self._workers, f"the workers are there ({log})"
            )
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self, program: str, *arguments: str) -> int:
        with (self.directory / "cluster.log").open("ab") as log:
            process = subprocess.Popen(
                [self._class, f"{PROGRAM}.{program}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
            )
        self._stack.callback(process.wait, END_S)
        self._stack.callback(process.kill)
        return process.pid

    def _stop(self) -> None:
        executors = self.executors()
        self._stack.close()
        for pid in executors:  # their workers would have ended them
            kill(pid)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
