"""Creates data directories of brokers without a Java process for each: the output of Kafka's tool differs only in its
ids.

The tool still formats the first broker of a process for each transaction version, and every broker of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import make_cluster_id

FEATURES = "bootstrap.checkpoint"
META = "meta.properties"


@contextmanager
def formatted_once() -> Iterator[None]:
    """Replaces the formatting of brokers within the block."""
    format_directory = DevelopmentBroker._format
    known: dict[int | None, bytes] = {}

    def format_(broker: DevelopmentBroker, jars: list[Path]) -> None:
        data = broker.directory / "data"
        if (data / META).exists():
            return
        if broker.cluster_id is not None or broker.transaction_version not in known:
            format_directory(broker, jars)
            if broker.cluster_id is None:
                known[broker.transaction_version] = (data / FEATURES).read_bytes()
            return
        data.mkdir()
        (data / FEATURES).write_bytes(known[broker.transaction_version])
        ids = {"node.id": 1, "directory.id": make_cluster_id(), "version": 1, "cluster.id": make_cluster_id()}
        (data / META).write_text("".join(f"{name}={value}\n" for name, value in ids.items()), encoding="ascii")

    with mock.patch.object(DevelopmentBroker, "_format", format_):
        yield
