"""A sink that keeps partitions: its topic has as many as the one that is copied, whatever the column is called."""

from __future__ import annotations

import pytest

from tests.plan.test_build import HEAD
from tidegate.checks.facts import SeenTopic
from tidegate.checks.judge_start import judge_partitions
from tidegate.config.load import parse_pipeline
from tidegate.ids import MAIN_CLUSTER
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan

COUNTS = {"a": 4, "b": 2, "small": 3, "large": 5}
SINK = "{from: in, topic: small, format: raw, partition: partition}"
SOURCE = "{topic: a, format: raw}"
ROUTED = "{from: in, format: raw, partition: partition, topic: {expression: EXPRESSION, allow: [small, a, b]}}"
FOUND = "the topic `small` has 3 partitions, and `a`, whose partitions it keeps, 4"


def judge(source: str = SOURCE, sink: str = SINK, steps: str = "[]") -> list[str]:
    text = f"{HEAD}sources: {{in: {source}}}\nsteps: {steps}\nsinks: {{out: {sink}}}\n"
    loaded = parse_pipeline(text, "p.yaml", {})
    assert [str(one) for one in loaded.problems] == []
    topics = {name: SeenTopic("", TopicFacts("id", count)) for name, count in COUNTS.items()}
    found = list(judge_partitions(build_plan(loaded), {MAIN_CLUSTER: topics}))
    assert {one.place for one in found} <= {("sinks", "out", "partition")}
    return [one.value for one in found]


def test_a_topic_with_fewer_partitions_than_the_one_that_is_copied_is_refused() -> None:
    assert judge() == [FOUND]
    assert judge(sink=SINK.replace("small", "large")) == []
    assert judge(SOURCE.replace("a,", "b,")) == []
    assert judge(sink=SINK.replace(", partition: partition", "")) == [], "the key decides"


@pytest.mark.parametrize("number", ["n", "CAST(n AS bigint)"])
def test_the_column_may_come_by_steps_and_under_another_name(number: str) -> None:
    source = "{topic: a, schema: {id: bigint}, metadata: {partition: n}}"
    steps = f"[{{name: some, from: in, where: id > 1}}, {{name: kept, from: some, select: {{id: id, p: {number}}}}}]"
    sink = "{from: kept, topic: small, partition: p}"
    assert judge(source, sink, steps) == [FOUND]
    assert judge(source, sink, steps.replace("p: n", "p: n % 3").replace(" AS bigint)", " AS bigint) % 3")) == []


def test_topics_by_name_are_compared_with_the_topic_of_the_same_name() -> None:
    source = "{topics: [a, b], format: raw}"
    assert judge(source, ROUTED.replace("EXPRESSION", "topic")) == []
    assert judge(source, ROUTED.replace("EXPRESSION", "\"concat('x', topic)\"")) == [], "which is not known"
    assert judge("{pattern: '[ab]', format: raw}", ROUTED.replace("EXPRESSION", "topic")) == []


def test_every_source_of_a_sink_is_compared() -> None:
    source = f"{SOURCE}, other: {{topic: large, format: raw}}"
    found = judge(source, SINK.replace("from: in", "from: [in, other]"))
    assert found == [FOUND, FOUND.replace("`a`", "`large`").replace(" 4", " 5")]
