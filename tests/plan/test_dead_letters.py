"""Dead letters in the plan: who feeds them, over which edges, what is carried for them, and what is refused."""

from __future__ import annotations

from tidegate.config.load import parse_pipeline
from tidegate.formats.dead_letters import DEAD_LETTER_COLUMNS
from tidegate.formats.registry import FORMATS
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, READ_BACK, DeadLetterOperator, ReadBackOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.spec import DEAD
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints

TEXT = """
version: 1
name: p
kafka: {bootstrap.servers: broker:9092}
checkpoints: {directory: /checkpoints}
sources:
  orders: {topic: orders, schema: {id: bigint, n: int}, bad_records: dead-letter}
  others: {topic: others, schema: {id: bigint, n: int}, bad_records: OTHERS}
steps:
  - {name: big, from: orders, where: n > 1}
  - {name: totals, from: FROM, key: id, aggregate: {n: sum(n)}}
sinks:
  out: {from: totals, topic: out, key: id}
  copy: {from: big, topic: copy}
dead_letters: {topic: dead}
"""


def check(*, inputs: str = "big", others: str = "dead-letter", text: str = TEXT) -> CheckedPipeline:
    loaded = parse_pipeline(text.replace("FROM", inputs).replace("OTHERS", others), "p.yaml", {})
    assert not loaded.problems, loaded.problems
    return check_pipeline(loaded)


def plan_of(checked: CheckedPipeline) -> Plan:
    assert checked.plan is not None, checked.problems
    return checked.plan


def feeding(plan: Plan) -> dict[str, list[int]]:
    """By operator the edges of its letters."""
    return {node.operator.name: list(node.sides[DEAD].edges) for node in plan.nodes if DEAD in node.sides}


def test_every_operator_feeds_them_over_one_edge_for_each_vertex_that_stays_in_the_slot() -> None:
    plan = plan_of(check())
    vertex = plan.vertices[-1]
    assert [node.operator.name for node in vertex.nodes] == [READ_BACK, DEAD_LETTERS]
    edges = plan.inputs_of(vertex.id)
    assert [(edge.upstream, edge.keys, edge.columns) for edge in edges] == [
        ("orders", (), DEAD_LETTER_COLUMNS),
        ("totals", (), DEAD_LETTER_COLUMNS),
    ]
    first, second = (edge.index for edge in edges)
    found = feeding(plan)
    assert set(found) >= {"orders", "big", "copy", "totals", "out"}
    assert {name: edges for name, edges in found.items() if name in ("orders", "big", "copy")} == {
        "orders": [first],
        "big": [first],
        "copy": [first],
    }
    assert found["totals"] == found["out"] == [second]


def test_records_of_a_source_that_says_skip_have_no_letters() -> None:
    plan = plan_of(check(inputs="[big, others]", others="skip"))
    assert "others" not in feeding(plan)
    assert "totals" in feeding(plan), "where they meet others, nothing is dropped without a letter"
    strict = plan_of(check(inputs="[big, others]", others="fail"))
    assert "totals" not in feeding(strict)


def test_a_topic_is_carried_with_the_rows_only_where_there_are_several() -> None:
    assert not any(source.names_topic for source in plan_of(check()).operators(SourceOperator))
    several = plan_of(check(inputs="[big, others]"))
    assert all(source.names_topic for source in several.operators(SourceOperator))
    (reader,) = several.operators(ReadBackOperator)
    assert [one.topics for one in reader.origins_read] == [("orders",), ("others",)]
    pattern = plan_of(check(inputs="[big, others]", others="skip", text=TEXT.replace("topic: others", "pattern: x-.*")))
    assert all(source.names_topic for source in pattern.operators(SourceOperator))
    (reader,) = pattern.operators(ReadBackOperator)
    assert [(one.topics, one.pattern) for one in reader.origins_read] == [(("orders",), ""), ((), "x-.*")]


US = "clusters: {us: {bootstrap.servers: us:9092}}\ncheckpoints:"


def test_a_cluster_is_carried_with_the_rows_only_where_sources_read_from_several() -> None:
    far = TEXT.replace("checkpoints:", US).replace("topic: others,", "topic: orders, cluster: us,")
    plan = plan_of(check(inputs="[big, others]", text=far))
    assert all(source.names_topic and source.names_cluster for source in plan.operators(SourceOperator))
    (reader,) = plan.operators(ReadBackOperator)
    assert [(one.cluster, one.topics) for one in reader.origins_read] == [("kafka", ("orders",)), ("us", ("orders",))]
    near = TEXT.replace("checkpoints:", US).replace("topic: dead}", "topic: dead, cluster: us}")
    plan = plan_of(check(inputs="[big, others]", text=near))
    assert not any(source.names_cluster for source in plan.operators(SourceOperator))


def test_the_limit_is_a_thousand_a_minute_or_what_the_file_says() -> None:
    def limit(text: str) -> int | None:
        (sink,) = plan_of(check(text=TEXT.replace("{topic: dead}", text))).operators(DeadLetterOperator)
        return sink.per_minute_max

    assert limit("{topic: dead}") == 1000
    assert limit("{topic: dead, max_per_minute: 5}") == 5
    assert limit("{topic: dead, max_per_minute: unlimited}") is None


def test_states_mean_the_same_with_and_without_them() -> None:
    without = TEXT.replace("dead_letters: {topic: dead}", "").replace("dead-letter", "skip")
    assert derive_fingerprints(plan_of(check())) == derive_fingerprints(plan_of(check(text=without, others="skip")))


def test_what_letters_must_not_have_travels_next_to_the_operators_and_only_where_there_are_letters() -> None:
    login = "security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: opensesame"
    secret = TEXT.replace("broker:9092}", f"broker:9092, {login}}}")
    assert plan_of(check(text=secret)).masked == ("opensesame",)
    without = secret.replace("dead_letters: {topic: dead}", "").replace("dead-letter", "skip")
    assert plan_of(check(text=without, others="skip")).masked == ()


def test_a_topic_that_nobody_uses_is_a_warning() -> None:
    checked = check(text=TEXT.replace("bad_records: dead-letter", "bad_records: skip"), others="skip")
    assert any("nothing is written" in one.message for one in checked.warnings)
    assert not plan_of(checked).operators(DeadLetterOperator)


def test_their_sink_has_a_format_that_there_is() -> None:
    (sink,) = plan_of(check()).operators(DeadLetterOperator)
    assert FORMATS[sink.format].schema_kind is None, "no schema is looked for"
