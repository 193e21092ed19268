"""Python steps that misbehave in real slots: each row that fails does so alone, and whoever ends a slot is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tidegate.dev.demo.verify import read_topic

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(600)]

USERS = ("ann", "bo", "cy")
FAIL = ("exits", "recurses", "allocates")
"""Rows that fail."""


def test_what_user_code_does_to_its_slot_is_answered_and_the_output_is_exact(
    broker: SessionBroker, topics: TopicMaker, tmp_path: Path
) -> None:
    source, target = topics("clicks", 1), topics("visits", 1)
    rows = [*("fine",) * 50, "prints", *FAIL, "meddles", *("fine",) * 50, "blocks", *("fine",) * 50, "ends", "fine"]
    produce(broker.bootstrap, source, rows)
    shutil.copy(Path(__file__).with_name("misbehaving.py"), tmp_path)
    daemon = DaemonProcess(write(tmp_path, broker.bootstrap, source, target), tmp_path / "daemon.log")
    try:
        daemon.start()
        daemon.wait_for(r"the code of visits \(misbehaving.py:\d+ in blocks\) has blocked its slot for 10 s")
        assert len(daemon.slots()) == 1
        kill(daemon.slots()[0])
        (tmp_path / "released").touch()
        assert daemon.wait() == 0, daemon.text()[-4000:]
    finally:
        daemon.destroy()
    text = daemon.text()
    for said in (
        "step visits: hello from ",
        "step visits: and an error",
        "past Python",
        "at its last heartbeat it ran the code of visits (misbehaving.py:",
        "; it ran the code of visits",
    ):
        assert said in text, said
    found = [msgspec.json.decode(value) for part in read_topic(broker.bootstrap, target) for _, value in part]
    assert found == expected(rows)


def expected(rows: list[str]) -> list[dict[str, object]]:
    visits = dict.fromkeys(USERS, 0)
    emitted: list[dict[str, object]] = []
    for n, what in enumerate(rows):
        if what not in FAIL:
            visits[USERS[n % 3]] += 1
            emitted.append({"n": n, "visits": visits[USERS[n % 3]]})
    return emitted


def produce(bootstrap: str, topic: str, rows: list[str]) -> None:
    producer = clients.producer({"bootstrap.servers": bootstrap})
    for n, what in enumerate(rows):
        producer.produce(topic, json.dumps({"n": n, "user": USERS[n % 3], "what": what}), partition=0)
    assert producer.flush(60) == 0


def write(directory: Path, bootstrap: str, source: str, target: str) -> Path:
    """The pipeline file: JSON is YAML."""
    path = directory / "pipeline.yaml"
    document = {
        "version": 1,
        "name": f"misbehaving-{os.getpid()}-{source}",
        "kafka": {"bootstrap.servers": bootstrap},
        "parallelism": 1,
        "restart": {"initial": "100ms", "max": "1s"},
        "checkpoints": {"directory": f"file://{directory}/checkpoints", "interval": "200ms"},
        "http": {"port": 0},
        "sources": {
            "clicks": {
                "topic": source,
                "schema": {"n": "bigint", "user": "string", "what": "string"},
                "until": "latest",
                "bad_records": "skip",
            }
        },
        "steps": [
            {
                "name": "visits",
                "from": "clicks",
                "key": "user",
                "python": "misbehaving:Visits",
                "with": {"place": str(directory)},
                "output": {"n": "bigint", "visits": "bigint"},
            }
        ],
        "sinks": {"out": {"from": "visits", "topic": target, "key": "n"}},
    }
    path.write_text(json.dumps(document))
    return path
