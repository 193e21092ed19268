"""Avro and Protobuf with a real registry, Kafka and Spark: schemas evolve in the middle, and the registry is away."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.conftest import SessionBroker, TopicMaker
from tests.formats.protobuf.any_protobuf import file_of, text_of
from tests.support import clients
from tests.support.apicurio import Apicurio
from tests.support.command import tidegate
from tests.support.daemon_process import DaemonProcess
from tests.waiting import wait_until
from tidegate.dev.demo.verify import read_topic
from tidegate.formats.kinds.protobuf.schema import find_message
from tidegate.formats.schemas import SchemaKind, SchemaText

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
    writer = Writer(broker.bootstrap, source, register(registry, source, "long", "key"))
    first = register(registry, source, FIRST)
    writer.write(0, first, FIRST, [{"id": 1, "customer": "ann"}])
    payments = Payments(registry, broker.bootstrap, topics("payments", 1), topics("paid", 1))
    payments.write(payments.first, "t.Payment", id=11, who={"name": "ann"})
    path = write_file(tmp_path, broker.bootstrap, registry.url, source, target, payments)
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
        wait_until(lambda: ids_of(broker, target) == [1, 3], "the other partition goes on")
        wait_until(lambda: "records wait for a schema" in daemon.http("/status")[1], "the status says why")
        registry.start()
        payments.write_more()
        paid = [(11, "ann", None), (12, "bob", "new"), (13, "cyd", None)]
        wait_until(lambda: payments.paid() == paid, "messages of all schemas, one of them text", 60)
        said = "cannot be read: "
        wait_until(lambda: said in daemon.text(), "the log says which schema cannot be read")
        wait_until(
            lambda: 'tidegate_schemas_incompatible{pipeline="avro"} 1.0' in daemon.http("/metrics")[1], "it is counted"
        )
        writer.write(0, UNKNOWN_ID, FIRST, [{"id": 4, "customer": "dan"}])
        writer.write(0, first, FIRST, [{"id": 5, "customer": "eve"}])
        wait_until(lambda: ids_of(broker, target) == [1, 2, 3, 5], "all records")
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
    keys = registry.ask("GET", f"/subjects/{target}-key/versions/latest")
    found = [
        (key, decode(value, written)["id"]) for rows in read_topic(broker.bootstrap, target) for key, value in rows
    ]
    assert [(decode(key or b"", keys), number) for key, number in found] == [(number, number) for _, number in found]
    check_refused(registry, path, target, environ)


class Payments:
    """A topic of messages; their schema, which refers to another one, gets a field more."""

    def __init__(self, registry: Apicurio, bootstrap: str, source: str, target: str) -> None:
        self.source, self.target = source, target
        self._registry, self._bootstrap = registry, bootstrap
        self._producer = clients.producer({"bootstrap.servers": bootstrap})
        fields: list[tuple[Any, ...]] = [("id", "int64"), ("who", "t.Customer")]
        customer = file_of({"Customer": [("name", "string")]}, name="customer.proto")
        self._refers = {"name": "customer.proto", "subject": "customer", "version": 1}
        self._register("customer", text_of(customer).text, [])
        self.first, self._second = (
            text_of(file_of({"Other": fields, "Payment": more}, imports=["customer.proto"]), imports=[customer])
            for more in (fields, [*fields, ("note", "string", "optional")])
        )
        self._ids = {self.first: self._register("payments-value", self.first.text, [self._refers])}

    def write_more(self) -> None:
        """With the second schema, and with two that are text alone, one of which is another type."""
        self._ids[self._second] = self._register("payments-value", self._second.text, [self._refers])
        self.write(self._second, "t.Payment", id=12, who={"name": "bob"}, note="new")
        head = 'syntax = "proto3"; package t; import "customer.proto"; message Payment'
        text = self._register("text", f"{head} {{ int64 id = 1; Customer who = 2; }}", [self._refers])
        unfit = self._register("unfit", f"{head} {{ string id = 1; Customer who = 2; }}", [self._refers])
        for number, body in ((text, b"\x08\x0d\x12\x05\x0a\x03cyd"), (unfit, b"")):
            self._producer.produce(self.source, b"\0" + number.to_bytes(4, "big") + b"\0" + body)
        assert self._producer.flush(60) == 0

    def write(self, schema: SchemaText, message: str, **fields: Any) -> None:
        one = find_message(msgspec.structs.replace(schema, message=message))
        front = b"\0" + self._ids[schema].to_bytes(4, "big") + b"\x02\x02"
        self._producer.produce(self.source, front + one.made(**fields).SerializeToString())
        assert self._producer.flush(60) == 0

    def paid(self) -> list[tuple[Any, ...]]:
        """What the sink has written, as its registered schema has it."""
        subject = f"{self.target}-value"
        if subject not in self._registry.ask("GET", "/subjects"):
            return []
        written = self._registry.ask("GET", f"/subjects/{subject}/versions/latest")
        made = find_message(SchemaText(SchemaKind.PROTOBUF, written["schema"])).made
        front = b"\0" + written["id"].to_bytes(4, "big") + b"\0"
        values = [value for rows in read_topic(self._bootstrap, self.target) for _, value in rows]
        assert all(value.startswith(front) for value in values)
        found = [made.FromString(value[len(front) :]) for value in values]
        return [(one.id, one.name, one.note if one.HasField("note") else None) for one in found]

    def _register(self, subject: str, text: str, references: list[Any]) -> int:
        body = {"schema": text, "schemaType": "PROTOBUF", "references": references}
        found: int = self._registry.ask("POST", f"/subjects/{subject}/versions", body)["id"]
        return found


def write_paid(directory: Path) -> str:
    """The schema of the second sink: the name of its file."""
    file = file_of({"Paid": [("id", "int64"), ("name", "string"), ("note", "string", "optional")]})
    (directory / "paid.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return "paid.desc"


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

    def __init__(self, bootstrap: str, topic: str, key_id: int) -> None:
        self._key_id = key_id
        self._producer = clients.producer({"bootstrap.servers": bootstrap})
        self._topic = topic

    def write(self, partition: int, schema_id: int, schema: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        for row in rows:
            body = io.BytesIO()
            fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
            value = b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()
            key = b"\0" + self._key_id.to_bytes(4, "big") + bytes([2 * row["id"]])  # a small long
            self._producer.produce(self._topic, value, key, partition=partition)
        assert self._producer.flush(60) == 0


def register(registry: Apicurio, topic: str, schema: Any, part: str = "value") -> int:
    found: int = registry.ask("POST", f"/subjects/{topic}-{part}/versions", {"schema": json.dumps(schema)})["id"]
    return found


def decode(value: bytes, written: dict[str, Any]) -> Any:
    assert value[:5] == b"\0" + written["id"].to_bytes(4, "big")
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), json.loads(written["schema"]), None)


def ids_of(broker: SessionBroker, target: str) -> list[int]:
    """The first field of the records: a long after the index of its union."""
    values = [value for rows in read_topic(broker.bootstrap, target) for _, value in rows]
    return sorted(value[6] >> 1 for value in values)


def validate(path: Path, environ: dict[str, str], *options: str) -> tuple[int, str]:
    ended = tidegate("validate", path, *options, environ=environ)
    return ended.code, ended.text


def write_file(directory: Path, bootstrap: str, url: str, source: str, target: str, payments: Payments) -> Path:
    """The pipeline file: JSON is YAML."""
    path = directory / "pipeline.yaml"
    document = {
        "version": 1,
        "name": "avro",
        "kafka": {"bootstrap.servers": bootstrap},
        "checkpoints": {"directory": f"file://{directory}/checkpoints", "interval": "1s"},
        "http": {"port": 0},
        "registry": {"url": url, "timeout": "2s"},
        "sources": {
            "orders": {
                "topic": source,
                "format": "avro",
                "schema": {"registry": f"{source}-value"},
                "metadata": {"key": "k"},
                "key_format": "avro",
                "key_schema": {"registry": f"{source}-key"},
                "bad_records": "skip",
            },
            "payments": {
                "topic": payments.source,
                "format": "protobuf",
                "schema": {"id": "bigint", "who": "struct<name: string>", "note": "string"},
                "bad_records": "skip",
            },
        },
        "steps": [
            {"name": "named", "from": "orders", "select": {"id": "k", "who": "customer"}},
            {"name": "flat", "from": "payments", "select": {"id": "id", "name": "who.name", "note": "note"}},
        ],
        "sinks": {
            "slim": {"from": "named", "topic": target, "format": "avro", "key": "id", "key_format": "avro"},
            "paid": {
                "from": "flat",
                "topic": payments.target,
                "format": "protobuf",
                "schema": {"file": write_paid(directory)},
            },
        },
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    return path
