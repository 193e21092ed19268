"""Avro with a real registry, Kafka and Spark: a schema evolves while the pipeline runs, and the registry is away."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import fastavro
import msgspec
import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.support.apicurio import Apicurio
from tests.support.daemon_process import DaemonProcess
from tests.waiting import wait_until
from tidegate.dev.demo.verify import read_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2
FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "customer", "type": "string"}],
}
SECOND: dict[str, Any] = {**FIRST, "fields": [{"name": "note", "type": "string", "default": ""}, *FIRST["fields"]]}
UNKNOWN_ID = 4711
ONE_UNKNOWN = re.compile(r'bad_records_total\{.*reason="UNKNOWN_SCHEMA".*\} 1\.0')


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Apicurio]:
    with Apicurio(tmp_path) as running:
        yield running


def test_a_schema_evolves_and_the_registry_restarts_while_the_pipeline_runs(
    broker: SessionBroker, topics: TopicMaker, registry: Apicurio, tmp_path: Path
) -> None:
    source, target = topics("orders", PARTITIONS), topics("slim", PARTITIONS)
    writer = Writer(broker.bootstrap, source)
    first = register(registry, source, FIRST)
    writer.write(0, first, FIRST, [{"id": 1, "customer": "ann"}])
    path = write_file(tmp_path, broker.bootstrap, registry.url, source, target)
    environ = {"TMPDIR": str(tmp_path), "TIDEGATE_CACHE": str(tmp_path / "cache")}
    assert validate(path, environ, "--connect")[0] == 0
    daemon = DaemonProcess(path, tmp_path / "daemon.log", environ).start()
    try:
        daemon.wait_committed()
        second = register(registry, source, SECOND)
        registry.stop()
        writer.write(0, second, SECOND, [{"id": 2, "customer": "bob", "note": "new"}])
        wait_until(lambda: 'tidegate_schemas_waiting{pipeline="avro"} 1.0' in daemon.http("/metrics")[1], "it waits")
        writer.write(1, first, FIRST, [{"id": 3, "customer": "cyd"}])
        wait_until(lambda: ids_of(broker, target) == [1, 3], "the other partition goes on", 60)
        wait_until(lambda: "records wait for a schema" in daemon.http("/status")[1], "the status says why")
        registry.start()
        writer.write(0, UNKNOWN_ID, FIRST, [{"id": 4, "customer": "dan"}])
        writer.write(0, first, FIRST, [{"id": 5, "customer": "eve"}])
        wait_until(lambda: ids_of(broker, target) == [1, 2, 3, 5], "all records", 60)
        wait_until(lambda: ONE_UNKNOWN.search(daemon.http("/metrics")[1]) is not None, "the bad record is counted")
        assert daemon.attempt == 1, daemon.text()[-3000:]
        assert daemon.terminate() == 0, daemon.text()[-3000:]
    finally:
        daemon.destroy()
    written = registry.ask("GET", f"/subjects/{target}-value/versions/latest")
    rows = [decode(value, written) for rows in read_topic(broker.bootstrap, target) for _, value in rows]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "who": "ann"}, {"id": 2, "who": "bob"}, {"id": 3, "who": "cyd"}, {"id": 5, "who": "eve"}
    ]  # fmt: skip
    check_refused(registry, path, target, environ)


def check_refused(registry: Apicurio, path: Path, target: str, environ: dict[str, str]) -> None:
    """What the registry does not take is refused; without it a copy is as good for looking at the file."""
    registry.ask("PUT", f"/config/{target}-value", {"compatibility": "FULL"})
    path.write_text(path.read_text("utf-8").replace('"who": "customer"', '"who": "id"'), "utf-8")
    code, said = validate(path, environ, "--connect")
    assert (code, "sinks.slim.schema: " in said, "not compatible" in said) == (2, True, True), said
    registry.stop()
    assert validate(path, environ)[0] == 0
    code, said = validate(path, environ, "--connect")
    assert (code, "cannot be reached" in said) == (1, True), said


class Writer:
    """Writes records of the wire format."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = ck.Producer({"bootstrap.servers": bootstrap})
        self._topic = topic

    def write(self, partition: int, schema_id: int, schema: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        for row in rows:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
            value = b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()
            self._producer.produce(self._topic, value, partition=partition)
        assert self._producer.flush(60) == 0


def register(registry: Apicurio, topic: str, schema: dict[str, Any]) -> int:
    found: int = registry.ask("POST", f"/subjects/{topic}-value/versions", {"schema": json.dumps(schema)})["id"]
    return found


def decode(value: bytes, written: dict[str, Any]) -> Any:
    assert value[:5] == b"\0" + written["id"].to_bytes(4, "big")
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(written["schema"]), None)


def ids_of(broker: SessionBroker, target: str) -> list[int]:
    """The first field of the records: a long after the index of its union."""
    values = [value for rows in read_topic(broker.bootstrap, target) for _, value in rows]
    return sorted(value[6] >> 1 for value in values)


def validate(path: Path, environ: dict[str, str], *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tidegate", "validate", str(path), *options]
    ran = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout + ran.stderr


def write_file(directory: Path, bootstrap: str, url: str, source: str, target: str) -> Path:
    """The pipeline file: JSON is YAML."""
    path = directory / "pipeline.yaml"
    document = {
        "version": 1,
        "name": "avro",
        "kafka": {"bootstrap.servers": bootstrap},
        "checkpoints": {"directory": f"file://{directory}/checkpoints", "interval": "200ms"},
        "http": {"port": 0},
        "registry": {"url": url, "timeout": "2s"},
        "sources": {
            "orders": {
                "topic": source,
                "format": "avro",
                "schema": {"registry": f"{source}-value"},
                "bad_records": "skip",
            }
        },
        "steps": [{"name": "named", "from": "orders", "select": {"id": "id", "who": "customer"}}],
        "sinks": {"slim": {"from": "named", "topic": target, "format": "avro"}},
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    return path
