"""The Kafka of `loopback.py`: records by partition, and transactions by producer with their outcome."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from tests.task.fakes import FakeSink, Row, Trace
from tests.task.restarts import PartitionedSource
from tidegate.coordinator.ownership import Known
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import CheckpointId, TopicPartition
from tidegate.kafka.facts import TopicFacts
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.hanging_transactions import ResolveReport
from tidegate.sinks.outcome import CommitOutcome

BATCH_ROWS: Final = 3


class LoopKafka:
    """The part of `KafkaEdge` that the daemon uses, and the topics that the slots read and write."""

    unavailable = False
    explains_failures = False
    accept_gone: CheckpointId | None = None
    interruptions = 0
    place = "loopback"
    suffix = ""

    def __init__(self, plan: Plan, history: Mapping[int, Sequence[Row]]) -> None:
        self.history = {partition: list(rows) for partition, rows in history.items()}
        self.output: list[Row] = []
        """The committed records, in the order in which they became visible."""
        self.sinks: list[FakeSink] = []
        """The sinks of all attempts."""
        self.trace = Trace()
        self.begin = dict.fromkeys(self.history, 0)
        """The start offsets of the first start."""
        self.removed: dict[int, int] = {}
        """The first offsets of partitions whose oldest records retention has removed."""
        self._committed: set[int] = set()
        sources = [topic for source in plan.operators(SourceOperator) for topic in source.topics]
        self._topics = {topic: len(self.history) for topic in sources}
        self._topics.update({topic: 1 for sink in plan.operators(SinkOperator) for topic in sink.topics})

    def open_source(
        self, spec: SourceOperator, slot: int, partitions: Sequence[int], offsets: dict[int, int]
    ) -> PartitionedSource:
        """Opens the source of a slot on its partitions."""
        rows = {partition: self.history[partition] for partition in partitions}
        return PartitionedSource(spec.name, slot, rows, offsets, BATCH_ROWS)

    async def cluster_facts(self, topics: Collection[str]) -> tuple[str, dict[str, TopicFacts]]:
        return await self.cluster_id(), await self.topic_facts(topics)

    async def cluster_id(self) -> str:
        return "cluster"

    async def topic_facts(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(f"id-{topic}", self._topics[topic]) for topic in topics}

    async def all_topics(self) -> dict[str, TopicFacts]:
        return await self.topic_facts(self._topics)

    async def read_known(self, _pipeline: str) -> Known:
        return Known()

    async def read_beginnings(
        self, wanted: Sequence[tuple[SourceOperator, UnassignedSource]], _now: dt.datetime
    ) -> list[SourcePositions]:
        return [
            SourcePositions(source.name, tuple((place, self.begin[place.partition]) for place in one.partitions))
            for source, one in wanted
        ]

    async def first_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.removed.get(place.partition, 0) for place in partitions}

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        outcomes = []
        for one in permit.committables:
            new = one.producer_id not in self._committed
            if new:
                self._committed.add(one.producer_id)
                self.output += self._rows_of(one.producer_id)
            outcomes.append(CommitOutcome.ENDED_NOW if new else CommitOutcome.COMMITTED)
        return outcomes

    async def fence_leftovers(self, *_what: object, **_more: object) -> list[str]:
        return []

    async def mirrored_texts(self, _group: str) -> dict[TopicPartition, str]:
        return {}

    async def mirror_offsets(self, *_what: object) -> None:
        return

    async def resolve(self, *_what: object) -> ResolveReport:
        return ResolveReport(frozenset())

    async def stable_offsets(self, _partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def _rows_of(self, producer: int) -> list[Row]:
        (rows,) = [sink.transactions[producer] for sink in self.sinks if producer in sink.transactions]
        return rows
