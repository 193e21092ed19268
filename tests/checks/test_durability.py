"""X21: what acknowledged records are worth is said, once for each weakness, with the remedy; nothing is refused."""

from __future__ import annotations

import pytest

from tests.daemon.small_pipeline import pipeline
from tidegate.checks.cluster import OFFSETS_LOG, Cluster, SeenTopic
from tidegate.checks.durability import NAMES_MAX, derive_durability_problems
from tidegate.config.errors import Problem
from tidegate.kafka.facts import TRANSACTION_LOG, TopicFacts
from tidegate.plan.build import build_plan

FACTS = TopicFacts("id", 1)


def topic(copies: int = 3, min_in_sync: int | None = 2, *, unclean: bool | None = False) -> SeenTopic:
    return SeenTopic("", FACTS, frozenset(), copies=copies, min_in_sync=min_in_sync, unclean=unclean)


SAFE = topic()


def found(
    read: SeenTopic = SAFE, written: SeenTopic = SAFE, *, brokers: int = 3, internal: dict[str, SeenTopic] | None = None
) -> list[Problem]:
    loaded = pipeline()
    topics = {"in": read, "out": written}
    cluster = Cluster("c", topics, None, brokers=brokers, internal=internal or {})
    problems = derive_durability_problems(loaded, build_plan(loaded), cluster)
    assert {problem.severity for problem in problems} <= {"warning"}
    return problems


def test_X21_a_safe_cluster_and_one_whose_settings_are_hidden_have_no_problems() -> None:
    hidden = topic(min_in_sync=None, unclean=None)
    assert found(internal={TRANSACTION_LOG: SAFE, OFFSETS_LOG: SAFE}) == []
    assert found(hidden, hidden) == []


@pytest.mark.parametrize(
    ("seen", "words", "remedy"),
    [
        (topic(min_in_sync=1), "min.insync.replicas is 1", "--entity-name out --add-config min.insync.replicas=2"),
        (topic(2, 1), "min.insync.replicas is 1", "--add-config min.insync.replicas=2"),
        (topic(1, 1), "there is one copy", "use three"),
        (topic(unclean=True), "can become the leader", "--add-config unclean.leader.election.enable=false"),
    ],
)
def test_X21_each_weakness_of_an_output_is_one_warning_with_its_place_and_remedy(
    seen: SeenTopic, words: str, remedy: str
) -> None:
    (problem,) = found(written=seen)
    assert problem.path == "sinks.out.topic"
    assert problem.message.startswith("`out`: ")
    assert words in problem.message
    assert "output that was committed can be lost" in problem.message
    assert remedy in problem.remedy


def test_X21_inputs_and_kafkas_own_topics_are_looked_at_as_well() -> None:
    weak = topic(min_in_sync=1)
    problems = found(read=weak, internal={TRANSACTION_LOG: weak, OFFSETS_LOG: weak})
    assert [problem.path for problem in problems] == [
        "sources.orders.topic",
        "kafka.bootstrap.servers",
        "kafka.bootstrap.servers",
    ]
    assert "before they are read" in problems[0].message
    assert "decisions about transactions can be lost" in problems[1].message


def test_X21_a_cluster_of_one_broker_is_one_line() -> None:
    bad = topic(1, 1, unclean=True)
    (problem,) = found(bad, bad, brokers=1, internal={TRANSACTION_LOG: bad, OFFSETS_LOG: bad})
    assert "one broker" in problem.message
    assert "in order for development" in problem.remedy


def test_X21_many_topics_are_one_line_that_does_not_name_them_all() -> None:
    (problem,) = found(internal={f"t{number}": topic(min_in_sync=1) for number in range(NAMES_MAX + 2)})
    assert problem.message.count("`") == 2 * NAMES_MAX
    assert "and 2 more" in problem.message
    assert "--entity-name TOPIC" in problem.remedy
