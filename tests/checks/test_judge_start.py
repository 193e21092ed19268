"""What is judged of a cluster: every problem with its place; what may pass by itself is a warning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.daemon.small_pipeline import TEXT, pipeline
from tidegate.checks.cluster import Cluster, SeenTopic, _read_offsets
from tidegate.checks.judge_start import derive_problems
from tidegate.checks.start_problems import derive_exit_code
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan


def judged(loaded: LoadedPipeline, cluster: Cluster) -> list[Problem]:
    return [problem.problem for problem in derive_problems(loaded, build_plan(loaded), cluster)]


@pytest.mark.parametrize(
    ("seen", "words", "code"),
    [
        (SeenTopic("UnknownTopicOrPartition", None, frozenset()), "does not exist", 2),
        (SeenTopic("TopicAuthorizationFailed", None, frozenset()), "may not see", 2),
        (SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE"])), "may not read", 2),
        (SeenTopic("", TopicFacts("id", 2), frozenset(["DESCRIBE", "READ"]), (1,)), "no leader for partition 1", 0),
        (SeenTopic("LeaderNotAvailable", None, frozenset()), "the broker says LeaderNotAvailable", 1),
    ],
)
def test_what_the_broker_says_of_a_topic_is_judged(seen: SeenTopic, words: str, code: int) -> None:
    loaded = pipeline()
    good = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ", "WRITE"]))
    found = derive_problems(loaded, build_plan(loaded), Cluster("c", {"in": seen, "out": good}, None, brokers=3))
    (problem,) = [each.problem for each in found]
    assert words in problem.message
    assert problem.path == "sources.orders.topic"
    assert derive_exit_code(found) == code


def test_X17_the_start_of_a_source_whose_positions_are_fixed_says_nothing_any_more() -> None:
    loaded = pipeline(start="{0: 9}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    cluster = Cluster("c", {"in": seen, "out": seen}, None, {TopicPartition("in", 0): (3, 8)}, brokers=3)
    assert len(derive_problems(loaded, build_plan(loaded), cluster)) == 1
    assert derive_problems(loaded, build_plan(loaded), cluster, [OperatorName("orders")]) == []


def test_more_slots_than_partitions_are_warned_of() -> None:
    loaded = parse_pipeline(
        TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out")
        + "parallelism: 2\n",
        "p.yaml",
        {},
    )
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    (warning,) = judged(loaded, Cluster("c", {"in": seen, "out": seen}, 900_000, brokers=3))
    assert (warning.severity, warning.path) == ("warning", "parallelism")


def test_a_sink_needs_the_right_to_write_and_an_offset_must_exist() -> None:
    loaded = pipeline(start="{0: 9}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    cluster = Cluster("c", {"in": seen, "out": seen}, 900_000, {TopicPartition("in", 0): (3, 8)}, brokers=3)
    sink, start = judged(loaded, cluster)
    assert start.message == "offset 9 is not in partition 0 of `in`"
    assert start.remedy == "use 3 to 8"
    assert "may not write" in sink.message


def test_an_exactly_once_sink_needs_the_right_to_read_its_topic_as_well() -> None:
    loaded = pipeline()
    may_read = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "READ"]))
    may_write = SeenTopic("", TopicFacts("id", 1), frozenset(["DESCRIBE", "WRITE"]))
    (problem,) = judged(loaded, Cluster("c", {"in": may_read, "out": may_write}, None, brokers=3))
    assert (problem.path, problem.remedy) == ("sinks.out.topic", "grant READ on it")


def test_rights_on_what_bears_the_pipelines_name_are_told_at_the_name() -> None:
    loaded = pipeline()
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    cluster = Cluster("c", {"in": seen, "out": seen}, None, may_transact=False, may_mirror=False, brokers=3)
    transact, mirror = judged(loaded, cluster)
    assert (transact.path, transact.severity) == ("name", "error")
    assert transact.remedy == "grant WRITE on transactional ids with the prefix `check.`"
    assert (mirror.path, mirror.severity, mirror.remedy) == ("name", "warning", "grant READ on that group")


@pytest.mark.parametrize(
    ("unfit", "words"),
    [
        ({"compacted": True}, "is compacted"),
        ({"batch_bytes": 10_000}, "takes records of 10000 bytes at most"),
        ({}, ""),
        ({"compacted": False, "batch_bytes": 1_048_588}, ""),
    ],
)
def test_a_topic_that_cannot_take_every_dead_letter_is_refused(unfit: dict[str, Any], words: str) -> None:
    text = TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out")
    text = text.replace("start: earliest", "bad_records: dead-letter") + "dead_letters: {topic: dead}\n"
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    topics = {"in": seen, "out": seen, "dead": msgspec.structs.replace(seen, **unfit)}
    found = judged(parse_pipeline(text, "p.yaml", {}), Cluster("c", topics, None, brokers=3))
    assert [(one.path, words in one.message) for one in found] == ([("dead_letters.topic", True)] if words else [])


@pytest.mark.parametrize(("key", "refused"), [("", True), (", key: id", False)])
def test_a_compacted_topic_takes_no_record_of_a_sink_without_a_key(key: str, refused: bool) -> None:
    text = TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out" + key)
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    topics = {"in": seen, "out": msgspec.structs.replace(seen, compacted=True)}
    found = judged(parse_pipeline(text, "p.yaml", {}), Cluster("c", topics, None, brokers=3))
    assert [(one.path, one.remedy) for one in found] == (
        [("sinks.out.topic", "set `key` of the sink, or change the topic's cleanup.policy")] if refused else []
    )


def test_a_start_by_offsets_is_compared_with_what_read_committed_readers_see() -> None:
    """A start is refused beyond it, too."""

    def list_partition_offsets(wanted: dict[Any, int], isolation: int = 0) -> dict[Any, Any]:
        return {part: SimpleNamespace(offset={-2: 3, -1: (9, 7)[isolation]}[spec]) for part, spec in wanted.items()}

    client = cast("Any", SimpleNamespace(list_partition_offsets=list_partition_offsets))
    seen = {"in": SeenTopic("", TopicFacts("id", 1), frozenset())}
    offsets = _read_offsets(client, build_plan(pipeline(start="{0: 8}")), seen)
    assert offsets == {TopicPartition("in", 0): (3, 7)}


def test_every_topic_that_a_sink_may_choose_is_looked_at() -> None:
    text = TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start="earliest", source="in", sink="out")
    text = text.replace("topic: out", "topic: {expression: \"'a'\", allow: [a, b]}")
    seen = SeenTopic("", TopicFacts("id", 1), frozenset())
    topics = {"in": seen, "a": seen, "b": SeenTopic("UnknownTopicOrPartition", None, frozenset())}
    (problem,) = judged(parse_pipeline(text, "p.yaml", {}), Cluster("c", topics, None, brokers=3))
    assert (problem.path, problem.message) == ("sinks.out.topic.allow.1", "the topic `b` does not exist")
