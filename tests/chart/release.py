"""One release of the chart in a cluster: a pipeline that copies numbers, its topics, and what readers see of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.chart.api import free_port
from tests.chart.cluster import Cluster
from tests.chart.pod import Pod
from tests.chart.programs import CHART
from tests.support import clients
from tests.waiting import wait_until

PIPELINE = """# Copies numbers; what is odd goes elsewhere.
version: 1
name: {name}
kafka: {{bootstrap.servers: "127.0.0.1:1"}}   # the site knows better
parallelism: 2
checkpoints: {{directory: /nowhere, interval: 500ms}}
sources:
  numbers: {{topic: {source}, format: json, schema: {{n: bigint, text: string}}, start: earliest}}
steps:
  - {{name: doubled, from: numbers, select: {{text: text, n: n, twice: 2 * n}}}}
sinks:
  out: {{from: doubled, topic: {sink}, format: json, key: n}}
"""


class Release:
    """Installed by `install`; `write` adds records, `read` is what a reader of committed ones gets."""

    def __init__(self, cluster: Cluster, namespace: str, bootstrap: str, topics: tuple[str, str], work: Path) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.name = "numbers"
        self.full_name = f"{self.name}-tidegate"
        self._bootstrap = bootstrap
        self._source, self._sink = topics
        self._work = work
        self.pipeline = work / "pipeline.yaml"
        self.pipeline.write_text(PIPELINE.format(name=namespace, source=topics[0], sink=topics[1]), encoding="utf-8")
        self._written = 0
        self._port = free_port()
        """Pods have addresses of their own, but `0.0.0.0` is the whole machine here."""

    def helm(self, *arguments: object, values: dict[str, Any] | None = None, check: bool = True) -> Any:
        """`install` or `upgrade`, with the pipeline and what every release of the tests needs."""
        own: dict[str, Any] = {
            "http": {"port": self._port},
            "settings": {"kafka": {"bootstrap.servers": self._bootstrap}},
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
        }
        files = []
        for number, one in enumerate((own, values or {})):
            file = self._work / f"values-{number}.yaml"
            file.write_text(yaml.safe_dump(one), encoding="utf-8")
            files += ["--values", file]
        verb, *rest = arguments
        command = (verb, self.name, CHART, "--namespace", self.namespace, "--wait", "--timeout", "8m", *files)
        return self.cluster.helm(*command, "--set-file", f"pipeline={self.pipeline}", *rest, check=check)

    def daemon(self) -> dict[str, Any]:
        """The daemon's pod, once there is exactly one."""
        wait_until(lambda: len(self.cluster.pods(self.namespace, "daemon")) == 1, "one pod of the daemon")
        return self.cluster.pods(self.namespace, "daemon")[0]

    def process(self) -> Pod:
        """What runs in it."""
        return self.cluster.node.find(self.daemon()["metadata"]["name"])

    def write(self, count: int) -> None:
        """More numbers."""
        producer = clients.producer({"bootstrap.servers": self._bootstrap})
        for n in range(self._written, self._written + count):
            producer.produce(self._source, json.dumps({"n": n, "text": "no"}), str(n))
        assert producer.flush(60) == 0
        self._written += count

    def assert_exact(self) -> None:
        """Every number is there once, in the form of the file: its columns have kept their order."""
        expected = sorted(range(self._written))
        found: list[bytes] = []

        def complete() -> bool:
            found[:] = self._read()
            return len(found) >= self._written

        wait_until(complete, f"{self._written} records in {self._sink}")
        assert sorted(json.loads(value)["n"] for value in found) == expected
        assert found[0].startswith(b'{"text":"no","n":'), found[0]

    def _read(self) -> list[bytes]:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": f"reader-{self.namespace}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
        consumer = clients.consumer(settings)
        values: list[bytes] = []
        try:
            consumer.subscribe([self._sink])
            for _ in range(10 * self._written + 1000):
                message = consumer.poll(30)
                if message is None or message.error() is not None:
                    break
                values.append(message.value() or b"")
        finally:
            consumer.close()
        return values
