"""Looks for transactions that nobody will end, lets the missing markers be written, and says what is left.

Kafka can lose a marker when it crashes behind a commit; then readers of committed records stand still for ever although
everything was committed. Looked for in every recovery, behind every outage, and now and then. Decided in
`sinks/hanging.py`, done in `sinks/mender.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from tidegate.daemon.decisions import Services
from tidegate.plan.graph import Plan, SinkOperator
from tidegate.sinks.errors import BrokerUnavailable, SinkRefused
from tidegate.sinks.facts import OpenTransaction
from tidegate.sinks.hanging import Hanging, MendReport, Verdict, tell_left, tell_mended

logger = logging.getLogger(__name__)

LOOK_S: Final = 15.0
"""Longest time between two looks."""
UNSEEN_S: Final = 1200.0
"""A transaction whose id this user may not see can be open for 15 minutes (`transaction.max.timeout.ms`) in order."""
LOADING_S: Final = 10.0
"""So long behind a crash a coordinator may not tell all its ids, because it is loading them: look again soon."""


class HangingCheck:
    """For one daemon; remembers what it has told."""

    def __init__(self, plan: Plan, services: Services) -> None:
        self._pipeline = plan.pipeline
        self._topics = sorted({sink.topic for sink in plan.operators(SinkOperator)})
        self._services = services
        self._since: dict[OpenTransaction, float] = {}
        self._told: frozenset[Hanging] = frozenset()
        self._looked_at: float | None = None
        self._interruptions = 0
        self._trouble = ""
        self._unsettled = False

    async def look_if_due(self) -> None:
        """Behind an outage at once, else now and then."""
        now, interruptions = self._services.clock.monotonic(), self._services.kafka.interruptions
        quiet = interruptions == self._interruptions and not self._unsettled
        if quiet and self._looked_at is not None and now - self._looked_at < LOOK_S:
            return
        if await self.look() is not None:
            self._interruptions = interruptions

    async def look(self) -> MendReport | None:
        """Now; None (and a warning, once) when it was not possible: nothing has to wait for that."""
        services = self._services
        try:
            report = await services.kafka.mend(self._pipeline, self._topics, self._since.keys())
        except (BrokerUnavailable, SinkRefused) as error:
            if error.message != self._trouble and not services.kafka.away:
                logger.warning("the outputs were not searched for hanging transactions: %s", error.message)
            self._trouble = error.message
            return None
        self._trouble = ""
        now = self._looked_at = services.clock.monotonic()
        self._since = {one: self._since.get(one, now) for one in report.opened}
        for text in tell_mended(report.mended):
            logger.warning("%s", text)
        for mended in report.mended:
            services.metrics.marker_written(mended.verdict.value)
        self._tell([(one, why) for one, why in report.left if self._is_sure(one, now)])
        self._unsettled = any(now - self._since[one.opened] < LOADING_S for one, _ in report.left)
        return report

    def _is_sure(self, one: Hanging, now: float) -> bool:
        return one.verdict is not Verdict.UNSEEN or now - self._since[one.opened] > UNSEEN_S

    def _tell(self, left: Sequence[tuple[Hanging, str]]) -> None:
        texts = {one: tell_left(one, why, self._services.kafka.bootstrap) for one, why in left}
        for one, text in texts.items():
            if one not in self._told:
                logger.error("%s", text)
        if self._told and not texts:
            logger.info("no transaction stands in front of readers of committed records any more")
        self._told = frozenset(texts)
        own = sum(one.own for one in texts)
        self._services.metrics.hanging_transactions(own, len(texts) - own)
        self._services.metrics.degraded(next(iter(texts.values()), ""))
