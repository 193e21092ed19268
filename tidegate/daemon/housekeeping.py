"""Periodic work next to the attempts: lag, mirrored offsets, fencing, hanging transactions. It decides nothing.

Each cluster has tasks of its own. A failed task is logged and tried again at its next turn; the pipeline does not stop
for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tidegate.coordinator.recovery import merge_by_cluster
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.hanging_transactions import HangingCheck
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.services import Services
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import Attempt, ClusterName, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.plan.clusters import derive_sink_topics, derive_source_clusters
from tidegate.plan.graph import Plan

logger = logging.getLogger(__name__)

LAG_S: Final = 2.0
MIRROR_S: Final = 1.0
"""Also how long a daemon takes to notice that one with another directory has taken over."""
MIRROR_ALL_S: Final = 3600.0
JANITOR_S: Final = 15.0


class Housekeeping:
    """Periodic tasks that run while an attempt does."""

    def __init__(
        self, plan: Plan, services: Services, ownership: Ownership, superseded: Callable[[Superseded], None]
    ) -> None:
        """`superseded` is called when a daemon with another checkpoint directory has taken over the pipeline."""
        self._sources = derive_source_clusters(plan)
        self._clusters = {
            name: ClusterHousekeeping(plan, services, ownership, superseded, name) for name in services.kafka.clusters
        }

    def resume(self, attempt: Attempt) -> None:
        """Starts the tasks for a running attempt."""
        for one in self._clusters.values():
            one.resume(attempt)

    def completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Takes the positions of a checkpoint. When the pipeline ends they are mirrored at once."""
        for name, offsets in merge_by_cluster(checkpoint.positions, self._sources).items():
            self._clusters[name].completed(offsets)

    def pause(self) -> None:
        """Stops the tasks: the attempt has ended."""
        for one in self._clusters.values():
            one.pause()

    async def close(self) -> None:
        """Mirrors the last positions, makes sure that no committed transaction lacks its marker, and ends."""
        self.pause()
        await asyncio.gather(*(one.close() for one in self._clusters.values()))


class ClusterHousekeeping:
    """The periodic tasks of one cluster."""

    def __init__(
        self,
        plan: Plan,
        services: Services,
        ownership: Ownership,
        superseded: Callable[[Superseded], None],
        cluster: ClusterName,
    ) -> None:
        self._plan = plan
        self._services = services
        self._ownership = ownership
        self._superseded = superseded
        self._cluster = cluster
        self._edge = services.kafka.clusters[cluster]
        self._is_read = cluster in derive_source_clusters(plan).values()
        written = plan.exactly_once and cluster in derive_sink_topics(plan)
        self._hanging = HangingCheck(plan, services, cluster) if written else None
        self._positions: dict[TopicPartition, int] = {}
        self._mirrored: dict[TopicPartition, int] = {}
        self._mirrored_all_at = -MIRROR_ALL_S
        self._attempt = Attempt(0)
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[Callable[[], Awaitable[None]], str] = {}
        """The last failure of each task until it succeeds, so that it is reported once and not at every turn."""

    def resume(self, attempt: Attempt) -> None:
        """Starts the tasks for a running attempt."""
        self._attempt = attempt
        loop = asyncio.get_running_loop()
        jobs: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        if self._is_read:
            jobs += [(LAG_S, self._measure_lag), (MIRROR_S, self._mirror)]
        if self._plan.exactly_once:
            jobs.append((JANITOR_S, self._fence))
        if self._hanging is not None:
            jobs.append((LAG_S, self._hanging.check_if_due))
        self._tasks = [loop.create_task(self._every(period, job)) for period, job in jobs]

    def completed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Takes the positions of a checkpoint in this cluster."""
        self._positions.update(offsets)

    def pause(self) -> None:
        """Stops the tasks: the attempt has ended."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    async def close(self) -> None:
        """Mirrors the last positions, and searches for missing markers."""
        if self._positions:
            await self._quietly(self._mirror)
        if self._hanging is not None:
            await self._quietly(self._hanging.check_twice)

    async def _every(self, period_s: float, job: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(period_s)
            await self._quietly(job)

    async def _quietly(self, job: Callable[[], Awaitable[None]]) -> None:
        try:
            await job()
        except TidegateError as error:
            reported = isinstance(error, BrokerUnavailable) and self._edge.unavailable
            told = reported or self._told.get(job) == error.message
            self._told[job] = error.message
            logger.log(logging.DEBUG if told else logging.WARNING, "%s", error.message)
        except Exception as error:
            text = f"internal error: {type(error).__name__}: {error}"
            if self._told.get(job) != text:
                logger.exception("internal error in a periodic task: the pipeline continues, and the task is repeated")
            self._told[job] = text
        else:
            self._told.pop(job, None)

    async def _measure_lag(self) -> None:
        """Measures lag against the last stable offset, which is as far as a read-committed reader could have read.

        The positions are those that the slots report, because the last checkpoint is as old as the interval.
        """
        positions, reached = dict(self._positions), self._services.metrics.reached(self._cluster)
        positions |= {part: max(offset, positions.get(part, offset)) for part, offset in reached.items()}
        if not positions:
            return
        ends = await self._edge.stable_offsets(positions)
        lags = {part: (max(0, end - positions[part]), positions[part]) for part, end in ends.items()}
        self._services.metrics.lags(self._cluster, lags)

    async def _mirror(self) -> None:
        """Mirrors changed positions, and periodically all: Kafka forgets offsets that were not written for a week."""
        now = self._services.clock.monotonic()
        every = now - self._mirrored_all_at >= MIRROR_ALL_S
        positions = {
            part: offset for part, offset in self._positions.items() if every or self._mirrored.get(part) != offset
        }
        try:
            await self._ownership.record(self._cluster, positions)
        except Superseded as error:
            self._superseded(error)
            return
        self._mirrored.update(positions)
        self._mirrored_all_at = now if every else self._mirrored_all_at

    async def _fence(self) -> None:
        """Aborts transactions that a zombie opens on its old ids: they would block readers until they time out."""
        state = self._services.journal.state
        others = ("", *state.replaces)
        fenced = await self._edge.fence_leftovers(
            self._plan.pipeline, frozenset(), self._attempt, state.journal, others, running=True
        )
        self._services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
