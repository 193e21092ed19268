"""Checks the topics while an attempt runs: assigns new partitions to slots, detects deleted and replaced topics.

A deleted or replaced topic ends the pipeline. The decisions are in `coordinator/discovery.py`. A failed check is logged
and repeated. Readers would not notice: to them, a deleted topic is one without new records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidegate.coordinator.discovery import (
    MISSING_CHECKS_MAX,
    Assigned,
    TopicFound,
    decide_additions,
    decide_missing,
    decide_same_cluster,
    decide_same_topics,
    derive_assigned,
)
from tidegate.coordinator.recovery import RestorePlan
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.services import NEW_TOPICS_S, Services
from tidegate.errors import AttemptFailed, TidegateError
from tidegate.ids import ClusterName, SlotIndex
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.clusters import derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.task.messages import AddPartitions

logger = logging.getLogger(__name__)


class Discovery:
    """The topic checks of one attempt. `send` reaches one slot, `fail` ends the attempt."""

    def __init__(
        self,
        plan: Plan,
        restore: RestorePlan,
        services: Services,
        send: Callable[[SlotIndex, AddPartitions], None],
        fail: Callable[[TidegateError], None],
        look_s: float,
        new_topics_s: float = NEW_TOPICS_S,
    ) -> None:
        self._attempt = restore.attempt
        self._services = services
        self._send = send
        self._fail = fail
        self._look_s = look_s
        sources = [source for source in plan.operators(SourceOperator) if source.until == "never"]
        self._patterns = [source for source in sources if source.pattern]
        self._new_topics_s = new_topics_s
        self._until_listed_s = new_topics_s
        """Seconds until all topics are listed again."""
        self._topics = {
            source.name: source.topics
            or tuple(sorted({part.topic for slot in restore.slots for part in slot.partitions.get(source.name, ())}))
            for source in sources
        }
        self._assigned: Assigned = {
            source.name: [slot.partitions.get(source.name, ()) for slot in restore.slots] for source in sources
        }
        self._clusters = derive_source_clusters(plan)
        self._missing: dict[ClusterName, dict[str, int]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the checks, once all slots run."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        """Stops the checks: the attempt ends."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            try:
                await self.look()
                await self.discover_topics()
            except TidegateError as error:
                if not error.retriable or isinstance(error, TopicFound):
                    self._fail(error)
                    return
                if not self._services.kafka.unavailable:  # the daemon reports outages separately
                    logger.warning("the topics were not checked for new partitions: %s", error.message)
            except Exception as error:
                logger.exception("internal error")
                self._fail(AttemptFailed(f"the topics cannot be checked: {type(error).__name__}: {error}"))
                return

    async def discover_topics(self) -> None:
        """Searches for new topics of a pattern at a longer interval.

        Raises TopicFound, BrokerUnavailable, KafkaRefused.
        """
        self._until_listed_s -= self._look_s
        if not self._patterns or self._until_listed_s > 0:
            return
        self._until_listed_s = self._new_topics_s
        await self._services.kafka.each(self._discover_in, {source.cluster for source in self._patterns})

    async def _discover_in(self, cluster: ClusterName, edge: KafkaEdge) -> None:
        listed = await edge.all_topics()
        for source in self._patterns:
            if source.cluster != cluster:
                continue
            new = sorted(topic for topic in listed if source.matches(topic) and topic not in self._topics[source.name])
            if new:
                raise TopicFound(
                    f"source {source.name}: new topics match {source.pattern}: {', '.join(new)}; the next attempt "
                    "reads them from their first records",
                    source=source.name,
                    topics=new,
                )

    async def look(self) -> None:
        """Checks the topics of all clusters once. Raises TopicReplaced, TopicGone, BrokerUnavailable, KafkaRefused."""
        await self._services.kafka.each(self._look_in)

    async def _look_in(self, cluster: ClusterName, edge: KafkaEdge) -> None:
        takeover = self._services.journal.state.takeover
        assert takeover is not None, "an attempt runs after its own takeover"
        before = takeover.identity.clusters[cluster]
        ids = before.topic_ids
        decide_same_cluster(before.id, await edge.cluster_id(), edge.place)
        facts = await edge.topic_facts(sorted(ids))
        decide_same_topics(ids, {name: found.topic_id for name, found in facts.items()}, edge.suffix)
        missing = self._missing[cluster] = decide_missing(ids, facts, self._missing.get(cluster, {}), edge.suffix)
        for topic, checks in missing.items():
            logger.warning(
                "topic %s%s was not found (check %d of %d; then the pipeline stops)",
                topic,
                edge.suffix,
                checks,
                MISSING_CHECKS_MAX,
            )
        counts = {
            source: {name: facts[name].partitions for name in names if name in facts}
            for source, names in self._topics.items()
            if self._clusters[source] == cluster
        }
        additions = decide_additions(self._assigned, counts)
        self._assigned = derive_assigned(self._assigned, additions)
        for one in additions:
            names = ", ".join(map(str, one.partitions))
            logger.info("source %s: slot %d reads new partitions from their start: %s", one.source, one.slot, names)
            self._send(one.slot, AddPartitions(self._attempt, one.source, one.partitions))
