"""The Kafka clusters of a pipeline, each reached by a `KafkaEdge` of its own.

A call that concerns several clusters is made to all of them at the same time. One that fails keeps no other from being
done: its error is raised when all have ended.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from tidegate.committable import Committable
from tidegate.config.clusters import derive_clusters
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.ledger import Key
from tidegate.coordinator.ownership import Known, merge_known
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.kafka_edge import CONNECT_TIMEOUT_S, KafkaEdge
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, CheckpointId, ClusterName, TopicPartition, TransactionalId
from tidegate.kafka.facts import TopicFacts
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.sinks.committer import FIRST_ATTEMPT
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import SalvageOrder, Settlement

T = TypeVar("T")


class KafkaClusters:
    """All clusters that a pipeline uses, by name. Committables have current names (`coordinator/clusters.py`)."""

    def __init__(self, clusters: Mapping[ClusterName, KafkaEdge]) -> None:
        self.clusters = clusters

    @property
    def unavailable(self) -> bool:
        """True while no broker of some cluster responds and that was reported."""
        return any(edge.unavailable for edge in self.clusters.values())

    @property
    def answering(self) -> KafkaClusters:
        """The clusters whose brokers respond."""
        return KafkaClusters({name: edge for name, edge in self.clusters.items() if not edge.unavailable})

    async def wait_answering(self) -> None:
        """Waits until brokers of all clusters respond."""
        while self.unavailable:
            await asyncio.gather(*(edge.wait_answering() for edge in self.clusters.values()))

    @property
    def explains_failures(self) -> bool:
        """True if an outage of some cluster explains why an attempt fails."""
        return any(edge.explains_failures for edge in self.clusters.values())

    def accept_gone(self, checkpoint: CheckpointId | None) -> None:
        """Sets the checkpoint of `--accept-gone`, as in `Committer`."""
        for edge in self.clusters.values():
            edge.accept_gone = checkpoint

    async def each(
        self,
        call: Callable[[ClusterName, KafkaEdge], Awaitable[T]],
        among: Collection[ClusterName] | None = None,
    ) -> dict[ClusterName, T]:
        """Makes a call to all clusters, or to those in `among`, at the same time.

        When all have ended it raises the error of one, if there is any: of several, one that is no TidegateError, else
        one that another attempt would meet again.
        """
        chosen = [name for name in self.clusters if among is None or name in among]
        if len(chosen) == 1:
            return {chosen[0]: await call(chosen[0], self.clusters[chosen[0]])}
        answers = await asyncio.gather(*(call(name, self.clusters[name]) for name in chosen), return_exceptions=True)
        found: dict[ClusterName, T] = {}
        errors: list[BaseException] = []
        for name, answer in zip(chosen, answers, strict=True):
            if isinstance(answer, BaseException):
                errors.append(answer)
            else:
                found[name] = answer
        if errors:
            raise min(errors, key=_rank)
        return found

    async def open(self) -> None:
        """Connects to all clusters. Raises BrokerUnavailable."""
        await self.each(lambda _, edge: edge.open())

    async def close(self) -> None:
        """Closes all clients and waits for calls in progress."""
        await self.each(lambda _, edge: edge.close())

    # -- facts -----------------------------------------------------------------------------------------------------

    async def cluster_facts(
        self, topics: Mapping[ClusterName, Collection[str]]
    ) -> dict[ClusterName, tuple[str, dict[str, TopicFacts]]]:
        """Returns the id of every cluster, and the facts of these topics in it. Raises TopicMissing."""
        return await self.each(lambda name, edge: edge.cluster_facts(topics.get(name, ())))

    async def all_topics(self, among: Collection[ClusterName]) -> dict[ClusterName, dict[str, TopicFacts]]:
        """Returns the facts of every topic in these clusters that the user may see."""
        return await self.each(lambda _, edge: edge.all_topics(), among)

    async def read_known(self, pipeline: str) -> Known:
        """Reads what all clusters together know about the pipeline."""
        return merge_known((await self.each(lambda _, edge: edge.read_known(pipeline))).values())

    async def first_offsets(
        self, partitions: Mapping[ClusterName, Collection[TopicPartition]]
    ) -> dict[ClusterName, dict[TopicPartition, int]]:
        """Returns the first offsets of source partitions. Raises BrokerUnavailable, KafkaRefused."""
        return await self.each(lambda name, edge: edge.first_offsets(partitions[name]), partitions)

    async def read_beginnings(
        self, wanted: Sequence[tuple[SourceOperator, UnassignedSource]], now: dt.datetime
    ) -> list[SourcePositions]:
        """Looks up starting offsets in the clusters of the sources, in the order of `wanted`."""

        async def read(name: ClusterName, edge: KafkaEdge) -> list[SourcePositions]:
            return await edge.read_beginnings([one for one in wanted if one[0].cluster == name], now)

        found = await self.each(read, {source.cluster for source, _ in wanted})
        left = {name: iter(positions) for name, positions in found.items()}
        return [next(left[source.cluster]) for source, _ in wanted]

    # -- transactions ----------------------------------------------------------------------------------------------

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        """Commits the transactions of a permit with `Committer.commit`, each in its cluster."""
        parts = dict(permit.parts)
        found = await self.each(lambda name, edge: edge.commit(parts[name]), parts)
        return _in_order(permit, found)

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        """Settles the transactions of a permit with `Committer.settle`, each in its cluster."""
        parts = dict(permit.parts)
        found = await self.each(lambda name, edge: edge.settle(parts[name], hold=hold), parts)
        return Settlement(
            tuple(_in_order(permit, {name: one.outcomes for name, one in found.items()})),
            tuple(one for part in found.values() for one in part.committed),
            tuple(one for part in found.values() for one in part.lost),
            tuple(one for part in found.values() for one in part.held),
        )

    async def find_transaction_statuses(self, committables: Sequence[Committable]) -> dict[Key, TransactionStatus]:
        """Returns the status of each transaction. Raises BrokerUnavailable."""
        parts = _by_cluster(committables)
        found = await self.each(lambda name, edge: edge.find_transaction_statuses(parts[name]), parts)
        return {key: status for part in found.values() for key, status in part.items()}

    async def abort(self, committables: Sequence[Committable]) -> None:
        """Aborts transactions with `abort_all`."""
        parts = _by_cluster(committables)
        await self.each(lambda name, edge: edge.abort(parts[name]), parts)

    async def abort_held(self, order: SalvageOrder, settlement: Settlement) -> None:
        """Aborts held transactions with `Committer.abort_held`, if every record of `order` is in the log.

        Raises TransactionLost.
        """

        async def abort(name: ClusterName, edge: KafkaEdge) -> None:
            held = tuple(one for one in settlement.held if one.cluster == name)
            await edge.abort_held(_order_in(order, name), msgspec.structs.replace(settlement, held=held))

        await self.each(abort, _losing(order))

    async def salvage(self, order: SalvageOrder, sinks: Sequence[SinkOperator]) -> tuple[Committable, ...]:
        """Salvages lost transactions with `Salvager.prepare`, each in its cluster.

        A sink that has moved to another cluster lends no properties to the one that it wrote to.
        """

        async def salvage(name: ClusterName, edge: KafkaEdge) -> tuple[Committable, ...]:
            own = {sink.name: sink.kafka for sink in sinks if sink.cluster == name}
            return await edge.salvage(_order_in(order, name), own)

        found = await self.each(salvage, _losing(order))
        return tuple(one for part in found.values() for one in part)

    async def fence_leftovers(
        self,
        pipeline: str,
        keep: Collection[TransactionalId],
        current: Attempt,
        journal: str,
        others: Collection[str] | None = None,
        since: Attempt = FIRST_ATTEMPT,
    ) -> list[TransactionalId]:
        """Fences leftover transactions in all clusters with `Committer.fence_leftovers`."""
        found = await self.each(lambda _, edge: edge.fence_leftovers(pipeline, keep, current, journal, others, since))
        return [one for part in found.values() for one in part]


def open_clusters(settings: PipelineSettings, connect_timeout_s: float = CONNECT_TIMEOUT_S) -> KafkaClusters:
    """Returns the clusters that a pipeline file uses, not connected yet."""
    return KafkaClusters(
        {
            name: KafkaEdge(kafka, connect_timeout_s=connect_timeout_s, name=name if settings.clusters else "")
            for name, kafka in derive_clusters(settings).items()
        }
    )


def _rank(error: BaseException) -> int:
    if not isinstance(error, TidegateError):
        return 0
    return 2 if error.retriable else 1


def _in_order(permit: CommitPermit, found: Mapping[ClusterName, Sequence[CommitOutcome]]) -> list[CommitOutcome]:
    """Returns the outcomes of all clusters in the permit's order."""
    left = {name: iter(outcomes) for name, outcomes in found.items()}
    return [next(left[one.cluster]) for one in permit.committables]


def _by_cluster(committables: Sequence[Committable]) -> dict[ClusterName, list[Committable]]:
    parts: dict[ClusterName, list[Committable]] = {}
    for one in committables:
        parts.setdefault(one.cluster, []).append(one)
    return parts


def _losing(order: SalvageOrder) -> set[ClusterName]:
    return {one.committable.cluster for one in order.lost}


def _order_in(order: SalvageOrder, name: ClusterName) -> SalvageOrder:
    """Returns the part of an order that concerns one cluster."""
    lost = tuple(one for one in order.lost if one.committable.cluster == name)
    return msgspec.structs.replace(order, lost=lost)
