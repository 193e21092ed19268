"""`validate --connect` against a real broker: every finding with its place."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SessionBroker, TopicMaker
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.daemon.connect_check import Cluster, Connected, SeenTopic, check_connected, derive_findings
from tidegate.ids import TopicPartition
from tidegate.plan.build import build_plan
from tidegate.sinks.facts import TopicFacts

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def collected_sockets() -> Iterator[None]:
    """kafka-python drops the sockets of refused connections without closing them: theirs to mend."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


TEXT = """\
version: 1
name: check
kafka:
  bootstrap.servers: {servers}
checkpoints:
  directory: {directory}
  transaction_timeout: {timeout}
sources:
  orders: {{topic: {source}, schema: {{id: bigint}}, start: {start}}}
sinks:
  out: {{from: orders, topic: {sink}}}
"""


def pipeline(**words: object) -> LoadedPipeline:
    defaults = {"servers": "localhost:9092", "directory": "/tmp", "timeout": "15m", "start": "earliest"}
    loaded = parse_pipeline(TEXT.format(**{**defaults, "source": "in", "sink": "out", **words}), "p.yaml", {})
    assert loaded.problems == ()
    return loaded


def connect(loaded: LoadedPipeline, timeout_ms: int = 60_000) -> Connected:
    return check_connected(loaded, build_plan(loaded), timeout_ms)


def test_a_good_pipeline_has_no_findings_and_gives_the_facts_of_a_start(
    broker: SessionBroker, topics: TopicMaker, tmp_path: Path
) -> None:
    source, sink = topics("in", 3), topics("out", 1)
    found = connect(pipeline(servers=broker.bootstrap, source=source, sink=sink, directory=tmp_path / "state"))
    assert found.problems == ()
    assert found.cluster is not None
    assert found.cluster.cluster_id
    facts = found.cluster.topics[source].facts
    assert facts is not None
    assert facts.partitions == 3
    assert len(facts.topic_id) == 36


def test_everything_that_is_wrong_is_told_with_its_place(
    broker: SessionBroker, topics: TopicMaker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no directory")
    source = topics("in", 2)
    words = {"servers": broker.bootstrap, "source": source, "sink": "missing-topic", "timeout": "23h"}
    found = connect(pipeline(**words, directory=tmp_path / "file", start="{0: 5, 7: 1}"))
    places = [(problem.line, problem.path) for problem in sorted(found.problems)]
    assert places == [
        (6, "checkpoints.directory"),
        (7, "checkpoints.transaction_timeout"),
        (9, "sources.orders.start.0"),
        (9, "sources.orders.start.7"),
        (11, "sinks.out.topic"),
    ]


def test_a_broker_that_is_not_there_is_told_at_its_address(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, not listening: connections are refused
        found = connect(pipeline(servers=f"127.0.0.1:{port}", directory=tmp_path), timeout_ms=500)
    (problem,) = found.problems
    assert (problem.line, problem.path) == (4, "kafka.bootstrap.servers")
    assert f"no broker answers at 127.0.0.1:{port} within 500ms" in problem.message
    assert found.cluster is None


def test_something_that_is_no_broker_is_told_at_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (problem,) = connect(pipeline(servers=f"127.0.0.1:{port}", directory=tmp_path), timeout_ms=500).problems
    assert problem.path == "kafka.bootstrap.servers"


def test_an_unknown_host_is_told(tmp_path: Path) -> None:
    (problem,) = connect(pipeline(servers="nohost.invalid:9092", directory=tmp_path), timeout_ms=300).problems
    assert "`nohost.invalid` is not known" in problem.message


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (SeenTopic("TopicAuthorizationFailed", None, frozenset()), "may not see"),
        (SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE"])), "may not read"),
        (SeenTopic("", TopicFacts("id", 2), frozenset(["DESCRIBE", "READ"]), (1,)), "no leader for partition 1"),
        (SeenTopic("UnknownServer", None, frozenset()), "the broker says UnknownServer"),
    ],
)
def test_what_the_broker_says_of_a_topic_is_judged(seen: SeenTopic, words: str) -> None:
    loaded = pipeline()
    good = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ", "WRITE"]))
    cluster = Cluster("c", {"in": seen, "out": good}, None)
    (problem,) = derive_findings(loaded, build_plan(loaded), cluster)
    assert words in problem.message
    assert problem.path == "sources.orders.topic"


def test_more_slots_than_partitions_are_warned_of() -> None:
    loaded = parse_pipeline(
        TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out")
        + "parallelism: 2\n",
        "p.yaml",
        {},
    )
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    (warning,) = derive_findings(loaded, build_plan(loaded), Cluster("c", {"in": seen, "out": seen}, 900_000))
    assert (warning.severity, warning.path) == ("warning", "parallelism")


def test_a_sink_needs_the_right_to_write_and_an_offset_must_exist() -> None:
    loaded = pipeline(start="{0: 9}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    cluster = Cluster("c", {"in": seen, "out": seen}, 900_000, {TopicPartition("in", 0): (3, 8)})
    start, sink = derive_findings(loaded, build_plan(loaded), cluster)
    assert start.message == "offset 9 is not in partition 0 of `in`"
    assert start.remedy == "use 3 to 8"
    assert "may not write" in sink.message


def test_an_exactly_once_sink_needs_the_right_to_read_its_topic_as_well() -> None:
    loaded = pipeline()
    may_read = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    may_write = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "WRITE"]))
    (problem,) = derive_findings(loaded, build_plan(loaded), Cluster("c", {"in": may_read, "out": may_write}, None))
    assert (problem.path, problem.remedy) == ("sinks.out.topic", "grant READ on it")


def test_rights_on_what_bears_the_pipelines_name_are_told_at_the_name() -> None:
    loaded = pipeline()
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    cluster = Cluster("c", {"in": seen, "out": seen}, None, may_transact=False, may_mirror=False)
    transact, mirror = derive_findings(loaded, build_plan(loaded), cluster)
    assert (transact.path, transact.severity) == ("name", "error")
    assert transact.remedy == "grant WRITE on transactional ids with the prefix `check.`"
    assert (mirror.path, mirror.severity, mirror.remedy) == ("name", "warning", "grant READ on that group")
