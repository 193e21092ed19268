"""Clusters of a pipeline file: which properties each client gets, and which clusters are used."""

from __future__ import annotations

from tidegate.config.clusters import derive_clusters
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.ids import ClusterName
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan, check_pipeline

FILE = """
version: 1
name: shop
kafka: {bootstrap.servers: "eu:9092", security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: shop,
        sasl.password: of-the-main-one}
clusters:
  us: {bootstrap.servers: "us:9092", fetch.min.bytes: 7, linger.ms: 3}
  asia: {bootstrap.servers: "asia:9092", security.protocol: SSL, ssl.key.password: of-asia}
  idle: {bootstrap.servers: "idle:9092"}
checkpoints: {directory: file:///var/lib/tidegate}
sources:
  orders: {topic: orders, schema: {id: bigint}, bad_records: dead-letter}
  more: {topic: more, cluster: us, schema: {id: bigint}, kafka: {fetch.min.bytes: 9}}
sinks:
  out: {from: [orders, more], topic: orders, cluster: us}
  copy: {from: orders, topic: copy}
dead_letters: {topic: bad, cluster: asia}
"""


def read(text: str = FILE) -> LoadedPipeline:
    return parse_pipeline(text, "shop.yaml", {})


def test_only_clusters_in_use_are_connected_to_and_the_main_one_comes_first() -> None:
    found = derive_clusters(read().settings)
    assert list(found) == ["kafka", "us", "asia"]
    assert found[ClusterName("kafka")]["sasl.password"] == "of-the-main-one"
    assert found[ClusterName("asia")]["ssl.key.password"] == "of-asia"


def test_a_cluster_inherits_nothing_from_another_one() -> None:
    found = derive_clusters(read().settings)
    assert found[ClusterName("us")] == {"bootstrap.servers": "us:9092", "fetch.min.bytes": "7", "linger.ms": "3"}


def test_sources_sinks_and_dead_letters_have_the_properties_of_their_cluster() -> None:
    plan = build_plan(read())
    sources = {str(one.name): one for one in plan.operators(SourceOperator)}
    sinks = {str(one.name): one for one in plan.operators(SinkOperator)}
    assert {name: one.cluster for name, one in (sources | sinks).items()} == {
        "orders": "kafka",
        "more": "us",
        "out": "us",
        "copy": "kafka",
        DEAD_LETTERS: "asia",
    }
    assert sources["more"].kafka == {"bootstrap.servers": "us:9092", "fetch.min.bytes": "9"}
    assert sinks["out"].kafka == {"bootstrap.servers": "us:9092", "linger.ms": "3"}
    assert sinks["copy"].kafka["sasl.password"] == "of-the-main-one"
    assert sinks[DEAD_LETTERS].kafka["bootstrap.servers"] == "asia:9092"


def test_records_are_read_back_from_the_clusters_of_their_sources() -> None:
    (reader,) = (one for one in build_plan(read()).nodes if one.operator.name == "dead_letters.bytes")
    servers = {one.topics: one.kafka["bootstrap.servers"] for one in reader.operator.origins_read}  # type: ignore[attr-defined]  # it is a ReadBackOperator
    assert servers == {("orders",): "eu:9092", ("more",): "us:9092"}


def test_secrets_of_every_cluster_are_masked() -> None:
    assert read().secrets("of-asia and of-the-main-one") == "*** and ***"


def test_a_topic_of_the_same_name_in_another_cluster_is_no_loop() -> None:
    text = FILE.replace("topic: copy", "topic: more")
    assert not [one for one in _warnings(text) if "feeds itself" in one]
    back = text.replace("topic: more}", "topic: more, cluster: us}")
    assert [one for one in _warnings(back) if "feeds itself" in one]


def _warnings(text: str) -> list[str]:
    return [str(one) for one in check_pipeline(read(text)).warnings]
