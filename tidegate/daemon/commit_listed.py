"""Commits every transaction that the restored checkpoint lists before an attempt starts.

A lost transaction is one that the broker aborted, usually because it timed out while no daemon was running. It is
salvaged: its records are read back and prepared in a new transaction, which is recorded in the journal and only then
committed. After a crash at any point the next recovery repeats or completes the salvage.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from tidegate.clock import Clock
from tidegate.config.fields.counts import render_count
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestorePlan, decide_repeated
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.recovery_stages import StateVerified, TransactionsResolved
from tidegate.daemon.services import Services
from tidegate.ids import CheckpointId
from tidegate.kafka.errors import BrokerUnavailable, TransactionLost, TransactionToSalvage
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder, Settlement, decide_order

logger = logging.getLogger(__name__)

T = TypeVar("T")

COMMIT_PAUSE_S: Final = 0.5
COMMIT_DEADLINE_S: Final = 120.0

Search = Callable[[], Awaitable[object]]
"""Searches the outputs for lost markers and writes those that are missing."""


async def commit_listed(
    plan: Plan, services: Services, whole: StateVerified, transaction_timeout_ms: int, search: Search
) -> TransactionsResolved:
    """Commits what a crash may have left undone and records its end; returns what to continue with.

    Raises TransactionLost when a salvage is refused, TransactionGone, TransactionUndecidable, and what storage and
    brokers raise.
    """
    journal, restore = services.journal, whole.restore
    permit = await services.in_journal_thread(lambda: journal.recovery_permit(restore))
    if permit is None:
        return TransactionsResolved(restore, whole.facts)
    ended = permit.checkpoint
    try:
        await _commit(services, restore, permit, search)
    except TransactionLost:
        ended = await _salvage(plan, services, restore, permit, transaction_timeout_ms, search)
    await services.in_journal_thread(lambda: journal.append_ended(ended, services.clock.now_ms()))
    return TransactionsResolved(decide_repeated(restore, journal.state), whole.facts)


async def _commit(services: Services, restore: RestorePlan, permit: CommitPermit, search: Search) -> None:
    started = services.clock.monotonic()
    outcomes = await _until(
        services.clock,
        lambda: services.kafka.commit(permit),
        lambda found: CommitOutcome.STILL_OPEN not in found,
        permit,
        search,
    )
    now = [one for one, told in zip(permit.committables, outcomes, strict=True) if told is CommitOutcome.ENDED_NOW]
    services.metrics.transactions_committed(now, services.clock.monotonic() - started)
    services.metrics.committed(permit.committables, since=restore.attempt)
    logger.info("checkpoint %d: %s committed", permit.checkpoint, render_count(len(outcomes), "transaction"))


async def _salvage(
    plan: Plan,
    services: Services,
    restore: RestorePlan,
    permit: CommitPermit,
    transaction_timeout_ms: int,
    search: Search,
) -> CheckpointId:
    """Salvages the lost transactions of a permit. Returns the checkpoint whose transactions have then ended.

    Those that are not lost are committed first, because their end must be known. Newer ones of the same sink are not:
    they would become visible before the older one. They are aborted and salvaged in their turn.
    """
    started = services.clock.monotonic()
    settled = await _settle(services, permit, search, hold=True)
    order = SalvageOrder(
        plan.pipeline,
        restore.journal,
        restore.attempt,
        restore.first_checkpoint,
        permit.checkpoint,
        transaction_timeout_ms,
        settled.losing,
    )
    if settled.held:
        await services.kafka.abort_held(order, settled)
        settled = await _settle(services, permit, search, hold=False)
        order = msgspec.structs.replace(order, lost=settled.lost)
    decide_order(settled.lost, settled.committed)
    services.metrics.committed(settled.committed, since=restore.attempt)
    for lost in settled.lost:
        logger.warning("salvaging: %s", lost.explanation, extra={"checkpoint": permit.checkpoint})
    committables = await services.kafka.salvage(order, plan.operators(SinkOperator))
    if not committables:
        return permit.checkpoint  # nothing is left of any of them, which the user has accepted
    journal = services.journal
    appended = await services.in_journal_thread(
        lambda: journal.append_salvaged(restore, committables, services.clock.now_ms())
    )
    try:
        await _commit(services, restore, appended.permit, search)
    except TransactionLost as error:
        raise TransactionToSalvage(f"lost again while it was being salvaged: {error.message}") from error
    elapsed_s = services.clock.monotonic() - started
    services.metrics.transactions_ended(TransactionResult.SALVAGED, len(settled.lost))
    _tell(settled.lost, appended.permit, elapsed_s)
    return appended.permit.checkpoint


async def _settle(services: Services, permit: CommitPermit, search: Search, *, hold: bool) -> Settlement:
    return await _until(
        services.clock, lambda: services.kafka.settle(permit, hold=hold), lambda found: found.definite, permit, search
    )


async def _until(
    clock: Clock, ask: Callable[[], Awaitable[T]], definite: Callable[[T], bool], permit: CommitPermit, search: Search
) -> T:
    """Asks until the answer is definite. Raises BrokerUnavailable at the deadline.

    The deadline starts with the first answer, because that may require reading long logs. A transaction that can no
    longer be committed and has no marker yet waits for its coordinator, which writes the marker, or for a search, which
    finds a lost one.
    """
    deadline = math.inf
    while True:
        found = await ask()
        if definite(found):
            return found
        if clock.monotonic() > deadline:
            raise BrokerUnavailable(
                f"the transactions of checkpoint {permit.checkpoint} could not be ended within "
                f"{COMMIT_DEADLINE_S:.0f} s. Nothing is lost: check the transaction coordinators of the brokers. "
                "Only if compaction has removed the records and markers of an output, restore a savepoint into a "
                "new `checkpoints.directory` (--restore PATH --repeat-output)"
            )
        if deadline == math.inf:
            deadline = clock.monotonic() + COMMIT_DEADLINE_S
            logger.warning(
                "checkpoint %d: the outcome of some transactions is not known yet: waiting for the brokers",
                permit.checkpoint,
            )
        await search()
        await asyncio.sleep(COMMIT_PAUSE_S)


def _tell(lost: tuple[LostTransaction, ...], permit: CommitPermit, elapsed_s: float) -> None:
    for one in permit.committables:
        logger.warning(
            "checkpoint %d: salvaged %d lost transactions: %s wrote %d records again, in %s, and is committed (%.1f s)",
            permit.checkpoint,
            sum(old.committable.sink == one.sink for old in lost),
            one.transactional_id,
            one.records,
            ", ".join(f"{part.partition} offsets {part.start_offset}..{part.end_offset - 1}" for part in one.written),
            elapsed_s,
            extra={"checkpoint": permit.checkpoint},
        )
