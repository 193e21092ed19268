"""A pipeline of two clusters: each is surveyed by itself, and every finding names its cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.checks.deployments import BROKER, DEFAULTS, SOUND, VERSIONS
from tidegate.checks import survey
from tidegate.checks.facts import ClusterFacts, Comparison, derive_needs
from tidegate.checks.findings import Finding, Severity, derive_problems
from tidegate.checks.judge_start import judge_error
from tidegate.cli.doctor import render_findings
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.coordinator.journal_state import EMPTY
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused
from tidegate.plan.build import build_plan

US = ClusterName("us")
TEXT = """\
version: 1
name: check
kafka: {bootstrap.servers: "eu:9092"}
clusters:
  us:
    bootstrap.servers: "us:9093"
    security.protocol: ssl
    ssl.ca.location: /etc/us.pem
checkpoints: {directory: file:///tmp/check}
sources:
  orders: {topic: orders, schema: {id: bigint}}
sinks:
  copy: {from: orders, topic: orders, cluster: us}
"""


def load(text: str = TEXT) -> LoadedPipeline:
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    return loaded


def facts(name: ClusterName, **changes: Any) -> ClusterFacts:
    sound = ClusterFacts(
        {"orders": SOUND},
        brokers=3,
        versions=VERSIONS,
        broker_settings=BROKER,
        name=name,
        cluster_id=f"id of {name}",
        is_written=name == US,
    )
    return msgspec.structs.replace(sound, **changes)


def surveyed(
    monkeypatch: pytest.MonkeyPatch, answers: Mapping[ClusterName, ClusterFacts | Exception], loaded: LoadedPipeline
) -> list[Finding]:
    """Findings of a survey of clusters that answer so."""

    def read(_loaded: object, _plan: object, cluster: ClusterName, _timeout_s: float) -> ClusterFacts:
        answer = answers[cluster]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def nothing(*_: object) -> list[Finding]:
        return []

    async def refuse(_plan: object) -> Comparison:
        assert all(isinstance(one, ClusterFacts) for one in answers.values())
        return Comparison()

    async def empty() -> object:
        return EMPTY

    async def probe() -> None:
        return

    monkeypatch.setattr(survey, "read_cluster", read)
    monkeypatch.setattr(survey, "check_registrations", nothing)
    monkeypatch.setattr(survey, "find_runtime_problems", lambda _: [])
    target = cast("Any", SimpleNamespace(try_storage=probe, read_journal=empty, compare=refuse))
    return asyncio.run(survey.survey(loaded, build_plan(loaded), target, 1.0))


def test_every_finding_about_a_cluster_names_it_and_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load()
    brief = msgspec.structs.replace(SOUND, settings={**DEFAULTS, "retention.ms": "60000"})
    found = surveyed(monkeypatch, {MAIN_CLUSTER: facts(MAIN_CLUSTER), US: facts(US, topics={"orders": brief})}, loaded)
    (short,) = [one for one in found if one.check == "retention" and one.severity is Severity.PROBLEM]
    assert (short.subject, short.cluster, short.place) == ("orders", "us", ("sinks", "copy", "topic"))
    assert "--bootstrap-server us:9093 --command-config ADMIN.properties" in short.remedy
    versions = [one.place for one in found if one.check == "broker-version"]
    assert versions == [("kafka", "bootstrap.servers"), ("clusters", "us", "bootstrap.servers")]
    text = render_findings(loaded, found, "text")
    assert "orders on us: records stay for 1m" in text
    assert "  retention (orders on us): records stay" in text
    assert "`orders on us`: records stay" in str(derive_problems(loaded, [short])[0])
    document = json.loads(render_findings(loaded, [short], "json"))
    assert (document["findings"][0]["subject"], document["findings"][0]["cluster"]) == ("orders", "us")


def test_a_cluster_that_does_not_answer_hides_nothing_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load()
    away = BrokerUnavailable("no answer", text="no broker answers at us:9093", property="bootstrap.servers")
    found = surveyed(monkeypatch, {MAIN_CLUSTER: facts(MAIN_CLUSTER, topics={"orders": SOUND}), US: away}, loaded)
    (one,) = [one for one in found if one.severity is Severity.PROBLEM]
    assert (one.place, one.exit_code) == (("clusters", "us", "bootstrap.servers"), 1)
    assert {one.check for one in found if one.cluster == MAIN_CLUSTER} >= {"broker-version", "retention", "copies"}


def test_a_certificate_that_is_not_trusted_is_told_at_the_property_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = LoginRefused("cannot connect", text="us:9093: its certificate is not trusted", property="ssl.ca.location")
    found = surveyed(monkeypatch, {MAIN_CLUSTER: facts(MAIN_CLUSTER), US: refused}, load())
    (one,) = [one for one in found if one.severity is Severity.PROBLEM]
    assert (one.place, one.exit_code) == (("clusters", "us", "ssl.ca.location"), 2)


def test_two_names_for_one_cluster_are_refused_without_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load()
    same = {name: facts(name, cluster_id="one") for name in (MAIN_CLUSTER, US)}
    (one,) = [one for one in surveyed(monkeypatch, same, loaded) if one.prevents_start]
    assert (one.place, one.value) == (("clusters", "us"), "this is the same cluster as `kafka` (id one)")
    assert one.remedy.startswith("name it once")


def test_a_topic_that_is_in_the_other_cluster_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = msgspec.structs.replace(SOUND, error="UnknownTopicOrPartition", facts=None, settings={})
    answers = {MAIN_CLUSTER: facts(MAIN_CLUSTER), US: facts(US, topics={"orders": missing})}
    (one,) = [one for one in surveyed(monkeypatch, answers, load()) if one.prevents_start]
    assert (one.place, one.value) == (("sinks", "copy", "topic"), "the topic `orders` does not exist on us")


def test_limits_of_transactions_are_those_of_clusters_with_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = {**BROKER, "transaction.max.timeout.ms": 60_000}
    loaded = load()
    read = {MAIN_CLUSTER: facts(MAIN_CLUSTER, broker_settings=limited), US: facts(US)}
    found = surveyed(monkeypatch, read, loaded)
    assert [one.cluster for one in found if one.check == "transaction-timeout"] == ["us"]
    assert not [one for one in found if one.prevents_start]
    written = {MAIN_CLUSTER: facts(MAIN_CLUSTER), US: facts(US, broker_settings=limited)}
    (one,) = [one for one in surveyed(monkeypatch, written, loaded) if one.prevents_start]
    assert (one.check, one.cluster) == ("transaction-timeout", "us")


def test_records_of_an_output_are_compared_with_inputs_of_the_other_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    large = msgspec.structs.replace(SOUND, settings={**DEFAULTS, "max.message.bytes": "8000000"})
    answers = {MAIN_CLUSTER: facts(MAIN_CLUSTER, topics={"orders": large}), US: facts(US)}
    found = surveyed(monkeypatch, answers, load())
    (one,) = [one for one in found if one.check == "record-size" and one.severity is Severity.WARNING]
    assert (one.subject, one.cluster, one.expected) == ("orders", "us", "8000000")


def test_rights_are_needed_where_sources_or_sinks_are() -> None:
    loaded = load()
    plan = build_plan(loaded)
    read, written = (
        {(one.resource, one.name, one.operation) for one in derive_needs(loaded, plan, name)}
        for name in (MAIN_CLUSTER, US)
    )
    assert read == {
        ("topic", "orders", "Read"),
        ("topic", "orders", "DescribeConfigs"),
        ("group", "check", "Read"),
        ("cluster", "", "Describe"),
    }
    assert written == {
        ("topic", "orders", "Write"),
        ("topic", "orders", "Read"),
        ("topic", "orders", "DescribeConfigs"),
        ("transactional-id", "check.", "Write"),
        ("cluster", "", "DescribeConfigs"),
        ("cluster", "", "Describe"),
        ("cluster", "", "ClusterAction"),
        ("topic", "__transaction_state", "Describe"),
    }


def test_a_missing_right_names_the_user_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load()
    (need,) = [
        one
        for one in derive_needs(loaded, build_plan(loaded), US)
        if (one.resource, one.operation) == ("topic", "Write")
    ]
    found = surveyed(monkeypatch, {MAIN_CLUSTER: facts(MAIN_CLUSTER), US: facts(US, rights=((need, False),))}, loaded)
    (one,) = [one for one in found if one.check == "permissions" and one.severity is Severity.PROBLEM]
    assert one.value == "the user of `clusters.us:` lacks Write for writing"
    assert one.remedy.startswith("kafka-acls.sh --bootstrap-server us:9093 ")


def test_an_error_about_a_cluster_is_placed_at_its_address_and_one_about_a_sink_there() -> None:
    refused = RestoreRefused("the checkpoint was taken on another cluster", cluster="us")
    (one,) = judge_error(load(), refused)
    assert (one.place, one.exit_code) == (("clusters", "us", "bootstrap.servers"), 4)
    (one,) = judge_error(load(), RestoreRefused("checkpoint 7 lists transactions of sink copy", operator="copy"))
    assert one.place == ("sinks", "copy"), "an error about a sink"


def test_a_file_without_clusters_names_none() -> None:
    start, end = TEXT.index("clusters:"), TEXT.index("checkpoints:")
    loaded = load((TEXT[:start] + TEXT[end:]).replace("topic: orders, cluster: us", "topic: copy"))
    finding = Finding("copies", Severity.WARNING, "2", subject="orders", cluster="kafka")
    assert "orders: 2" in render_findings(loaded, [finding], "text")
