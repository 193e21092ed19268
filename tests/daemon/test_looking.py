"""What a start compares with the journal: the pipeline and the cluster as they are now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, completed, positions
from tidegate.config.load import parse_pipeline
from tidegate.config.sample import SAMPLE
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.daemon.looking import read_facts
from tidegate.ids import OperatorName
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan


def facts_of(text: str, state: JournalState = EMPTY, *listed: str) -> RestoreFacts:
    """`listed`: all topics that the brokers list; by name they know any."""

    async def cluster_facts(topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 3) for topic in topics}

    async def all_topics() -> dict[str, TopicFacts]:
        return {topic: TopicFacts(f"id-{topic}", 3) for topic in listed}

    services = cast("Any", SimpleNamespace(kafka=SimpleNamespace(cluster_facts=cluster_facts, all_topics=all_topics)))
    return asyncio.run(read_facts(build_plan(parse_pipeline(text, "p.yaml", {})), services, state))


def test_X16_the_meaning_of_every_state_is_part_of_the_identity() -> None:
    before = facts_of(SAMPLE).identity
    step = OperatorName("per_customer")
    assert set(before.meanings) == {step}
    after = facts_of(SAMPLE.replace("amount >= 100", "amount >= 200")).identity
    assert after.meanings[step] != before.meanings[step]
    assert (after.cluster_id, after.topic_ids) == (before.cluster_id, before.topic_ids)


PATTERN = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {pattern: "orders-.*|__orders-x", schema: {id: bigint}}
sinks:
  out: {from: orders, topic: out}
"""


def test_a_pattern_stands_for_the_topics_whose_whole_names_match() -> None:
    facts = facts_of(PATTERN, EMPTY, "orders-b", "orders-a", "old-orders-a", "orders", "__orders-x")
    assert facts.sources == {OperatorName("orders"): {"orders-a": 3, "orders-b": 3}}
    assert facts.identity.topic_ids == {"orders-a": "id-orders-a", "orders-b": "id-orders-b", "out": "id-out"}


def test_a_topic_with_positions_is_asked_for_although_it_is_not_listed() -> None:
    """A broker that has just started may not list it; one that is gone has to be missed."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(positions("orders", {"orders-c": {0: 5}}),)))
    facts = facts_of(PATTERN, journal.state, "orders-a")
    assert facts.sources == {OperatorName("orders"): {"orders-a": 3, "orders-c": 3}}


def test_no_topic_may_match_yet() -> None:
    assert facts_of(PATTERN, EMPTY, "other").sources == {OperatorName("orders"): {}}
