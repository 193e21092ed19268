"""What a message names when a row fails, where rows do not carry their topic."""

from __future__ import annotations

from tidegate.config.load import parse_pipeline
from tidegate.ids import OperatorName
from tidegate.plan.build import build_plan
from tidegate.plan.clusters import derive_origins

PIPELINE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  shops: {pattern: "orders-.*", schema: {id: bigint}}
  returns: {topics: [returns, repairs], schema: {id: bigint}}
sinks:
  out: {from: [shops, returns], topic: out}
"""


def test_a_sink_has_the_topics_of_all_its_sources_and_those_of_a_pattern_in_words() -> None:
    origins = derive_origins(build_plan(parse_pipeline(PIPELINE, "p.yaml", {})))
    assert tuple(map(str, origins[OperatorName("out")])) == ("a topic like orders-.*", "repairs", "returns")
