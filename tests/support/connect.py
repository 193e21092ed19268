"""A Kafka Connect worker with Debezium's connectors, as a process. Ivy fetches its jars once.

The worker runs in distributed mode, because only that mode can write each change once (`exactly.once.source.support`).
It has the jars of the development broker and those of a listing in `tests/compatibility/debezium`. Converters with
other versions of the same libraries are loaded through its plugin path.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate.dev.broker.artifacts import fetch_into, fetch_jars, find_mismatches, locked, read_artifacts
from tidegate.dev.broker.server import reserve_ports
from tidegate.spark.java import find_java
from tidegate.spark.work_directory import cache_directory

LISTINGS: Final = ROOT / "tests" / "compatibility" / "debezium"
UP_S: Final = 120.0
END_S: Final = 20.0
ASK_S: Final = 60.0
PASSING: Final = (409, 500, 503)
"""Statuses while the worker joins its group or connectors are assigned."""
TOPICS: Final = {"config": "connect-configs", "offset": "connect-offsets", "status": "connect-status"}


def fetch_listed(name: str) -> list[Path]:
    """Returns the jars of `tests/compatibility/debezium/NAME.txt`, fetched once. Raises ArtifactsUnavailable."""
    artifacts = read_artifacts(LISTINGS / f"{name}.txt")
    target = cache_directory() / f"debezium-{name}-{artifacts[0].revision}"
    with locked(cache_directory()):
        if find_mismatches(target, artifacts):
            fetch_into(target, artifacts)
    return [target / artifact.file_name for artifact in artifacts]


class Connect:
    """A worker as a context manager. Its state is in topics of the broker, so another worker continues for a killed
    one.

    `plugins` are names of listings in addition to that of the connectors.
    """

    def __init__(self, bootstrap: str, directory: Path, *plugins: str, connectors: str = "postgres") -> None:
        self.directory = directory
        self._bootstrap = bootstrap
        self._plugins = plugins
        self._connectors = connectors
        (self._port,) = reserve_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Self:
        """Starts the worker and returns when it answers."""
        places = []
        for name in self._plugins:
            place = self.directory / "plugins" / name
            place.mkdir(parents=True, exist_ok=True)
            for jar in fetch_listed(name):
                with contextlib.suppress(FileExistsError):
                    (place / jar.name).symlink_to(jar)
            places.append(str(place.parent))
        settings = self._settings(places)
        file = self.directory / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        (self.directory / "log4j2.xml").write_text(LOGGING, encoding="utf-8")
        jars = [*fetch_jars(), *fetch_listed(self._connectors)]
        command = [str(find_java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"]
        command += ["-cp", ":".join(map(str, jars)), "org.apache.kafka.connect.cli.ConnectDistributed", str(file)]
        with (self.directory / "connect.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._answers, f"Connect answers ({self.directory})", UP_S)
        return self

    def kill(self) -> None:
        """Kills the worker with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stops the worker with SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self.kill()

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Creates or changes a connector and returns when its task runs."""
        self.ask("PUT", f"/connectors/{name}/config", dict(settings))
        wait_until(lambda: self._runs(name), f"the connector {name} runs ({self.directory})", ASK_S)

    def wait_running(self, *names: str) -> None:
        """Waits until the connectors run, for instance after a restart."""
        for name in names:
            wait_until(lambda name=name: self._runs(name), f"the connector {name} runs ({self.directory})", UP_S)  # type: ignore[misc]  # mypy: a lambda with a default

    def remove(self, name: str) -> None:
        """Removes a connector."""
        self.ask("DELETE", f"/connectors/{name}")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Sends a request and retries it while the worker is rebalancing."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self._port}{path}"
        answers: list[Any] = []

        def ask() -> bool:
            request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
            try:
                with urllib.request.urlopen(request, timeout=ASK_S) as answer:
                    answers.append(json.loads(answer.read() or b"null"))
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                assert error.code in PASSING, f"{method} {path}: {said[:2000]}"
            return bool(answers)

        wait_until(ask, f"{method} {path} ({self.directory})", ASK_S)
        return answers[0]

    def _runs(self, name: str) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Connect has ended ({self.directory})"
        try:
            found = self.ask("GET", f"/connectors/{name}/status")
        except AssertionError:
            return False
        states = [task["state"] for task in found["tasks"]]
        assert "FAILED" not in states, json.dumps(found)[:3000]
        return found["connector"]["state"] == "RUNNING" and states == ["RUNNING"]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"Connect has ended ({self.directory})"
        url = f"http://127.0.0.1:{self._port}/connectors"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=ASK_S):
            return True
        return False

    def _settings(self, places: list[str]) -> dict[str, str]:
        json_converter = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self._bootstrap,
            "group.id": "connect",
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": json_converter,
            "value.converter": json_converter,
            **{f"{kind}.storage.topic": topic for kind, topic in TOPICS.items()},
            **{f"{kind}.storage.replication.factor": "1" for kind in TOPICS},
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "500",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "plugin.discovery": "only_scan",
            **({"plugin.path": ",".join(places)} if places else {}),
        }


LOGGING: Final = """\
<Configuration status="warn">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %m (%c:%L)%n"/></Console></Appenders>
  <Loggers>
    <Logger name="org.reflections" level="error"/>
    <Logger name="org.apache.kafka" level="warn"/>
    <Logger name="org.apache.kafka.connect.runtime.distributed" level="info"/>
    <Root level="info"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""
