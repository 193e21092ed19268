"""A user with a pipeline file of their own: writes it, fills topics, runs `tidegate`, reads what comes out.

Every run is a real subprocess; whatever it prints must be free of tracebacks, and is kept for the assertions.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.support import clients
from tests.support.command import Ended, tidegate
from tests.support.daemon_process import DaemonProcess
from tests.waiting import PATIENCE_S
from tidegate.dev.broker.server import create_topics
from tidegate.dev.demo.verify import read_topic
from tidegate.ids import TopicPartition
from tidegate.kafka.facts import OpenBrokerTransaction
from tidegate.kafka.transactions import TransactionClient

Document = dict[str, Any]


class User:
    """One pipeline: `document` is the file's content, changed freely between runs."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.name = f"user-{uuid.uuid4().hex[:10]}"
        self.environ: dict[str, str] = {}
        self.daemons: list[DaemonProcess] = []
        self.document: Document = {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap.servers": bootstrap},
            "spark": {"master": "local[1]"},
            "parallelism": 1,
            "checkpoints": {"directory": f"file://{directory / 'checkpoints'}", "interval": "500ms"},
            "restart": {"initial": "100ms", "max": "1s", "give_up_after": "3 in 10m"},
            "http": {"port": 0},
            "logging": {"format": "json"},
            "sources": {},
            "steps": [],
            "sinks": {},
        }

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """A new topic of this user."""
        topic = f"{self.name}-{name}"
        create_topics(self.bootstrap, {topic: partitions}, config)
        return topic

    def numbers(self, *, partitions: int = 1, **source: Any) -> tuple[str, str]:
        """The smallest pipeline with arithmetic: {id, n} in, {id, inverse} out. Returns both topics."""
        orders, out = self.topic("in", partitions), self.topic("out", partitions)
        schema = {"id": "bigint", "n": "int"}
        fields = {"topic": orders, "format": "json", "schema": schema, "start": "earliest", "until": "latest"}
        self.document["sources"] = {"numbers": {**fields, **source}}
        self.document["steps"] = [{"name": "shown", "from": "numbers", "select": {"id": "id", "m": "10 div n"}}]
        self.document["sinks"] = {"shown_out": {"from": "shown", "topic": out, "format": "json"}}
        return orders, out

    def write(self, name: str = "pipeline.yaml") -> Path:
        """The file as it is now (JSON is YAML)."""
        path = self.directory / name
        path.write_text(json.dumps(copy.deepcopy(self.document), indent=1))
        return path

    def allow_values(self, topic: str, bytes_max: int) -> None:
        """Let the broker take larger records in this topic."""
        from confluent_kafka import admin

        change: Any = admin
        entry = change.ConfigEntry(
            "max.message.bytes", str(bytes_max), incremental_operation=change.AlterConfigOpType.SET
        )
        wanted = change.ConfigResource(change.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        client = clients.admin({"bootstrap.servers": self.bootstrap})
        for future in client.incremental_alter_configs([wanted]).values():
            future.result(60)

    def produce(self, topic: str, values: Iterable[bytes | None], **more: Any) -> None:
        """Write values and wait for their delivery; `more` are arguments of the client (partition, timestamp)."""
        self.produce_pairs(topic, [(None, value) for value in values], **more)

    def produce_pairs(self, topic: str, pairs: Sequence[tuple[bytes | None, bytes | None]], **more: Any) -> None:
        """Write (key, value) in order and wait for their delivery."""

        failed: list[object] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "message.max.bytes": 50_000_000,
        }
        producer = clients.producer(settings)
        more["on_delivery"] = lambda error, _message: failed.append(error) if error is not None else None
        for key, value in pairs:
            producer.produce(topic, value, key, **more)
        assert producer.flush(120) == 0
        assert not failed, failed

    def rows(self, topic: str) -> list[Any]:
        """Committed values of a topic, decoded, partition by partition."""
        return [msgspec.json.decode(value) for rows in read_topic(self.bootstrap, topic) for _, value in rows]

    def open_transactions(self, *topics: str) -> list[OpenBrokerTransaction]:
        """What stands in front of read-committed readers."""
        client = TransactionClient({"bootstrap.servers": self.bootstrap})
        try:
            counts = client.topics(topics)
            parts = [TopicPartition(topic, index) for topic in topics for index in range(counts[topic].partitions)]
            return client.open_transactions(parts)
        finally:
            client.close()

    def command(self, *arguments: str, timeout_s: float = PATIENCE_S) -> Ended:
        """`tidegate ...` until it ends."""
        ran = subprocess.run(
            [sys.executable, "-m", "tidegate", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **self.environ},
            timeout=timeout_s,
            check=False,
        )
        return Ended(ran.returncode, ran.stdout.decode(errors="replace"))

    def run(self, timeout_s: float = PATIENCE_S) -> Ended:
        """`tidegate run` on the file as it is now, until it ends by itself."""
        return self.command("run", str(self.write()), timeout_s=timeout_s)

    def run_here(self, *options: str) -> Ended:
        """As `run`, in this process: it ends before slots are started."""
        return tidegate("run", *options, self.write(), environ=self.environ)

    def start(self, *command: str) -> DaemonProcess:
        """`tidegate run` in the background, or another command; ended by `close` at the latest."""
        number = len(self.daemons)
        made = DaemonProcess(
            self.write(f"pipeline-{number}.yaml"),
            self.directory / f"daemon-{number}.log",
            self.environ,
            command=command,
        )
        self.daemons.append(made)
        return made.start()

    def close(self) -> None:
        """Leave nothing behind."""
        for daemon in self.daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.destroy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def numbers(*pairs: tuple[int, int]) -> list[bytes | None]:
    """Records for `User.numbers`."""
    return [json.dumps({"id": id_, "n": n}).encode() for id_, n in pairs]


def log_lines(text: str) -> list[dict[str, Any]]:
    """Every line of a JSON log; fails at the first that is none."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]
