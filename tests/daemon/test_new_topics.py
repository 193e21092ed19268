"""Where topics begin that a pattern finds: at the first start as `start` says, later at their first record."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME
from tests.support.clusters import alone
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.recovery import RestoreFacts, decide_restore, merge_offsets
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.recovery_stages import OffsetsAssigned, RestorePointAppended
from tidegate.daemon.start_offsets import fix_start_offsets
from tidegate.ids import OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan

PIPELINE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {pattern: "orders-.*", start: latest, schema: {id: bigint}}
sinks:
  out: {from: orders, topic: out}
"""
WHERE = {"earliest": 3, "latest": 50}


def test_a_topic_that_is_found_later_is_read_from_its_first_record() -> None:
    plan = build_plan(parse_pipeline(PIPELINE, "p.yaml", {}))
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)

    async def read_beginnings(
        wanted: Sequence[tuple[SourceOperator, UnassignedSource]], _now: dt.datetime
    ) -> list[SourcePositions]:
        return [
            SourcePositions(source.name, tuple((part, WHERE[str(source.start)]) for part in one.partitions))
            for source, one in wanted
        ]

    async def in_journal_thread(call: Any) -> Any:
        return call()

    services = cast(
        "Any",
        SimpleNamespace(
            kafka=alone(SimpleNamespace(read_beginnings=read_beginnings)),
            journal=journal,
            in_journal_thread=in_journal_thread,
            clock=SimpleNamespace(now_ms=lambda: 7),
        ),
    )

    def start(*topics: str) -> OffsetsAssigned:
        facts = RestoreFacts(IDENTITY, {OperatorName("orders"): dict.fromkeys(topics, 1)}, frozenset())
        journal.take_over(IDENTITY, 1)
        decided = RestorePointAppended(decide_restore(journal.state, facts), facts)
        return asyncio.run(fix_start_offsets(plan, services, decided))

    begun = start("orders-a")
    assert merge_offsets(begun.checkpoint.positions) == {TopicPartition("orders-a", 0): 50}
    later = start("orders-a", "orders-b")
    assert merge_offsets(later.checkpoint.positions) == {
        TopicPartition("orders-a", 0): 50,
        TopicPartition("orders-b", 0): 3,
    }
    assert later.checkpoint.starts == ((OperatorName("orders"), "latest"),)
