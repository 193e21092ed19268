"""A real schema registry, Apicurio 3.0.9, as a process. It is fetched once, like the development broker, and keeps its
data in a file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import wait_until
from tidegate.dev.broker.artifacts import Artifact, find_mismatches, locked, run_ivy
from tidegate.dev.broker.server import reserve_ports
from tidegate.spark.java import find_java
from tidegate.spark.work_directory import cache_directory

ARCHIVE: Final = Artifact(
    "io.apicurio",
    "apicurio-registry-app",
    "3.0.9",
    "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43",
    "all",
    "tar.gz",
)
"""106 MB. The last release line that runs on Java 17."""
_RUNNER: Final = "apicurio-registry-app-3.0.9-runner.jar"


def fetch_apicurio() -> Path:
    """Returns the directory of the unpacked archive in the cache."""
    target = cache_directory() / "apicurio-3.0.9"
    with locked(cache_directory()):
        if not (target / _RUNNER).exists():
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as name:
                work = Path(name)
                said = run_ivy(work, work / "archive", [ARCHIVE])
                assert not find_mismatches(work / "archive", [ARCHIVE]), said[-2000:]
                with tarfile.open(work / "archive" / ARCHIVE.file_name) as archive:
                    archive.extractall(work / "app", filter="data")
                shutil.rmtree(target, ignore_errors=True)
                (work / "app").rename(target)
    return target


class Apicurio:
    """A registry that can be started and stopped at will; it keeps its schemas in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (self._port,) = reserve_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the API that Confluent's clients use."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Starts the registry and returns when it answers."""
        command = [str(find_java()), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self._port}"]
        command += [f"-Dapicurio.datasource.url=jdbc:h2:file:{self._directory}/registry"]
        command += ["-jar", str(fetch_apicurio() / _RUNNER)]
        with (self._directory / "registry.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self._answers, "the registry answers")
        return self

    def stop(self) -> None:
        """Stops the registry with SIGTERM; a kill would lose the newest registrations."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request as another client would."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/vnd.schemaregistry.v1+json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the registry has ended"
        try:
            self.ask("GET", "/schemas/types")
        except (urllib.error.URLError, OSError):
            return False
        return True
