"""Asynchronous steps as users run them: a function next to the file, a wheel, HTTP, Kafka, Spark, and a kill."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.support.lookup_server import lookup_server
from tests.user_code.made_wheels import make_wheel
from tidegate.dev.demo.verify import read_topic

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(600)]

PARTITIONS, COUNT = 2, 3000
WHEEL = "countries-1-py3-none-any.whl"
READ = """
from pathlib import Path

def read():
    return Path(__file__).with_name("names.txt").read_text().split()
"""
MODULE = """
from lookup.table import COUNTRIES

class Resolve:
    async def open(self):
        self.countries = COUNTRIES

    async def __call__(self, row):
        return {"country": self.countries[row["n"] % len(self.countries)]}
"""


def test_answers_are_exact_and_in_order_after_a_kill_while_calls_are_under_way(
    broker: SessionBroker, topics: TopicMaker, tmp_path: Path
) -> None:
    source, target = topics("asked", PARTITIONS), topics("answered", PARTITIONS)
    produce(broker.bootstrap, source)
    (tmp_path / "lookup").mkdir()
    (tmp_path / "lookup" / "geo.py").write_text(MODULE)
    (tmp_path / "lookup" / "table.py").write_text("from countries import read\nCOUNTRIES = [*read(), None]\n")
    make_wheel(tmp_path, {"countries/__init__.py": READ, "countries/names.txt": "de fr"}, WHEEL)
    with lookup_server() as server:
        server.set_mode(delay_s=0.2, fail=0.05)
        path = write(tmp_path, broker.bootstrap, source, target, server.url)
        first = DaemonProcess(path, tmp_path / "first.log", {"TMPDIR": str(tmp_path)}).start()
        try:
            first.wait_committed()
            first.kill()
            server.set_mode()
            (unpacked,) = tmp_path.glob("tidegate-code-*/*/unpacked/countries/names.txt")
            unpacked.write_text("a copy that is damaged is replaced")
            for part in (tmp_path / "checkpoints" / "code").glob("*/*"):
                part.unlink()
            second = DaemonProcess(path, tmp_path / "second.log", {"TMPDIR": str(tmp_path)}).start()
            try:
                assert second.wait() == 0, second.text()[-3000:]
                assert "state of priced restored from" in second.text(), "nothing was under way"
            finally:
                second.destroy()
        finally:
            first.destroy()
    found = [[msgspec.json.decode(value) for _, value in rows] for rows in read_topic(broker.bootstrap, target)]
    expected = [[answered(partition * COUNT + n) for n in range(COUNT)] for partition in range(PARTITIONS)]
    assert sorted((row for rows in found for row in rows), key=lambda row: row["n"]) == [
        row for rows in expected for row in rows
    ]
    for rows in found:
        for partition in range(PARTITIONS):
            numbers = [row["n"] for row in rows if row["n"] // COUNT == partition]
            assert numbers == sorted(numbers)


def answered(number: int) -> dict[str, object]:
    return {"n": number, "country": ["de", "fr", None][number % 3], "price": float(len(str(number)))}


def produce(bootstrap: str, topic: str) -> None:
    producer = clients.producer({"bootstrap.servers": bootstrap})
    for number in range(PARTITIONS * COUNT):
        producer.produce(topic, json.dumps({"n": number}), partition=number // COUNT)
    assert producer.flush(60) == 0


def write(directory: Path, bootstrap: str, source: str, target: str, url: str) -> Path:
    """The pipeline file: JSON is YAML."""
    path = directory / "pipeline.yaml"
    document = {
        "version": 1,
        "name": f"async-{os.getpid()}-{source}",
        "kafka": {"bootstrap.servers": bootstrap},
        "parallelism": PARTITIONS,
        "checkpoints": {"directory": f"file://{directory}/checkpoints", "interval": "200ms"},
        "http": {"port": 0},
        "code": [WHEEL],
        "sources": {"asked": {"topic": source, "schema": {"n": "bigint"}, "until": "latest"}},
        "steps": [
            {
                "name": "located",
                "from": "asked",
                "async": "lookup.geo:Resolve",
                "output": {"country": "string"},
                "capacity": 50,
            },
            {
                "name": "priced",
                "from": "located",
                "http": {"url": url + "/price/{n}"},
                "output": {"price": "double"},
                "retries": 20,
                "backoff": "5ms",
                "capacity": 50,
            },
        ],
        "sinks": {"answered": {"from": "priced", "topic": target, "key": "n"}},
    }
    path.write_text(json.dumps(document))
    return path
