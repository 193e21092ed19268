"""Misconfigurations planted at a real broker and on this machine: each is found, and a sound deployment is ok."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import SessionBroker, TopicMaker
from tests.support import clients
from tidegate.checks.findings import Severity, is_kept
from tidegate.cli.doctor import find_findings, find_problems
from tidegate.cli.main import run_command
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.daemon.restore_point import NO_OPTIONS
from tidegate.kafka.inspection import Inspector
from tidegate.plan.build import build_plan

pytestmark = pytest.mark.slow

SCHEMA: Final = {"id": "bigint", "at": "timestamp", "gone": "boolean"}
MEMORY: Final = Path("/dev/shm")
WARNING, PROBLEM = Severity.WARNING, Severity.PROBLEM
SOURCES: Final = {
    "brief": {"retention.ms": "60000"},
    "small": {"retention.bytes": "1000000"},
    "squeezed": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "large": {"max.message.bytes": "8000000"},
}
SINKS: Final[dict[str, tuple[dict[str, str], dict[str, Any]]]] = {
    "unwritable": ({"min.insync.replicas": "2"}, {}),
    "unclean": ({"unclean.leader.election.enable": "true"}, {}),
    "forgetful": ({"retention.ms": "60000"}, {}),
    "keyless": ({"cleanup.policy": "compact"}, {}),
    "deleting": ({}, {"key": "id", "on_null": {"column": "gone", "write": "tombstone"}}),
    "restamped": ({"message.timestamp.type": "LogAppendTime"}, {"timestamp": "at"}),
    "strict": ({"message.timestamp.before.max.ms": "3600000"}, {"timestamp": "at"}),
    "shared": ({}, {}),
}
"""Settings of the topic, and words of the sink."""
PLANTED: Final = {
    ("retention", "brief", PROBLEM),
    ("retention", "small", WARNING),
    ("cleanup", "squeezed", WARNING),
    ("timestamps", "stamped", WARNING),
    ("record-size", "shared", WARNING),
    ("min-in-sync", "unwritable", PROBLEM),
    ("unclean-election", "unclean", WARNING),
    ("retention", "forgetful", PROBLEM),
    ("cleanup", "keyless", PROBLEM),
    ("cleanup", "deleting", WARNING),
    ("timestamps", "restamped", WARNING),
    ("timestamps", "strict", WARNING),
    ("other-writers", "shared", WARNING),
    ("other-ids", "", WARNING),
    ("transaction-timeout", "", PROBLEM),
    ("start", "sources.brief.start.7", PROBLEM),
    ("checkpoint-directory", "memory", PROBLEM),
}
ALSO: Final = {("brokers", ""), *(("record-size", name) for name in SINKS)}
"""True of the test's own deployment, or follows from what was planted."""


def load(document: dict[str, Any]) -> LoadedPipeline:
    loaded = parse_pipeline(json.dumps(document), "p.yaml", {})
    assert loaded.problems == ()
    return loaded


def document(name: str, bootstrap: str, directory: Path) -> dict[str, Any]:
    return {
        "version": 1,
        "name": name,
        "kafka": {"bootstrap.servers": bootstrap},
        "checkpoints": {"directory": f"file://{directory}"},
        "http": {"port": 0},
    }


@pytest.fixture
def memory(unique_name: Callable[[str], str]) -> Iterator[Path]:
    """A directory that is lost with the machine."""
    path = MEMORY / unique_name("tidegate-test")
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def visit(bootstrap: str, topic: str, identity: str) -> Iterator[None]:
    """Another program writes a record, and another one in a transaction that is open inside."""
    producer = clients.producer({"bootstrap.servers": bootstrap, "transactional.id": identity})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"{}")
    assert producer.flush(60) == 0
    try:
        yield
    finally:
        producer.abort_transaction(60)


def test_every_planted_misconfiguration_is_found_and_nothing_else(
    broker: SessionBroker, topics: TopicMaker, unique_name: Callable[[str], str], memory: Path
) -> None:
    names = {name: topics(name, 1, {"retention.ms": "604800000", **config}) for name, config in SOURCES.items()}
    names |= {name: topics(name, 1, {"retention.ms": "604800000", **config}) for name, (config, _) in SINKS.items()}
    pipeline = unique_name("planted")
    words = document(pipeline, broker.bootstrap, memory)
    words["checkpoints"]["transaction_timeout"] = "20m"
    words["sources"] = {name: {"topic": names[name], "schema": SCHEMA} for name in SOURCES}
    words["sources"]["brief"]["start"] = {"7": 0}
    aggregate = {"name": "per_minute", "from": "stamped", "key": "id", "window": {"tumbling": "1m"}}
    words["steps"] = [{**aggregate, "aggregate": {"n": "count(*)"}}]
    words["sinks"] = {name: {"from": "brief", "topic": names[name], **more} for name, (_, more) in SINKS.items()}
    words["sinks"]["shared"]["from"] = "per_minute"
    for sink, source in (("unwritable", "small"), ("unclean", "squeezed"), ("forgetful", "large")):
        words["sinks"][sink]["from"] = source
    loaded = load(words)
    with visit(broker.bootstrap, names["shared"], f"{pipeline}.another-program"):
        findings = find_findings(loaded, build_plan(loaded), NO_OPTIONS, deep=True)
    shown = {topic: name for name, topic in names.items()} | {str(memory): "memory"}
    found = {
        (one.check, shown.get(subject, subject), one.severity)
        for one in findings
        if one.severity is not Severity.OK
        for subject in [loaded.display(one.place) if one.check == "start" else one.subject]
    }
    assert found >= PLANTED
    assert {(check, subject) for check, subject, _ in found - PLANTED} <= ALSO
    assert all(one.remedy for one in findings if one.severity is PROBLEM and one.check != "start")
    assert not is_kept(findings)
    (opened,) = [one for one in findings if one.check == "open-transactions"]
    assert opened.value == "no hanging transaction; 1 open normally"


def test_a_sound_deployment_is_ok_but_for_its_one_broker(
    broker: SessionBroker, topics: TopicMaker, unique_name: Callable[[str], str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = document(unique_name("sound"), broker.bootstrap, tmp_path)
    words["sources"] = {"orders": {"topic": topics("in", 1), "schema": SCHEMA}}
    words["sinks"] = {"out": {"from": "orders", "topic": topics("out", 1)}}
    path = tmp_path / "sound.yaml"
    path.write_text(json.dumps(words))
    assert run_command(["doctor", str(path), "--format", "json"]) == 0
    document_ = json.loads(capsys.readouterr().out)
    assert document_["exactly_once"] is True
    assert [one["check"] for one in document_["findings"] if one["severity"] != "ok"] == ["brokers"]


def test_a_strict_start_is_refused_where_another_one_is_only_warned(
    broker: SessionBroker, topics: TopicMaker, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    words = document(unique_name("strict"), broker.bootstrap, tmp_path)
    words["sources"] = {"orders": {"topic": topics("brief", 1, {"retention.ms": "60000"}), "schema": SCHEMA}}
    words["sinks"] = {"out": {"from": "orders", "topic": topics("out", 1)}}
    loaded = load(words)
    assert find_problems(loaded, build_plan(loaded))[1] == 0
    strict = load({**words, "strict": True})
    problems, code = find_problems(strict, build_plan(strict))
    assert code == 2
    (refusing,) = [one for one in problems if one.severity == "error"]
    assert refusing.path == "sources.orders.topic"
    assert "--add-config retention.ms=604800000" in refusing.remedy


@pytest.mark.parametrize("skew_s", [0, 60, -60])
def test_the_controllers_clock_is_compared_with_this_machines(broker: SessionBroker, skew_s: int) -> None:
    inspector = Inspector({"bootstrap.servers": broker.bootstrap}, 30.0)
    try:
        reading = inspector.clock(lambda: time.time() - skew_s)
    finally:
        inspector.close()
    assert reading is not None
    assert abs(reading.ahead_ms - 1000 * skew_s) <= reading.uncertain_ms + 100
