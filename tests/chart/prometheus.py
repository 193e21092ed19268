"""A real Prometheus (Debian's package) that scrapes what the chart's ServiceMonitor says, and is asked over its API."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import yaml

from tests.chart.api import free_port
from tests.waiting import wait_until

STOP_S: Final = 10.0
ANSWER_S: Final = 30.0
START_S: Final = 60.0


def derive_scrape(monitor: Mapping[str, Any], target: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """The job that Prometheus' operator makes of a ServiceMonitor's endpoint, with one pod found.

    `job` is the service, as it is there. The interval is a second: a test does not wait for 15.
    """
    (endpoint,) = monitor["spec"]["endpoints"]
    made = {
        "job_name": f"serviceMonitor/{monitor['metadata']['namespace']}/{monitor['metadata']['name']}/0",
        "metrics_path": endpoint["path"],
        "scheme": endpoint.get("scheme", "http"),
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [
            {"targets": [target], "labels": {"endpoint": endpoint["port"], **labels, "job": labels["service"]}}
        ],
    }
    if "tlsConfig" in endpoint:
        names = {"caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file", "serverName": "server_name"}
        made["tls_config"] = {names[name]: value for name, value in endpoint["tlsConfig"].items()}
    return made


class Prometheus:
    """Started and ended with the block."""

    def __init__(self, directory: Path, scrape: Mapping[str, Any], rules: Path) -> None:
        self._directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True)
        configured = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [dict(scrape)],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(configured), encoding="utf-8")

    def __enter__(self) -> Self:
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            wait_until(self._is_ready, "Prometheus is ready", START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query; fails with Prometheus' own words."""
        found = self._ask("query", query=expression)
        assert found["resultType"] == "vector", expression
        return list(found["result"])

    def targets(self) -> list[dict[str, Any]]:
        """Those that it scrapes."""
        return list(self._ask("targets")["activeTargets"])

    def rules(self) -> list[dict[str, Any]]:
        """Those that it evaluates."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://{self._address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
        return dict(found["data"])

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=ANSWER_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
