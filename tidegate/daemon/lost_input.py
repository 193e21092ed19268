"""Skips input that retention has removed, for sources with `on_lost_input: continue`.

The loss is looked up before an attempt reads anything, appended to the journal, and reported. The decisions are in
`coordinator/lost_input.py`. A slot that meets removed input while it reads ends its attempt (`sources/reader.py`), and
the next recovery handles it here.
"""

from __future__ import annotations

import logging

from tidegate.coordinator.lost_input import derive_lost, derive_positions, derive_skipped
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore
from tidegate.coordinator.types import LostRange
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.services import Services
from tidegate.ids import ClusterName, TopicPartition
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, SourceOperator
from tidegate.plan.clusters import derive_source_clusters
from tidegate.plan.graph import Plan

logger = logging.getLogger(__name__)


async def find_lost_input(
    plan: Plan, kafka: KafkaClusters, restore: RestorePlan, *, continuing: bool
) -> tuple[LostRange, ...]:
    """Finds input that is already lost, either of sources that continue without it or of those that do not.

    Raises BrokerUnavailable, KafkaRefused.
    """
    sources = {
        one.name for one in plan.operators(SourceOperator) if (one.on_lost_input == ON_LOST_CONTINUE) == continuing
    }
    positions, clusters = derive_positions(restore, sources), derive_source_clusters(plan)
    partitions: dict[ClusterName, set[TopicPartition]] = {}
    for source, one in positions.items():
        partitions.setdefault(clusters[source], set()).update(part for part, _ in one.next_offsets)
    if not any(partitions.values()):
        return ()
    first = await kafka.first_offsets({name: parts for name, parts in partitions.items() if parts})
    return derive_lost(positions, {source: first.get(clusters[source], {}) for source in positions})


async def skip_lost_input(plan: Plan, services: Services, restore: RestorePlan, facts: RestoreFacts) -> RestorePlan:
    """Skips lost input and records that; returns `restore` unchanged if nothing is lost.

    Raises BrokerUnavailable, KafkaRefused, and what the journal raises.
    """
    lost = await find_lost_input(plan, services.kafka, restore, continuing=True)
    if not lost:
        return restore
    journal = services.journal
    skipped = derive_skipped(journal.state, facts.identity, lost, restore.upgrade)
    now_ms = services.clock.now_ms()
    await services.in_journal_thread(lambda: journal.append_restored(restore, skipped, now_ms))
    fixed = journal.state.newest_checkpoint
    assert fixed is not None
    for one in lost:
        services.metrics.lost_input(one.source, one.offsets)
        logger.error(
            "source %s: %s: offsets %d up to and not including %d, %d in all, were removed by retention before they "
            "were read; on_lost_input is continue: it continues at %d, which checkpoint %d says",
            one.source,
            one.partition,
            one.from_offset,
            one.to_offset,
            one.offsets,
            one.to_offset,
            fixed.id,
        )
    return decide_restore(journal.state, facts)
