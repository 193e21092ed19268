"""Releases the transactions of an attempt when it ends for any reason: commits those that are decided, aborts the rest.

An open transaction blocks every read-committed reader of its partitions, including for records of other producers,
until the broker's timeout. So nothing is left to the next attempt, which may come after a backoff, a week later, or
never. The journal records when all listed transactions have ended, because Kafka eventually forgets ended transactions
(ADR 20).
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
"""How long to wait for each journal call.

Two calls and the remaining work must also fit into the exit after a second signal.
"""


async def leave(plan: Plan, services: Services, cause: BaseException | None, *, verified: bool = True) -> str:
    """Releases the transactions of this daemon's attempts, the last of which ended with `cause`.

    Returns an empty text if Kafka is clean; otherwise a text for the log about what may be left open and why.

    It is called when no task of the attempt can decide anything: its last append has a result, or never will. Until the
    newest checkpoint is `verified`, its transactions are not touched: if its state is damaged, falling back to the last
    intact checkpoint is possible only while they are open.
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
        services.metrics.oldest_transaction(None)  # the next attempt may begin much later
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
    """Describes what a daemon leaves undone if it is stopped before its first recovery.

    Empty if no transactions are listed: with `mode: at-least-once`, or when all are recorded as ended.
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
    """Releases the transactions; describes those that are or may be decided and are not committed, if any."""
    journal = services.journal
    superseded = isinstance(cause, Superseded)
    owned = not superseded and journal.identity is not None
    left = await _end_listed(services, verified=verified) if owned else ""
    found = None
    try:
        found = await _ask_journal(services, journal.read)
    except TidegateError as error:  # vanished, damaged or unreachable: the last known journal is used
        logger.debug("the journal was not read at the end: %s", error.message)
    # This follows the read, so that it includes this daemon's own entry about the end, and the transactions of an
    # append that is still in progress.
    own = journal.state
    keep = {one.transactional_id for one in journal.maybe_listed}
    if found is not None:
        keep |= {one.transactional_id for one in found.committables}
        owned &= found.next_sequence == own.next_sequence
    # If another daemon has taken over, only the ids of this attempt still belong to this one.
    since = Attempt(0) if owned else own.attempt
    behind = Attempt(own.attempt + 1)
    fenced = await services.kafka.fence_leftovers(plan.pipeline, keep, behind, own.journal, others=(), since=since)
    services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
    if journal.doubtful is not None and not superseded:
        doubt = f"it is not known whether checkpoint {journal.doubtful.id} is in the journal: its transactions are open"
        left = f"{left}; {doubt}" if left else doubt
    return left


async def _end_listed(services: Services, *, verified: bool) -> str:
    """Commits what the newest checkpoint lists and records that. Describes what is not committed and why.

    The next recovery resolves whatever is left.
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
    except (TransactionLost, TransactionGone, TransactionUndecidable) as error:  # left to the recovery
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
    """Calls the journal like `in_journal_thread`, but raises StorageError if that takes too long.

    Retries for an unavailable object store may take longer than the whole shutdown, and open transactions have to be
    aborted regardless. The call continues in its thread.
    """
    try:
        async with asyncio.timeout(JOURNAL_S):
            return await services.in_journal_thread(call)
    except TimeoutError as error:
        raise StorageError(f"the storage has not answered within {JOURNAL_S:g} s") from error
