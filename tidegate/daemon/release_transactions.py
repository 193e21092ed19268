"""What an attempt leaves in Kafka when it ends, for whatever reason: what is decided is committed, the rest aborted.

An open transaction stops every read-committed reader of its partitions, other producers' records included, until the
broker's time limit. So nothing is left to the next attempt, which may come after a backoff, or next week, or never. The
journal records when all that it lists is ended: what Kafka knows about ended transactions is gone one day (ADR 20).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from tidegate.coordinator.journal_state import JournalState
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.services import Services
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import Attempt
from tidegate.kafka.errors import BrokerUnavailable, TransactionGone, TransactionLost, TransactionUndecidable
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.outcome import CommitOutcome
from tidegate.storage.base import StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

LEAVE_S: Final = 10.0
JOURNAL_S: Final = 1.0
"""How long each call of the journal is waited for. Two of them and the rest have to fit into the end after a second
signal, too."""


async def leave(plan: Plan, services: Services, cause: BaseException | None, *, verified: bool = True) -> str:
    """Clean up after this daemon's attempts, the last of which ended with `cause`. Empty when Kafka is clean; else the
    text says, for the log, what may be left and why.

    Called when nothing of the attempt decides any more: its last append has an answer, or never will have one. Until
    the newest checkpoint is `verified` its transactions are left alone: where its state is damaged, the last whole one
    can be gone back to only while they are open.
    """
    if not plan.exactly_once or not services.journal.state.attempt:
        return ""
    decided = why = ""
    try:
        if services.kafka.away or isinstance(cause, BrokerUnavailable):
            raise BrokerUnavailable("no broker answers")
        decided = await asyncio.wait_for(_leave(plan, services, cause, verified=verified), LEAVE_S)
    except TimeoutError:
        why = f"not done within {LEAVE_S:g} s"
    except TidegateError as error:
        why = error.message
    if not (decided or why):
        services.metrics.oldest_transaction(None)  # the next attempt may begin a long time from now
        return ""
    topics = ", ".join(sorted({topic for sink in plan.operators(SinkOperator) for topic in sink.topics}))
    blocked = f"readers of committed records may be blocked in {topics}"
    if decided:
        return f"{decided}. Until the next start, which ends or repeats them, {blocked}"
    return (
        f"transactions of attempt {services.journal.state.attempt} that no checkpoint lists may still be open ({why}). "
        f"Until the next start aborts them, or Kafka does after `checkpoints.transaction_timeout`, {blocked}"
    )


def describe_undone(state: JournalState) -> str:
    """What a daemon leaves that is stopped before its first recovery, for people. Empty where nothing is listed: with
    `mode: at-least-once`, or when all is on record as ended.
    """
    newest = state.newest_checkpoint
    if newest is None or not newest.committables:
        return ""
    topics = ", ".join(sorted({written.partition.topic for one in newest.committables for written in one.written}))
    return (
        f"stopped before anything was read; transactions of checkpoint {newest.id} are decided, and may not be "
        "committed yet. Nothing is lost: the next start commits them. Until then, or until a daemon that still runs "
        f"does, readers of committed records may be blocked in {topics}"
    )


async def _leave(plan: Plan, services: Services, cause: BaseException | None, *, verified: bool) -> str:
    """What is decided, or may be, and is not committed: for people, empty if nothing is."""
    journal = services.journal
    superseded = isinstance(cause, Superseded)
    owned = not superseded and journal.identity is not None
    left = await _end_listed(services, verified=verified) if owned else ""
    found = None
    try:
        found = await _ask_journal(services, journal.read)
    except TidegateError as error:  # vanished, damaged, not to be reached: what is known from before must do
        logger.debug("the journal was not read at the end: %s", error.message)
    # After the reading: with the own entry about the end, which nobody else has written, and with what an append that
    # is still under way may list.
    own = journal.state
    keep = {one.transactional_id for one in journal.maybe_listed}
    if found is not None:
        keep |= {one.transactional_id for one in found.committables}
        owned &= found.next_sequence == own.next_sequence
    # Where somebody else has taken over, only the ids of this attempt are still this daemon's.
    since = Attempt(0) if owned else own.attempt
    behind = Attempt(own.attempt + 1)
    fenced = await services.kafka.fence_leftovers(plan.pipeline, keep, behind, own.journal, others=(), since=since)
    services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
    if journal.doubtful is not None and not superseded:
        doubt = f"it is not known whether checkpoint {journal.doubtful.id} is in the journal: its transactions are open"
        left = f"{left}; {doubt}" if left else doubt
    return left


async def _end_listed(services: Services, *, verified: bool) -> str:
    """Commit what the newest checkpoint lists, and write down that it is. What is not committed, and why, for people:
    whatever it is, it is the recovery's.
    """
    journal = services.journal
    permit = journal.release_permit()
    if permit is None:
        return ""
    left = f"transactions of checkpoint {permit.checkpoint} are decided, but not committed yet"
    if not verified:
        return f"{left} (its state was not verified)"
    started = services.clock.monotonic()
    try:
        outcomes = await services.kafka.commit(permit)
    except (TransactionLost, TransactionGone, TransactionUndecidable) as error:  # nobody waits for those
        logger.debug("%s: %s", left, error.message)
        return ""
    except TidegateError as error:
        return f"{left} ({error.message})"
    committed = [one for one, outcome in zip(permit.committables, outcomes, strict=True) if outcome.committed]
    now = [
        one for one, outcome in zip(permit.committables, outcomes, strict=True) if outcome is CommitOutcome.ENDED_NOW
    ]
    services.metrics.transactions_committed(now, services.clock.monotonic() - started)
    services.metrics.committed(committed, since=journal.state.attempt)
    if len(committed) < len(outcomes):
        return f"{left} (the broker has not answered to every commit)"
    try:
        await _ask_journal(services, lambda: journal.append_ended(services.clock.now_ms()))
    except TidegateError as error:
        logger.debug("checkpoint %d is committed, which is not on record: %s", permit.checkpoint, error.message)
    return ""


async def _ask_journal(services: Services, call: Callable[[], T]) -> T:
    """As `in_journal_thread`, and StorageError where that takes too long: an object store that is away is tried for
    longer than the whole end may take, and what is open has to be aborted without it. The call goes on in its thread.
    """
    try:
        async with asyncio.timeout(JOURNAL_S):
            return await services.in_journal_thread(call)
    except TimeoutError as error:
        raise StorageError(f"the storage has not answered within {JOURNAL_S:g} s") from error
