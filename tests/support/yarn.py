"""A single-node YARN on loopback: a ResourceManager and a NodeManager, each in a process of its own, without HDFS.

Their jars are pinned in `tests/compatibility/yarn.txt` and run on the Hadoop libraries that pyspark includes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from xml.sax.saxutils import escape

import pyspark

from tests.support.processes import find_descendants, kill
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate.dev.broker.artifacts import fetch_into, find_mismatches, locked, read_artifacts
from tidegate.dev.broker.server import reserve_ports
from tidegate.spark.java import java_home
from tidegate.spark.work_directory import cache_directory

LISTING: Final = ROOT / "tests" / "compatibility" / "yarn.txt"
SERVERS: Final = "org.apache.hadoop.yarn.server"
ADDRESSES: Final = (
    *("resourcemanager.address", "resourcemanager.scheduler.address", "resourcemanager.resource-tracker.address"),
    *("resourcemanager.admin.address", "resourcemanager.webapp.address"),
    *("nodemanager.address", "nodemanager.localizer.address", "nodemanager.webapp.address"),
)
SIZES: Final[Mapping[str, str]] = {
    "nodemanager.resource.memory-mb": "8192",
    "nodemanager.resource.cpu-vcores": "8",
    "scheduler.minimum-allocation-mb": "128",
    "nodemanager.vmem-check-enabled": "false",
    "nodemanager.pmem-check-enabled": "false",
    "nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
}
FIFO: Final = f"{SERVERS}.resourcemanager.scheduler.fifo.FifoScheduler"
UP_S: Final = 120.0
END_S: Final = 20.0
ASK_S: Final = 5.0


def fetch_servers() -> list[Path]:
    """Returns the jars of the servers, fetched once. Raises ArtifactsUnavailable."""
    artifacts = read_artifacts(LISTING)
    target = cache_directory() / f"yarn-{artifacts[0].revision}"
    with locked(cache_directory()):
        if find_mismatches(target, artifacts):
            fetch_into(target, artifacts)
    return [target / artifact.file_name for artifact in artifacts]


class Yarn:
    """A cluster as a context manager. HADOOP_CONF_DIR must name the directory `configuration`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configuration = directory / "configuration"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._settings = {
            f"yarn.{name}": f"127.0.0.1:{port}"
            for name, port in zip(ADDRESSES, reserve_ports(len(ADDRESSES)), strict=True)
        }
        self._settings |= {f"yarn.{name}": value for name, value in SIZES.items()}
        for server in ("resourcemanager", "nodemanager"):
            self._settings |= {f"yarn.{server}.hostname": "127.0.0.1", f"yarn.{server}.bind-host": "127.0.0.1"}
        self._settings["yarn.resourcemanager.scheduler.class"] = FIFO
        self._settings |= {f"yarn.nodemanager.{kind}-dirs": str(directory / kind) for kind in ("local", "log")}

    def executors(self) -> list[int]:
        """Returns the pids of the executor JVMs, without the shells that started them."""
        found = [one for process in self._processes for one in find_descendants(process.pid)]
        return [one.pid for one in found if "CoarseGrainedExecutorBackend" in one.command and _is_java(one.command)]

    def __enter__(self) -> Self:
        for server in ("cluster", "node"):  # required directories for web pages, which are not used
            (self.configuration / "webapps" / server).mkdir(parents=True)
        self._write("yarn-site.xml", self._settings)
        self._write("core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.directory / "hadoop")})
        try:
            self._start(f"{SERVERS}.resourcemanager.ResourceManager")
            self._start(f"{SERVERS}.nodemanager.NodeManager")
            wait_until(self._has_node, f"the node is registered ({self.directory})", UP_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _write(self, name: str, settings: Mapping[str, str]) -> None:
        lines = [
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in settings.items()
        ]
        text = "\n".join(["<configuration>", *lines, "</configuration>", ""])
        (self.configuration / name).write_text(text, encoding="utf-8")

    def _start(self, program: str) -> None:
        home = java_home()
        jars = [str(self.configuration), *map(str, fetch_servers()), f"{pyspark.__path__[0]}/jars/*"]
        with (self.directory / f"{program.rpartition('.')[2]}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "java"), "-Xmx512m", "-cp", ":".join(jars), program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "JAVA_HOME": str(home)},
            )
        self._processes.append(process)

    def _has_node(self) -> bool:
        assert all(process.poll() is None for process in self._processes), f"a server has ended ({self.directory})"
        url = f"http://{self._settings['yarn.resourcemanager.webapp.address']}/ws/v1/cluster/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=ASK_S) as answer:
            return bool(json.load(answer)["clusterMetrics"]["activeNodes"])
        return False

    def _stop(self) -> None:
        for process in reversed(self._processes):
            below = find_descendants(process.pid)
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            process.kill()
            process.wait()
            for one in below:
                kill(one.pid)


def _is_java(command: str) -> bool:
    return command.partition(" ")[0].endswith("/java")
