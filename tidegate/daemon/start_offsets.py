"""Fixes the starting offsets of sources before an attempt reads anything, and skips input that retention has removed.

Starting offsets are looked up once and appended to the journal (`coordinator/start_offsets.py`,
`sources/start_offsets.py`). With `on_lost_input: continue`, a loss is also looked up, appended and reported
(`coordinator/start_offsets.py`). A slot that meets removed input while it reads ends its attempt (`sources/reader.py`),
and the next recovery handles it here.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore, merge_positions
from tidegate.coordinator.start_offsets import (
    UnassignedSource,
    derive_begun,
    derive_lost,
    derive_moved_starts,
    derive_positions,
    derive_skipped,
    derive_unplaced,
)
from tidegate.coordinator.types import CompletedCheckpoint, LostRange, SourcePositions
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.recovery_stages import OffsetsAssigned, RestorePointAppended
from tidegate.daemon.services import Services
from tidegate.errors import BEGIN_ANEW
from tidegate.ids import ClusterName, OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, SourceOperator
from tidegate.plan.clusters import derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.sources.start_offsets import is_ahead

logger = logging.getLogger(__name__)

SHOWN: Final = 8
EARLIEST: Final = "earliest"


async def fix_start_offsets(plan: Plan, services: Services, decided: RestorePointAppended) -> OffsetsAssigned:
    """Looks up missing positions, and missing ends of bounded sources, so that every partition has one.

    Raises SourceFailed, BrokerUnavailable, and what the journal raises.
    """
    restore, facts = decided.restore, decided.facts
    sources = {source.name: _for_new_topics(source, restore) for source in plan.operators(SourceOperator)}
    starts = {name: str(source.start) for name, source in sources.items()}
    if restore.checkpoint is not None:
        former = restore.upgrade.former
        written = {former(source.name): str(source.start) for source in plan.operators(SourceOperator)}
        _tell_moved(restore.checkpoint, written)
    _tell_ends(plan, restore)
    unplaced = derive_unplaced(restore, _bounded(plan))
    if not unplaced:
        return _placed(await skip_lost_input(plan, services, restore, facts))
    now_ms = services.clock.now_ms()
    placed = await services.kafka.read_beginnings([(sources[one.source], one) for one in unplaced], _instant(now_ms))
    begin = {one.source: starts[one.source] for one in unplaced if one.next_offsets is None}
    journal = services.journal
    begun = derive_begun(journal.state, facts.identity, placed, begin, restore.upgrade)
    await services.in_journal_thread(lambda: journal.append_restored(restore, begun, now_ms))
    fixed = journal.state.newest_checkpoint
    assert fixed is not None
    _tell_fixed(fixed, unplaced, placed, starts)
    return _placed(await skip_lost_input(plan, services, decide_restore(journal.state, facts), facts))


def find_ahead(plan: Plan, restore: RestorePlan, now_ms: int) -> list[SourceOperator]:
    """Lists sources whose end would be looked up and is still in the future: `fix_start_offsets` would refuse them."""
    asked = {one.source for one in derive_unplaced(restore, _bounded(plan))}
    now = _instant(now_ms)
    return [one for one in plan.operators(SourceOperator) if one.name in asked and is_ahead(one.until, now)]


def _bounded(plan: Plan) -> set[OperatorName]:
    return {source.name for source in plan.operators(SourceOperator) if source.until != "never"}


def _instant(now_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)


def _for_new_topics(source: SourceOperator, restore: RestorePlan) -> SourceOperator:
    """Reads topics found by a pattern after the first start from their first record; `start` does not apply."""
    begun = any(one.source == source.name for one in restore.positions)
    return msgspec.structs.replace(source, start=EARLIEST) if source.pattern and begun else source


def _placed(restore: RestorePlan) -> OffsetsAssigned:
    assert restore.checkpoint is not None, "where the sources begin is a checkpoint"
    return OffsetsAssigned(restore, restore.checkpoint)


def _tell_fixed(
    fixed: CompletedCheckpoint,
    unplaced: tuple[UnassignedSource, ...],
    placed: list[SourcePositions],
    starts: dict[OperatorName, str],
) -> None:
    for one, positions in zip(unplaced, placed, strict=True):
        offsets, why = positions.next_offsets, f"starting offsets (`start: {starts[one.source]}`)"
        if one.next_offsets is not None:
            offsets, why = positions.end_offsets, "end offsets, looked up again,"
        logger.info("source %s: %s recorded in checkpoint %d: %s", one.source, why, fixed.id, _render(offsets))


def _tell_ends(plan: Plan, restore: RestorePlan) -> None:
    """Logs that a fixed end is kept.

    No checkpoint records the `until` that it came from, so a change of it goes unnoticed.
    """
    known = merge_positions(tuple(part for slot in restore.slots for part in slot.positions))
    for source in plan.operators(SourceOperator):
        _, ends = known.get(source.name, ({}, {}))
        if source.until != "never" and ends:
            logger.info(
                "source %s: reads to the end that was determined when its bounded read began, %s; a start after "
                "that evaluates `until: %s` again",
                source.name,
                _render(sorted(ends.items())),
                source.until,
            )


def _render(offsets: Sequence[tuple[TopicPartition, int]]) -> str:
    shown = ", ".join(f"{part} {offset}" for part, offset in offsets[:SHOWN])
    return shown + (f" and {len(offsets) - SHOWN} more" if len(offsets) > SHOWN else "")


def _tell_moved(checkpoint: CompletedCheckpoint, starts: dict[OperatorName, str]) -> None:
    for source, fixed, now in derive_moved_starts(checkpoint, starts):
        logger.warning(
            "source %s: `start` is now %s, but the pipeline first started with `start: %s` and continues from its "
            "positions; to start elsewhere, use %s",
            source,
            now,
            fixed,
            BEGIN_ANEW,
        )


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
            "were read; with `on_lost_input: continue` it continues at %d, as recorded in checkpoint %d",
            one.source,
            one.partition,
            one.from_offset,
            one.to_offset,
            one.offsets,
            one.to_offset,
            fixed.id,
        )
    return decide_restore(journal.state, facts)
