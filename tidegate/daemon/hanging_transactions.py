"""Finds hanging transactions, has their missing markers written, and reports those that remain.

Kafka can lose a marker if it crashes after a commit. Readers of committed records are then blocked forever although
everything was committed. The search runs in every recovery, after every outage, and periodically. The decisions are in
`sinks/hanging_transactions.py`, the writes in `sinks/hanging_resolver.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from tidegate.daemon.services import Services
from tidegate.ids import ClusterName
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.facts import OpenBrokerTransaction
from tidegate.plan.clusters import derive_sink_topics
from tidegate.plan.graph import Plan
from tidegate.sinks.hanging_transactions import (
    RIPE_S,
    HangingTransaction,
    HangingVerdict,
    ResolveReport,
    UnresolvedTransaction,
    report_resolved,
    tell_left,
)

logger = logging.getLogger(__name__)

LOOK_S: Final = 15.0
"""Longest interval between two searches."""
UNSEEN_S: Final = 1200.0
"""A transaction with a hidden id can legitimately be open for 15 minutes (`transaction.max.timeout.ms`)."""
LOADING_S: Final = 10.0
"""How long after a crash a coordinator that is still loading may not list all of its ids: search again soon."""
RESTLESS_S: Final = 60.0
"""How long leaders and coordinators may keep moving before it is reported that nothing could be resolved."""


class HangingChecks:
    """The searches in all clusters with sinks, at the same time."""

    def __init__(self, plan: Plan, services: Services) -> None:
        self._checks = [HangingCheck(plan, services, name) for name in derive_sink_topics(plan)]

    async def look(self) -> None:
        """Searches every cluster once."""
        await asyncio.gather(*(one.look() for one in self._checks))

    async def check_twice(self) -> None:
        """Searches every cluster once, and again where that may write a marker."""
        await asyncio.gather(*(one.check_twice() for one in self._checks))


class HangingCheck:
    """The search of one daemon in one cluster; it remembers what it has reported."""

    def __init__(self, plan: Plan, services: Services, cluster: ClusterName) -> None:
        self._pipeline = plan.pipeline
        self._topics = derive_sink_topics(plan)[cluster]
        self._services = services
        self._cluster = cluster
        self._edge = services.kafka.clusters[cluster]
        self._since: dict[OpenBrokerTransaction, float] = {}
        self._told: frozenset[tuple[OpenBrokerTransaction, HangingVerdict]] = frozenset()
        self._checked_at: float | None = None
        self._interruptions = 0
        self._trouble = ""
        self._unsettled = False

    async def check_if_due(self) -> None:
        """Searches after an outage, while a transaction waits for another search, or when the interval is over."""
        now, interruptions = self._services.clock.monotonic(), self._edge.interruptions
        quiet = interruptions == self._interruptions and not self._unsettled
        if quiet and self._checked_at is not None and now - self._checked_at < LOOK_S:
            return
        if await self.look() is not None:
            self._interruptions = interruptions

    async def look(self) -> ResolveReport | None:
        """Searches once. Returns None and warns once if that was impossible: nothing has to wait for it."""
        try:
            report = await self._edge.resolve(self._pipeline, self._topics)
        except (BrokerUnavailable, KafkaRefused) as error:
            if error.message != self._trouble and not self._edge.unavailable:
                logger.warning("the outputs were not searched for hanging transactions: %s", error.message)
            self._trouble = error.message
            return None
        self._trouble = ""
        self._take(report)
        return report

    async def check_twice(self) -> None:
        """Searches once, and again if that may write a marker.

        A pipeline that ends soon may not reach the next periodic search.
        """
        report = await self.look()
        if report is not None and any(each.one.decided for each in report.waiting):
            await asyncio.sleep(RIPE_S)
            await self.look()

    def _take(self, report: ResolveReport) -> None:
        services = self._services
        now = self._checked_at = services.clock.monotonic()
        self._since = {one: self._since.get(one, now) for one in report.opened}
        for text in report_resolved(report.resolved):
            logger.warning("%s", text)
        for resolved in report.resolved:
            services.metrics.marker_written(self._cluster, resolved.verdict.value)
        restless = [each for each in report.waiting if self._age(each.one, now) > RESTLESS_S]
        self._report([each for each in (*report.left, *restless) if self._is_sure(each.one, now)])
        young = any(self._age(each.one, now) < LOADING_S for each in (*report.left, *report.waiting))
        self._unsettled = young or any(each.one.decided for each in report.waiting)

    def _age(self, one: HangingTransaction, now: float) -> float:
        return now - self._since[one.opened]

    def _is_sure(self, one: HangingTransaction, now: float) -> bool:
        return one.verdict is not HangingVerdict.UNSEEN or self._age(one, now) > UNSEEN_S

    def _report(self, left: Sequence[UnresolvedTransaction]) -> None:
        texts = {(each.one.opened, each.one.verdict): tell_left(each, self._edge.bootstrap) for each in left}
        for one, text in texts.items():
            if one not in self._told:
                logger.error("%s", text)
        if self._told and not texts:
            logger.info("no hanging transaction blocks readers of committed records any more")
        self._told = frozenset(texts)
        own = sum(each.one.own for each in left)
        self._services.metrics.hanging_transactions(self._cluster, own, len(left) - own)
        self._services.metrics.degraded(self._cluster, next(iter(texts.values()), ""))
