"""The development broker on its own: life, faults, what stays over restarts."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Partition

from tests.conftest import BrokerMaker, SessionBroker, TopicMaker
from tests.support import clients
from tests.waiting import wait_until
from tidegate.dev.broker import BrokerFailed, DevelopmentBroker, server
from tidegate.kafka.channel import connect

pytestmark = pytest.mark.slow


def write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce these values to partition 0, all of them acknowledged."""
    errors: list[object] = []
    producer = clients.producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert errors == []


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` values of partition 0."""
    consumer = clients.consumer({"bootstrap.servers": bootstrap, "group.id": "read"})
    try:
        consumer.assign([Partition(topic, 0, 0)])
        messages: list[Message] = []
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), 60)
            assert batch, f"{len(messages)} of {count} records within 60 s"
            messages += batch
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_records_written_are_read_back(broker: SessionBroker, topics: TopicMaker) -> None:
    topic = topics("orders")
    write(broker.bootstrap, topic, [b"1", b"2", b"3"])
    assert read(broker.bootstrap, topic, 3) == [b"1", b"2", b"3"]


def test_kill_keeps_port_and_acknowledged_records_and_a_second_object_on_the_directory_continues_it(
    own_broker: BrokerMaker,
) -> None:
    broker = own_broker(transaction_version=2)
    check_version_and_addresses(broker, 2)
    address = broker.bootstrap
    broker.create_topics({"orders": 1})
    write(address, "orders", [b"before"])
    broker.kill()
    assert broker.pid is None
    broker.start()
    assert broker.bootstrap == address
    write(address, "orders", [b"after"])
    assert read(address, "orders", 2) == [b"before", b"after"]
    broker.stop()
    with DevelopmentBroker(broker.directory) as second:
        assert second.bootstrap == address
        assert read(address, "orders", 2) == [b"before", b"after"]


def test_a_paused_broker_does_not_answer_until_resumed_and_can_be_stopped(own_broker: BrokerMaker) -> None:
    broker = own_broker(transaction_version=1)
    check_version_and_addresses(broker, 1)
    broker.pause()
    state = Path(f"/proc/{broker.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(") ")[2].startswith("T"), "stopped")  # a signal takes a moment
    with pytest.raises(BrokerFailed, match="does not answer"):
        broker.wait_ready(timeout_s=0.2)
    broker.resume()
    broker.wait_ready(timeout_s=60)
    broker.pause()
    broker.stop()
    assert broker.pid is None


def check_version_and_addresses(broker: DevelopmentBroker, version: int) -> None:
    """The broker has this transaction version and listens on the loopback interface only."""
    admin = connect({"bootstrap.servers": broker.bootstrap}, 60)
    try:
        feature = admin.describe_features()["transaction.version"]
    finally:
        admin.close()
    assert feature["finalized"] == (version, version)
    assert broker.pid is not None
    listening = addresses(broker.pid)
    assert listening
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}


def addresses(pid: int) -> set[str]:
    """Where a process listens, as /proc writes it."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the broker opens and closes files all the time
            sockets.add(str(file.readlink()))
    table = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in table if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from tidegate.dev.broker import DevelopmentBroker\n"
        "broker = DevelopmentBroker(pathlib.Path(sys.argv[1])).start()\n"
        "print(broker.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    with starter.stdin, starter.stdout:
        pid = int(starter.stdout.readline())
        starter.kill()
        starter.wait()
    wait_until(lambda: is_gone(pid), "the broker ends after its starter")


def test_broken_setting_is_reported_with_what_kafka_said(own_broker: BrokerMaker) -> None:
    broker = own_broker(start=False, properties={"log.segment.bytes": "many"})
    with pytest.raises(BrokerFailed, match="many"):
        broker.start()
    assert broker.pid is None


def test_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = DevelopmentBroker(tmp_path, port)
        with pytest.raises(BrokerFailed, match=f"port {port} of 127.0.0.1 is in use"):
            broker.start()


def is_gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that nobody has reaped has ended too)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second: it was reaped between open and read
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def test_a_topic_that_a_stalled_broker_refuses_for_a_moment_is_created_behind_it(
    broker: SessionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced."))
    asked: list[list[str]] = []

    def refuse_first(admin: Any, wanted: list[Any], timeout_s: float, *, existing_ok: bool) -> dict[str, Any]:
        asked.append([topic.topic for topic in wanted])
        if len(asked) == 1:
            return {"fenced-two": passing} | create(admin, wanted[:1], timeout_s, existing_ok=existing_ok)
        return create(admin, wanted, timeout_s, existing_ok=existing_ok)

    create = server._create
    monkeypatch.setattr(server, "_create", refuse_first)
    server.create_topics(broker.bootstrap, {"fenced-one": 1, "fenced-two": 2})
    assert asked == [["fenced-one", "fenced-two"], ["fenced-two"]]
    with pytest.raises(BrokerFailed, match=r"fenced-one was not created at .*already exists"):
        server.create_topics(broker.bootstrap, {"fenced-one": 1})
    monkeypatch.setattr(server, "_create", lambda *_args, **_named: {"fenced-three": passing})
    with pytest.raises(BrokerFailed, match=r"fenced-three was not created at .*currently fenced"):
        server.create_topics(broker.bootstrap, {"fenced-three": 1}, timeout_s=0.1)
