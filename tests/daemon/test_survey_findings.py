"""What is judged of a cluster: every finding with its place; what may pass by itself is a warning."""

from __future__ import annotations

import pytest

from tests.daemon.small_pipeline import TEXT, pipeline
from tidegate.config.load import parse_pipeline
from tidegate.daemon.survey import Cluster, SeenTopic
from tidegate.daemon.survey_findings import derive_findings
from tidegate.ids import OperatorName, TopicPartition
from tidegate.plan.build import build_plan
from tidegate.sinks.facts import TopicFacts


@pytest.mark.parametrize(
    ("seen", "words", "severity"),
    [
        (SeenTopic("UnknownTopicOrPartition", None, frozenset(), passing=True), "does not exist", "error"),
        (SeenTopic("TopicAuthorizationFailed", None, frozenset()), "may not see", "error"),
        (SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE"])), "may not read", "error"),
        (SeenTopic("", TopicFacts("id", 2), frozenset(["DESCRIBE", "READ"]), (1,)), "no leader for", "warning"),
        (SeenTopic("UnknownServer", None, frozenset()), "the broker says UnknownServer", "error"),
        (SeenTopic("LeaderNotAvailable", None, frozenset(), passing=True), "says LeaderNotAvailable", "warning"),
    ],
)
def test_what_the_broker_says_of_a_topic_is_judged(seen: SeenTopic, words: str, severity: str) -> None:
    loaded = pipeline()
    good = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ", "WRITE"]))
    (problem,) = derive_findings(loaded, build_plan(loaded), Cluster("c", {"in": seen, "out": good}, None, brokers=3))
    assert words in problem.message
    assert (problem.path, problem.severity) == ("sources.orders.topic", severity)


def test_X17_the_start_of_a_source_whose_positions_are_fixed_says_nothing_any_more() -> None:
    loaded = pipeline(start="{0: 9}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    cluster = Cluster("c", {"in": seen, "out": seen}, None, {TopicPartition("in", 0): (3, 8)}, brokers=3)
    assert len(derive_findings(loaded, build_plan(loaded), cluster)) == 1
    assert derive_findings(loaded, build_plan(loaded), cluster, [OperatorName("orders")]) == []


def test_more_slots_than_partitions_are_warned_of() -> None:
    loaded = parse_pipeline(
        TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out")
        + "parallelism: 2\n",
        "p.yaml",
        {},
    )
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    (warning,) = derive_findings(
        loaded, build_plan(loaded), Cluster("c", {"in": seen, "out": seen}, 900_000, brokers=3)
    )
    assert (warning.severity, warning.path) == ("warning", "parallelism")


def test_a_sink_needs_the_right_to_write_and_an_offset_must_exist() -> None:
    loaded = pipeline(start="{0: 9}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    cluster = Cluster("c", {"in": seen, "out": seen}, 900_000, {TopicPartition("in", 0): (3, 8)}, brokers=3)
    start, sink = derive_findings(loaded, build_plan(loaded), cluster)
    assert start.message == "offset 9 is not in partition 0 of `in`"
    assert start.remedy == "use 3 to 8"
    assert "may not write" in sink.message


def test_an_exactly_once_sink_needs_the_right_to_read_its_topic_as_well() -> None:
    loaded = pipeline()
    may_read = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    may_write = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "WRITE"]))
    (problem,) = derive_findings(
        loaded, build_plan(loaded), Cluster("c", {"in": may_read, "out": may_write}, None, brokers=3)
    )
    assert (problem.path, problem.remedy) == ("sinks.out.topic", "grant READ on it")


def test_rights_on_what_bears_the_pipelines_name_are_told_at_the_name() -> None:
    loaded = pipeline()
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    cluster = Cluster("c", {"in": seen, "out": seen}, None, may_transact=False, may_mirror=False, brokers=3)
    transact, mirror = derive_findings(loaded, build_plan(loaded), cluster)
    assert (transact.path, transact.severity) == ("name", "error")
    assert transact.remedy == "grant WRITE on transactional ids with the prefix `check.`"
    assert (mirror.path, mirror.severity, mirror.remedy) == ("name", "warning", "grant READ on that group")
