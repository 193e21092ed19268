"""As `planted.py`: one cluster is taken for the other one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tidegate.committable import Committable
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import Offsets, merge_positions
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.ownership import Ownership
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.simulation.clusters import ADDRESSES, FAR
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import SalvageOrder
from tidegate.task.snapshot import PendingSnapshot

Patch = pytest.MonkeyPatch


def commit_sent_to_the_wrong_cluster(patch: Patch) -> None:
    """All commits go to the first cluster, which knows nothing of the transactions of the other one."""

    async def commit(self: KafkaClusters, permit: CommitPermit) -> list[CommitOutcome]:
        return await next(iter(self.clusters.values())).commit(permit)

    patch.setattr(KafkaClusters, "commit", commit)


def transactions_told_apart_by_their_producers_alone(patch: Patch) -> None:
    """Each cluster counts its producer ids from one: of two sinks' transactions in two clusters one is forgotten."""
    real = PendingSnapshot.prepared

    def prepared(
        self: PendingSnapshot, sink: OperatorName, committables: tuple[Committable, ...], prepare_ms: float
    ) -> None:
        known = self._committables
        producers = {one.producer for one in committables}
        for key in [key for key, one in known.items() if one.producer in producers]:
            del known[key]
        real(self, sink, committables, prepare_ms)

    patch.setattr(PendingSnapshot, "prepared", prepared)


def topics_of_both_clusters_taken_for_one(patch: Patch) -> None:
    """Of a topic that both have, the facts of the last one are believed: a new partition is missed, or is none."""
    real = KafkaEdge.topic_facts
    known: dict[str, Any] = {}

    async def topic_facts(self: KafkaEdge, topics: Collection[str]) -> Any:
        found = await real(self, topics)
        known.update(found if _is_far(self) else {})
        return {
            name: msgspec.structs.replace(facts, partitions=known.get(name, facts).partitions)
            for name, facts in found.items()
        }

    patch.setattr(KafkaEdge, "topic_facts", topic_facts)


def position_of_one_cluster_restored_on_the_other(patch: Patch) -> None:
    """Positions of all sources are kept by topic and partition."""

    def merge(positions: tuple[SourcePositions, ...]) -> dict[OperatorName, tuple[Offsets, Offsets]]:
        merged = merge_positions(positions)
        newest = {place: offset for nexts, _ in merged.values() for place, offset in nexts.items()}
        return {source: ({place: newest[place] for place in nexts}, ends) for source, (nexts, ends) in merged.items()}

    patch.setattr("tidegate.coordinator.recovery.merge_positions", merge)


def offsets_mirrored_to_the_wrong_cluster(patch: Patch) -> None:
    """Positions of a source appear in the group of the other cluster."""
    real = Ownership.record

    async def record(self: Ownership, cluster: ClusterName, positions: Mapping[TopicPartition, int]) -> None:
        names = [*self._services.kafka.clusters]
        await real(self, names[(names.index(cluster) + 1) % len(names)], positions)

    patch.setattr(Ownership, "record", record)


def salvage_reads_from_the_wrong_cluster(patch: Patch) -> None:
    """Lost transactions are looked for in the first cluster."""

    async def salvage(
        self: KafkaClusters, order: SalvageOrder, sinks: Sequence[SinkOperator]
    ) -> tuple[Committable, ...]:
        return await next(iter(self.clusters.values())).salvage(order, {sink.name: sink.kafka for sink in sinks})

    patch.setattr(KafkaClusters, "salvage", salvage)


def only_the_main_cluster_is_compared(patch: Patch) -> None:
    """The pipeline goes on after another one was replaced."""

    def nothing_of(identity: Identity) -> Identity:
        clusters = {name: one for name, one in identity.clusters.items() if name == MAIN_CLUSTER}
        return msgspec.structs.replace(identity, clusters=clusters)

    for name in ("find_replaced", "find_recreated"):
        patch.setattr(f"tidegate.coordinator.recovery.{name}", _of_main(name, nothing_of))
    patch.setattr("tidegate.coordinator.recovery.find_moved", lambda *_: None)
    patch.setattr("tidegate.coordinator.recovery.find_unreachable", lambda *_: None)


def _is_far(edge: KafkaEdge) -> bool:
    return edge.bootstrap == ADDRESSES[FAR]


def _of_main(name: str, nothing_of: Any) -> Any:
    from tidegate.coordinator import clusters

    real = getattr(clusters, name)
    return lambda old, now: real(nothing_of(old), nothing_of(now))
