"""What a start compares with the journal: the pipeline and the cluster as they are now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tidegate.config.load import parse_pipeline
from tidegate.config.sample import SAMPLE
from tidegate.coordinator.recovery import RestoreFacts
from tidegate.daemon.looking import read_facts
from tidegate.ids import OperatorName
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan


def facts_of(text: str) -> RestoreFacts:
    async def cluster_facts(topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 3) for topic in topics}

    services = cast("Any", SimpleNamespace(kafka=SimpleNamespace(cluster_facts=cluster_facts)))
    return asyncio.run(read_facts(build_plan(parse_pipeline(text, "p.yaml", {})), services))


def test_X16_the_meaning_of_every_state_is_part_of_the_identity() -> None:
    before = facts_of(SAMPLE).identity
    step = OperatorName("per_customer")
    assert set(before.meanings) == {step}
    after = facts_of(SAMPLE.replace("amount >= 100", "amount >= 200")).identity
    assert after.meanings[step] != before.meanings[step]
    assert (after.cluster_id, after.topic_ids) == (before.cluster_id, before.topic_ids)
