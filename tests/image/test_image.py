"""The built image does what the chart asks of it: no rights, a read-only root, both roles, a pipeline that is exact."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.image.container import Container
from tests.support import clients
from tests.support.processes import find_descendants, kill
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate import __version__

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS = 500
LOOK = """
import json, os
def writes(place):
    try:
        with open(os.path.join(place, "x"), "w"):
            return True
    except OSError:
        return False
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
places = ["/", "/etc", "/opt/tidegate", "/opt/tidegate/cache", "/root", "/usr/bin", "/var/lib/tidegate", "/tmp"]
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), *os.getgroups()],
    "capabilities": sorted({status[name].strip() for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb")}),
    "writes": [place for place in places if writes(place)],
    "here": os.getcwd(),
}))
"""
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "none",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "256m",
    "SPARK_APPLICATION_ID": "none",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
PIPELINE = """
version: 1
name: {name}
kafka: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2]"}}
parallelism: 2
checkpoints: {{directory: file:///var/lib/tidegate/{name}, interval: 500ms}}
http: {{port: 0}}
sources:
  numbers: {{topic: {source}, format: json, schema: {{n: bigint}}, start: earliest}}
steps:
  - {{name: known, from: numbers, select: {{n: n, m: n % 5}}}}
  - {{name: counted, from: known, key: m, aggregate: {{seen: count(*), last: last(n)}}}}
sinks:
  out: {{from: counted, topic: {sink}, format: json, key: m}}
"""


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path / "container")


def test_it_is_a_user_without_rights_on_a_root_that_is_read_only(container: Container) -> None:
    ran = container.run("-c", LOOK, entrypoint=["python3"])
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["ids"] == [185, 185]
    assert found["capabilities"] == ["0" * 16]
    assert found["writes"] == ["/var/lib/tidegate", "/tmp"]
    assert found["here"] == "/tmp"


def test_the_command_is_there_and_what_only_builds_it_is_not(container: Container) -> None:
    assert __version__ in container.run("--version").stdout
    assert "validate" in container.run(*container.config["Cmd"]).stdout
    traces = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    for module in ("datasketches", "cryptography", "obstore", "grpc_tools.protoc", traces):
        ran = container.run("-c", f"import {module}", entrypoint=["python3"])
        assert ran.returncode == 0, ran.stderr
    text = "from tidegate.formats.kinds.protobuf.compiler import compile_text; "
    ran = container.run("-c", f"{text}compile_text(b'syntax = \"proto3\"; message A {{}}')", entrypoint=["python3"])
    assert ran.returncode == 0, ran.stderr
    for module in ("pip", "setuptools", "pytest"):
        assert container.run("-c", f"import {module}", entrypoint=["python3"]).returncode == 1, module


def test_a_file_is_validated(tmp_path: Path) -> None:
    orders = (ROOT / "examples" / "orders.yaml").read_text(encoding="utf-8")
    files = {"orders.yaml": orders, "wrong.yaml": orders.replace("version: 1", "version: 1\nversions: 2")}
    container = Container(tmp_path / "container", files)
    ran = container.run("validate", "/etc/tidegate/orders.yaml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    wrong = container.run("validate", "/etc/tidegate/wrong.yaml")
    assert wrong.returncode == 2
    assert "versions" in wrong.stdout + wrong.stderr


def test_an_executor_is_found_by_its_class_and_looks_for_its_driver(container: Container) -> None:
    given = [f"{name}={value}" for name, value in EXECUTOR.items()]
    ran = container.run("executor", entrypoint=["env", *given, *container.config["Entrypoint"]])
    assert ran.returncode != 0
    assert "127.0.0.1:1" in ran.stdout + ran.stderr


def test_a_pipeline_is_exact_and_ends_in_order(tmp_path: Path, broker: SessionBroker, topics: TopicMaker) -> None:
    source, sink = topics("numbers", 2), topics("counted", 2)
    text = PIPELINE.format(name=source, bootstrap=broker.bootstrap, source=source, sink=sink)
    container = Container(tmp_path / "container", {"pipeline.yaml": text})
    log = tmp_path / "log"
    produce(broker, source)
    process = container.start("run", "/etc/tidegate/pipeline.yaml", log=log)
    try:
        rows = read(broker, sink, process, log)
        tini, *_ = find_descendants(process.pid)
        assert "tini" in tini.command
        java = [one.command for one in find_descendants(process.pid) if "SparkSubmit" in one.command]
        assert any("-XX:SharedArchiveFile=/opt/tidegate/cache/" in command for command in java), java
        kill(tini.pid, signal.SIGTERM)
        assert process.wait(120) == 0, log.read_text(encoding="utf-8")[-3000:]
    finally:
        process.kill()
        process.wait()
    assert sorted(row["last"] for row in rows) == list(range(RECORDS))
    for m in range(5):
        seen = [row["seen"] for row in rows if row["m"] == m]
        assert seen == list(range(1, len(seen) + 1)), m
    assert "Traceback" not in log.read_text(encoding="utf-8")


def produce(broker: SessionBroker, topic: str) -> None:
    producer = clients.producer({"bootstrap.servers": broker.bootstrap})
    for n in range(RECORDS):
        producer.produce(topic, json.dumps({"n": n}).encode(), partition=n % 2)
    assert producer.flush(60) == 0


def read(broker: SessionBroker, topic: str, process: Any, log: Path) -> list[dict[str, Any]]:
    """All records of the output, as a read-committed reader sees them."""
    rows: list[dict[str, Any]] = []
    settings = {"group.id": topic, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = clients.consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.subscribe([topic])

    def complete() -> bool:
        assert process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
        for message in consumer.consume(RECORDS, 0.2):
            assert message.error() is None, message.error()
            rows.append(json.loads(message.value() or b"{}"))
        return len(rows) >= RECORDS

    try:
        wait_until(complete, f"{RECORDS} records of the container")
    finally:
        consumer.close()
    return rows
