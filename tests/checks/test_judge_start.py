"""What is judged of a cluster: every problem with its place; what may pass by itself is a warning."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.values import on_cluster, positions
from tests.daemon.small_pipeline import pipeline
from tidegate.checks.cluster import _look_rights_up, _read_offsets
from tidegate.checks.facts import ClusterFacts, SeenTopic, derive_needs
from tidegate.checks.findings import Finding, Severity, derive_exit_code, find_preventing
from tidegate.checks.judge_start import judge_start
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.coordinator.journal_state import JournalState
from tidegate.errors import REPLACED_TOPIC
from tidegate.ids import MAIN_CLUSTER, TopicPartition
from tidegate.kafka.facts import TopicFacts
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan

SEEN = SeenTopic("", TopicFacts("id", 1))
NO_CHANGES: Mapping[str, SeenTopic] = {}


def judged(
    loaded: LoadedPipeline, topics: Mapping[str, SeenTopic] = NO_CHANGES, journal: JournalState | None = None
) -> list[Finding]:
    offsets = {TopicPartition("in", 0): (3, 8)}
    facts = ClusterFacts({"in": SEEN, "out": SEEN, **topics}, offsets=offsets, cluster_id="cluster-1")
    return list(judge_start(loaded, build_plan(loaded), {MAIN_CLUSTER: facts}, journal))


@pytest.mark.parametrize(
    ("seen", "words", "code"),
    [
        (SeenTopic("UnknownTopicOrPartition", None), "does not exist", 2),
        (SeenTopic("", TopicFacts("id", 2), leaderless=(1,)), "no leader for partition 1", 0),
        (SeenTopic("LeaderNotAvailable", None), "the broker answers LeaderNotAvailable", 1),
    ],
)
def test_what_the_broker_says_of_a_topic_is_judged(seen: SeenTopic, words: str, code: int) -> None:
    (found,) = judged(pipeline(), {"in": seen})
    assert words in found.value
    assert found.place == ("sources", "orders", "topic")
    assert derive_exit_code(find_preventing([found], strict=False)) == code


def test_a_deleted_topic_of_the_pipeline_is_not_to_be_created_again() -> None:
    """A start refuses a new topic of that name: it has another id."""
    identity = SimpleNamespace(clusters=on_cluster({"in": "id", "out": "id"}))
    journal = cast("Any", SimpleNamespace(newest_checkpoint=None, identity=identity))
    missing = SeenTopic("UnknownTopicOrPartition", None)
    (found,) = judged(pipeline(), {"out": missing}, journal)
    assert (found.value, found.remedy) == ("the topic `out` was deleted since the checkpoint", REPLACED_TOPIC)
    identity.clusters = on_cluster({"in": "id", "out": "id"}, "another-cluster")
    (found,) = judged(pipeline(), {"out": missing}, journal)
    assert found.remedy == "create it, or correct the name"


def test_a_topic_that_this_user_may_not_see_is_a_matter_of_rights() -> None:
    loaded = pipeline()
    assert judged(loaded, {"in": SeenTopic("TopicAuthorizationFailed", None)}) == []


def test_X17_the_start_of_a_source_whose_positions_are_fixed_says_nothing_any_more() -> None:
    loaded = pipeline(start="{0: 9}")
    assert len(judged(loaded)) == 1
    entry = SimpleNamespace(positions=(positions("orders", {"in": {0: 5}}),))
    assert judged(loaded, NO_CHANGES, cast("Any", SimpleNamespace(newest_checkpoint=entry, identity=None))) == []


def test_more_slots_than_partitions_are_warned_of() -> None:
    loaded = parse_pipeline(f"{pipeline().source}parallelism: 2\n", "p.yaml", {})
    (warning,) = judged(loaded)
    assert (warning.severity, warning.place) == (Severity.WARNING, ("parallelism",))


def test_an_offset_must_exist() -> None:
    (start,) = judged(pipeline(start="{0: 9}"))
    assert start.value == "offset 9 is not in partition 0 of `in`"
    assert start.remedy == "use 3 to 8"


class Rights:
    """Of a user who may neither write transactions nor positions."""

    def may_transact(self, _identity: object) -> bool:
        return False

    def may_mirror(self, _group: str, _topic: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("operations", "missing"),
    [
        (frozenset(), set()),
        ({"DESCRIBE", "READ"}, {("out", "Write")}),
        ({"DESCRIBE", "WRITE"}, {("in", "Read"), ("out", "Read")}),
    ],
)
def test_rights_on_topics_are_those_that_their_descriptions_list(
    operations: set[str], missing: set[tuple[str, str]]
) -> None:
    """An exactly-once sink reads its topic as well. A broker that lists none says nothing."""
    loaded = pipeline()
    plan, seen = build_plan(loaded), SeenTopic("", TopicFacts("id", 1), frozenset(operations))
    found = _look_rights_up(
        cast("Any", Rights()), derive_needs(loaded, plan, MAIN_CLUSTER), plan, {"in": seen, "out": seen}
    )
    lacking = {(need.name, need.operation) for need, had in found if not had}
    assert lacking == missing | {("check.", "Write"), ("check", "Read")}


def test_no_right_is_had_on_a_topic_that_this_user_may_not_see() -> None:
    loaded = pipeline()
    plan, hidden = build_plan(loaded), SeenTopic("TopicAuthorizationFailed", None)
    found = _look_rights_up(
        cast("Any", Rights()), derive_needs(loaded, plan, MAIN_CLUSTER), plan, {"in": hidden, "out": SEEN}
    )
    assert ("in", "Read") in {(need.name, need.operation) for need, had in found if not had}


@pytest.mark.parametrize(
    ("unfit", "words"),
    [
        ({"cleanup.policy": "compact"}, "is compacted"),
        ({"max.message.bytes": "10000"}, "accepts records of at most 10000 bytes"),
        ({}, ""),
        ({"cleanup.policy": "delete", "max.message.bytes": "1048588"}, ""),
    ],
)
def test_a_topic_that_cannot_take_every_dead_letter_is_refused(unfit: dict[str, str], words: str) -> None:
    """The retry topic takes copies of them."""
    text = pipeline().source.replace("start: earliest", "bad_records: dead-letter")
    loaded = parse_pipeline(text + "dead_letters: {topic: dead, retry_topic: again}\n", "p.yaml", {})
    for topic, key in (("dead", "topic"), ("again", "retry_topic")):
        topics = {"dead": SEEN, "again": SEEN, topic: msgspec.structs.replace(SEEN, settings=unfit)}
        found = judged(loaded, topics)
        assert [(one.place, words in one.value) for one in found] == ([(("dead_letters", key), True)] if words else [])


def test_the_retry_topic_has_to_exist_and_is_read_by_the_pipeline_and_written_by_replays() -> None:
    text = pipeline().source.replace("start: earliest", "bad_records: dead-letter")
    loaded = parse_pipeline(text + "dead_letters: {topic: dead, retry_topic: again}\n", "p.yaml", {})
    found = judged(loaded, {"dead": SEEN, "again": SeenTopic("UnknownTopicOrPartition", None)})
    assert [one.place for one in found] == [("dead_letters", "retry_topic")]
    needs = derive_needs(loaded, build_plan(loaded), MAIN_CLUSTER)
    assert {(one.operation, one.severity) for one in needs if one.name == "again"} == {
        ("Read", Severity.PROBLEM),
        ("Write", Severity.WARNING),
        ("DescribeConfigs", Severity.WARNING),
    }


def test_a_start_by_offsets_is_compared_with_what_read_committed_readers_see() -> None:
    """A start is refused beyond it, too."""

    def list_partition_offsets(wanted: dict[Any, int], isolation: int = 0) -> dict[Any, Any]:
        return {part: SimpleNamespace(offset={-2: 3, -1: (9, 7)[isolation]}[spec]) for part, spec in wanted.items()}

    client = cast("Any", SimpleNamespace(list_partition_offsets=list_partition_offsets))
    seen = {"in": SEEN}
    sources = build_plan(pipeline(start="{0: 8}")).operators(SourceOperator)
    offsets = _read_offsets(client, sources, seen)
    assert offsets == {TopicPartition("in", 0): (3, 7)}


def test_every_topic_that_a_sink_may_choose_is_judged() -> None:
    text = pipeline().source.replace("topic: out", "topic: {expression: \"'a'\", allow: [a, b]}")
    loaded = parse_pipeline(text, "p.yaml", {})
    (found,) = judged(loaded, {"a": SEEN, "b": SeenTopic("UnknownTopicOrPartition", None)})
    assert (found.place, found.value) == (("sinks", "out", "topic", "allow", 1), "the topic `b` does not exist")
